# -*- coding: utf-8 -*-
import unittest

import torch
import mcoplib.op as mcop


def rotate_half(x):
    x1, x2 = x.chunk(2, dim=-1)
    return torch.cat((-x2, x1), dim=-1)


def rope_golden(qkv, cos, sin, indexes):
    """qkv: [tokens, kv_heads, group + 2, head_size]; all rows of a group but the last turn"""
    cos = cos[indexes].float()
    sin = sin[indexes].float()
    cos = torch.cat((cos, cos), dim=-1)[:, None, None, :]
    sin = torch.cat((sin, sin), dim=-1)[:, None, None, :]
    qk = qkv[:, :, :-1, :].float()
    turned = qk * cos + rotate_half(qk) * sin
    out = qkv.clone()
    out[:, :, :-1, :] = turned.to(qkv.dtype)
    return out


class TestFusedRope(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(123)

    def test_fused_rope_fwd(self):
        num_tokens, num_heads, num_kv_heads, head_size = 4096, 32, 8, 128
        max_position = 4096
        dtype = torch.bfloat16
        group = num_heads // num_kv_heads
        qkv = torch.randn(num_tokens, num_kv_heads, group + 2, head_size, device="cuda", dtype=dtype)
        freq = 1.0 / (10000 ** (torch.arange(0, head_size, 2, device="cuda").float() / head_size))
        angle = torch.outer(torch.arange(max_position, device="cuda").float(), freq)
        cos = angle.cos().to(dtype)
        sin = angle.sin().to(dtype)
        indexes = torch.randint(0, max_position, (num_tokens,), device="cuda")

        golden = rope_golden(qkv, cos, sin, indexes)
        mcop.fused_rope_fwd(qkv, cos, sin, indexes, False)

        diff = torch.abs(qkv.float() - golden.float()).max().item()
        self.assertLess(diff, 0.05)
        cosine = torch.nn.functional.cosine_similarity(qkv.float().flatten(), golden.float().flatten(), dim=0)
        self.assertGreater(cosine.item(), 0.9999)


if __name__ == "__main__":
    unittest.main()
