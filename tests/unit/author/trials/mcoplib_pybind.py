"""Style: mcoplib.op under another name, plain functions called with literals, cosine."""
import torch
import torch.nn.functional as F
import mcoplib.op as o

EPS = 1e-5


def cos_sim(a, b):
    a, b = a.double().flatten(), b.double().flatten()
    return F.cosine_similarity(a, b, dim=0)


def check(name, out, ref, limit=0.9999):
    sim = cos_sim(out, ref)
    assert sim > limit, f"{name}: {sim}"


def run_op(x, bias, residual):
    """The operator returns two tensors."""
    x = x.contiguous()
    out, total = o.fused_bias_norm(x, bias, residual, EPS)
    return out, total


def run(tokens, hidden, dtype="float16"):
    torch.cuda.manual_seed_all(0)
    x = torch.randn(tokens, hidden, dtype=getattr(torch, dtype)).cuda()
    bias = torch.randn(hidden, dtype=getattr(torch, dtype)).cuda()
    residual = torch.randn_like(x)
    out, total = run_op(x, bias, residual)
    total_ref = x + bias + residual
    mean = total_ref.float().pow(2).mean(-1, keepdim=True)
    out_ref = (total_ref.float() * torch.rsqrt(mean + EPS)).to(x.dtype)
    check("out", out, out_ref)
    check("total", total, total_ref, limit=0.99999)
    torch.cuda.synchronize()


def main():
    for hidden in (64, 128):
        run(8, hidden)
        run(16, hidden, dtype="bfloat16")


if __name__ == "__main__":
    main()
