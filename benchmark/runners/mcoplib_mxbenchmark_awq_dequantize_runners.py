"""AWQ's 4-bit weight unpacked to 16-bit numbers: (nibble - zero) * scale.

Call: ``torch.ops._C.awq_dequantize(qweight, scales, qzeros, split_k_iters, thx, thy)``
Libraries: vllm, mcoplib

Arguments:
    qweight: [in_features, out_features / 8], int32; eight 4-bit columns in a word.
    scales: [in_features / group_size, out_features], float16.
    qzeros: [in_features / group_size, out_features / 8], int32; packed like qweight.
    split_k_iters: int, unused; 0.
    thx, thy: int, threads of a block; 0 and 0 let the operator choose.
    returns: [in_features, out_features], dtype of scales.
Parameters:
    in_features: 8192 (Llama-3 70B).
    out_features: 28672 (gate or up of Llama-3 70B), 10240 (its QKV), 8192 (its output projection).
    group_size: 128.
    dtype: float16, of scales.
Pitfalls:
    - Columns 0 to 7 lie in nibbles 0 4 1 5 2 6 3 7 of a word; unpacked in order, columns move.
    - Zeros and scales belong to group_size rows each: repeat rows (repeat_interleave), not tiles.
    - Words are signed: shift, then mask, or the sign fills the upper nibbles.
    - With thx and thy given by hand only one block runs: large weights are not filled.
"""

import torch
from mcoplib_mxbenchmark_op_wrapper import OpBenchmarkBase

try:
    import mcoplib._C  # noqa: F401 - registers torch.ops._C
except ImportError:
    pass

# Column j of eight lies in the nibble _NIBBLE_OF_COLUMN[j]: packing interleaves 0 2 4 6 1 3 5 7.
_NIBBLE_OF_COLUMN = (0, 4, 1, 5, 2, 6, 3, 7)


def _ref_unpack(packed):
    """packed: [rows, columns / 8] int32; returns [rows, columns] int32 of 0 to 15."""
    shifts = torch.tensor(_NIBBLE_OF_COLUMN, dtype=torch.int32, device=packed.device) * 4
    shifted = packed.unsqueeze(-1) >> shifts
    nibbles = shifted & 0xF
    return nibbles.reshape(packed.shape[0], -1)


def _ref_awq_dequantize(qweight, scales, qzeros):
    """Returns the weight, [in_features, out_features], rounded once to the dtype of scales."""
    group_size = qweight.shape[0] // scales.shape[0]
    weight = _ref_unpack(qweight)
    zeros = _ref_unpack(qzeros)
    zeros = zeros.repeat_interleave(group_size, dim=0)
    wide_scales = scales.to(torch.float32)
    wide_scales = wide_scales.repeat_interleave(group_size, dim=0)
    steps = weight - zeros
    product = steps.to(torch.float32) * wide_scales
    return product.to(scales.dtype)


class Awq_dequantize_runner(OpBenchmarkBase):
    def __init__(self, name, config):
        super().__init__(name, config)
        self.in_features = config.get("in_features", 8192)
        self.out_features = config.get("out_features", 28672)
        self.group_size = config.get("group_size", 128)

    def define_metrics(self, state):
        state.add_summary("Op", self.name)
        state.add_summary("dtype", str(self.dtype).removeprefix("torch."))
        state.add_summary("Shape", f"({self.in_features} {self.out_features} G={self.group_size})")
        state.add_element_count(self.out.numel())
        self.moves(state, read=self.weight, written=(self.out,))

    def _prepare_weight(self, dev_id, gen):
        device = self.device(dev_id)
        groups = self.in_features // self.group_size
        packed = {"dtype": torch.int32, "device": device, "generator": gen}
        words = self.out_features // 8
        lowest, beyond = -(2**31), 2**31
        qweight = torch.randint(lowest, beyond, (self.in_features, words), **packed)
        qzeros = torch.randint(lowest, beyond, (groups, words), **packed)
        scales = torch.rand(
            groups, self.out_features, dtype=torch.float32, device=device, generator=gen
        )
        scales = (scales * 0.01 + 0.005).to(self.dtype)
        return qweight, scales, qzeros

    def _call(self, qweight, scales, qzeros):
        self.out = torch.ops._C.awq_dequantize(qweight, scales, qzeros, 0, 0, 0)

    def prepare_and_get_launcher(self, dev_id, tc_s):
        with self.stream(tc_s):
            self.weight = self._prepare_weight(dev_id, self.generator(dev_id, 42))
        return self.make_launcher(dev_id, self._call, *self.weight)

    def _check(self, weight):
        # One product of small integers and a scale, rounded once: nothing is left to rounding.
        self.verify.exact(self.out, _ref_awq_dequantize(*weight), name="weight")
        return self.verify.verdict()

    def run_verification(self, dev_id):
        weight = self._prepare_weight(dev_id, self.generator(dev_id, 7))
        self._call(*weight)
        self.synchronize(dev_id)
        return self._check(weight)

    def verify_timed(self, dev_id):
        return self._check(self.weight)
