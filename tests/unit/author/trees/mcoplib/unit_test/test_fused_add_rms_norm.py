"""Norm of input + residual; both arguments are written."""
import unittest

import torch
from mcoplib import _C  # registers torch.ops._C


class RMSNormReference(torch.nn.Module):
    def __init__(self, hidden_size, eps=1e-6):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(hidden_size))
        self.variance_epsilon = eps

    def forward(self, x, residual):
        orig_dtype = x.dtype
        x = x.to(torch.float32) + residual.to(torch.float32)
        residual = x.to(orig_dtype)
        x = residual.to(torch.float32)
        variance = x.pow(2).mean(dim=-1, keepdim=True)
        x = x * torch.rsqrt(variance + self.variance_epsilon)
        return x.to(orig_dtype) * self.weight, residual


class TestFusedAddRMSNorm(unittest.TestCase):
    DTYPES = [torch.float16, torch.bfloat16]
    NUM_TOKENS = [19, 4096]
    HIDDEN_SIZES = [768, 5120, 8192]

    def _run_fused_add_rms_norm(self, num_tokens, hidden_size, dtype, seed=0):
        torch.manual_seed(seed)
        layer = RMSNormReference(hidden_size).to(dtype=dtype, device="cuda")
        layer.weight.data.normal_(mean=1.0, std=0.1)
        scale = 1 / (2 * hidden_size)
        x = torch.randn(num_tokens, hidden_size, dtype=dtype, device="cuda")
        x *= scale
        residual = torch.randn_like(x) * scale
        with torch.inference_mode():
            expected, expected_residual = layer(x.clone(), residual.clone())
            torch.ops._C.fused_add_rms_norm(x, residual, layer.weight.data, layer.variance_epsilon)
        self.assertTrue(torch.allclose(x, expected, atol=1e-2, rtol=1e-2))
        self.assertTrue(torch.allclose(residual, expected_residual, atol=1e-3, rtol=1e-3))

    def test_fused_add_rms_norm(self):
        for num_tokens in self.NUM_TOKENS:
            for hidden_size in self.HIDDEN_SIZES:
                for dtype in self.DTYPES:
                    with self.subTest(num_tokens=num_tokens, hidden_size=hidden_size, dtype=dtype):
                        self._run_fused_add_rms_norm(num_tokens, hidden_size, dtype)


if __name__ == "__main__":
    unittest.main()
