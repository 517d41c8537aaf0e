import pytest
import torch
import mcoplib.sgl_kernel


class RotaryEmbedding(torch.nn.Module):
    """The layer without a kernel."""

    def __init__(self, head_size, rotary_dim, max_position, base, is_neox, dtype):
        super().__init__()
        self.head_size = head_size
        self.rotary_dim = rotary_dim
        self.is_neox = is_neox
        inv_freq = 1.0 / (base ** (torch.arange(0, rotary_dim, 2, dtype=torch.float) / rotary_dim))
        t = torch.arange(max_position, dtype=torch.float)
        freqs = torch.einsum("i,j -> ij", t, inv_freq)
        self.register_buffer("cos_sin_cache", torch.cat((freqs.cos(), freqs.sin()), dim=-1).to(dtype))

    def _rotate(self, x, cos, sin):
        cos = cos.unsqueeze(-2).to(x.dtype)
        sin = sin.unsqueeze(-2).to(x.dtype)
        if self.is_neox:
            x1, x2 = torch.chunk(x, 2, dim=-1)
        else:
            x1, x2 = x[..., ::2], x[..., 1::2]
        o1 = x1 * cos - x2 * sin
        o2 = x2 * cos + x1 * sin
        if self.is_neox:
            return torch.cat((o1, o2), dim=-1)
        return torch.stack((o1, o2), dim=-1).flatten(-2)

    def forward_native(self, positions, query, key):
        cos, sin = self.cos_sin_cache[positions].chunk(2, dim=-1)
        outs = []
        for x in (query, key):
            shape = x.shape
            x = x.view(positions.shape[0], -1, self.head_size)
            rot = self._rotate(x[..., : self.rotary_dim], cos, sin)
            outs.append(torch.cat((rot, x[..., self.rotary_dim :]), dim=-1).reshape(shape))
        return outs


@pytest.mark.parametrize(
    "head_size, rotary_dim, max_position, base, is_neox, dtype, num_tokens, num_q_heads, num_kv_heads",
    [
        (64, 64, 32, 8000, True, torch.bfloat16, 64, 1, 1),
        (128, 128, 4096, 10000, True, torch.bfloat16, 4096, 32, 8),
        pytest.param(128, 64, 4096, 10000, False, torch.bfloat16, 512, 16, 2, id="partial-gptj"),
    ],
)
def test_rotary_embedding(
    head_size, rotary_dim, max_position, base, is_neox, dtype, num_tokens, num_q_heads, num_kv_heads
):
    torch.random.manual_seed(1)
    rope = RotaryEmbedding(head_size, rotary_dim, max_position, base, is_neox, dtype).to("cuda")
    pos_ids = torch.arange(num_tokens, device="cuda") % max_position
    query = torch.randn(num_tokens, num_q_heads * head_size, dtype=dtype, device="cuda")
    key = torch.randn(num_tokens, num_kv_heads * head_size, dtype=dtype, device="cuda")
    query_ref, key_ref = query.clone(), key.clone()
    query_out, key_out = query.clone(), key.clone()

    query_ref, key_ref = rope.forward_native(pos_ids, query_ref, key_ref)
    torch.ops.sgl_kernel.rotary_embedding(
        pos_ids, query_out, key_out, head_size, rope.cos_sin_cache, is_neox
    )
    torch.testing.assert_close(query_ref, query_out, atol=1e-2, rtol=1e-2)
    torch.testing.assert_close(key_ref, key_out, atol=1e-2, rtol=1e-2)
