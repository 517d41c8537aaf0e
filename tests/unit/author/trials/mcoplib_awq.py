"""Style: unittest with subTest, class constants, a helper method, numpy's comparison."""
import unittest

import numpy as np
import torch
import mcoplib._C

ops = torch.ops._C


class TestAwq(unittest.TestCase):
    SHAPES = [(64, 8, 32), (128, 16, 64)]
    order = [0, 4, 1, 5, 2, 6, 3, 7]
    tolerance = dict(atol=1e-2, rtol=1e-2)

    def setUp(self):
        torch.manual_seed(1234)
        self.bits = 4
        self.device = "cuda:0"

    def unpack(self, packed):
        shifts = torch.arange(0, 32, 4, device=packed.device)
        nibbles = (packed.unsqueeze(-1) >> shifts) & 0xF
        return nibbles[..., self.order].flatten(1)

    def golden(self, qweight, scales, zeros, group_size):
        weight = self.unpack(qweight)
        zero = self.unpack(zeros).repeat_interleave(group_size, 0)
        scale = scales.repeat_interleave(group_size, 0)
        return (weight - zero).to(scale.dtype) * scale

    def test_awq_dequantize(self):
        for rows, cols, group_size in self.SHAPES:
            with self.subTest(rows=rows):
                most = 2 ** 31 - 1
                qweight = torch.randint(0, most, (rows, cols), dtype=torch.int32).to(self.device)
                scales = torch.rand(rows // group_size, cols * 8).half().to(self.device)
                zeros = torch.randint(0, most, (rows // group_size, cols), dtype=torch.int32).to(self.device)
                args = (qweight, scales, zeros, 0, 0, 0)
                out = ops.awq_dequantize(*args)
                expected = self.golden(qweight, scales, zeros, group_size)
                np.testing.assert_allclose(
                    expected.cpu().numpy(), out.cpu().numpy(), **self.tolerance
                )


if __name__ == "__main__":
    unittest.main()
