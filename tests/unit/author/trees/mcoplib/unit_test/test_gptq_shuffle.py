import argparse

import torch
import mcoplib._C  # noqa: F401


def unpack_rows(q_weight):
    """[k / 8, n] -> [k, n], one nibble an element."""
    rows = []
    for shift in range(0, 32, 4):
        rows.append((q_weight >> shift) & 0xF)
    return torch.stack(rows, dim=1).reshape(-1, q_weight.shape[1])


def pack_rows(nibbles, order):
    words = torch.zeros(nibbles.shape[0] // 8, nibbles.shape[1], dtype=torch.int64, device=nibbles.device)
    grouped = nibbles.reshape(-1, 8, nibbles.shape[1]).long()
    for place, row in enumerate(order):
        words |= grouped[:, row] << (4 * place)
    signed = torch.where(words >= 2**31, words - 2**32, words)
    return signed.to(torch.int32)


def shuffle_ref(q_weight, q_perm):
    nibbles = unpack_rows(q_weight)
    if q_perm.numel() > 0:
        nibbles = nibbles[q_perm.long()]
    return pack_rows(nibbles, order=[0, 2, 4, 6, 1, 3, 5, 7])


def check_gptq_shuffle(in_features, out_features, act_order):
    torch.manual_seed(0)
    q_weight = torch.randint(-(2**31), 2**31 - 1, (in_features // 8, out_features), dtype=torch.int32, device="cuda")
    if act_order:
        q_perm = torch.randperm(in_features, device="cuda").to(torch.int32)
    else:
        q_perm = torch.empty(0, dtype=torch.int32, device="cuda")
    expected = shuffle_ref(q_weight, q_perm)
    torch.ops._C.gptq_shuffle(q_weight, q_perm, 4)
    assert torch.equal(q_weight, expected), f"{in_features} x {out_features}, act_order {act_order}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    check_gptq_shuffle(in_features=4096, out_features=4096, act_order=True)
    if not args.quick:
        check_gptq_shuffle(in_features=8192, out_features=10240, act_order=False)
    print("ok")


if __name__ == "__main__":
    main()
