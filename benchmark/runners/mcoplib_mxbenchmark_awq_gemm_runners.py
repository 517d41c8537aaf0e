"""Product of 16-bit activations with AWQ's 4-bit weight, unpacked on the way.

Call: ``torch.ops._C.awq_gemm(input, qweight, scales, qzeros, split_k_iters)``
Libraries: vllm, mcoplib

Arguments:
    input: [num_tokens, in_features], float16.
    qweight: [in_features, out_features / 8], int32; eight 4-bit columns in a word.
    scales: [in_features / group_size, out_features], float16.
    qzeros: [in_features / group_size, out_features / 8], int32; packed like qweight.
    split_k_iters: int; parts of in_features that are summed at the end.
    returns: [num_tokens, out_features], dtype of input.
Parameters:
    num_tokens: 16, 128 (vLLM unpacks the whole weight from 256 on).
    in_features: 8192 (Llama-3 70B).
    out_features: 28672 (gate or up of Llama-3 70B); a multiple of 64 and of group_size.
    group_size: 128; a multiple of 32.
    split_k_iters: 8 (vLLM's choice).
    dtype: float16.
Pitfalls:
    - Columns 0 to 7 lie in nibbles 0 4 1 5 2 6 3 7 of a word; unpacked in order, columns move.
    - Zeros and scales belong to group_size rows each: repeat rows (repeat_interleave), not tiles.
    - Words are signed: shift, then mask, or the sign fills the upper nibbles.
    - Each part of a split is rounded to float16 before the parts are summed.
    - The weight is rounded to float16 when unpacked; a reference without that step differs.
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


def _ref_awq_gemm(input, qweight, scales, qzeros):
    """Returns input @ weight in float64."""
    weight = _ref_awq_dequantize(qweight, scales, qzeros)
    return input.to(torch.float64) @ weight.to(torch.float64)


class Awq_gemm_runner(OpBenchmarkBase):
    def __init__(self, name, config):
        super().__init__(name, config)
        self.num_tokens = config.get("num_tokens", 16)
        self.in_features = config.get("in_features", 8192)
        self.out_features = config.get("out_features", 28672)
        self.group_size = config.get("group_size", 128)
        self.split_k_iters = config.get("split_k_iters", 8)

    def define_metrics(self, state):
        state.add_summary("Op", self.name)
        state.add_summary("dtype", str(self.dtype).removeprefix("torch."))
        state.add_summary(
            "Shape", f"M={self.num_tokens} N={self.out_features} K={self.in_features}"
        )
        state.add_element_count(self.out.numel())
        self.moves(state, read=(self.input, *self.weight), written=(self.out,))

    def flops(self):
        return 2 * self.num_tokens * self.in_features * self.out_features

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

    def _prepare(self, dev_id, seed):
        gen = self.generator(dev_id, seed)
        input = torch.randn(
            self.num_tokens,
            self.in_features,
            dtype=self.dtype,
            device=self.device(dev_id),
            generator=gen,
        )
        return input, self._prepare_weight(dev_id, gen)

    def _call(self, input, weight):
        self.out = torch.ops._C.awq_gemm(input, *weight, self.split_k_iters)

    def prepare_and_get_launcher(self, dev_id, tc_s):
        with self.stream(tc_s):
            self.input, self.weight = self._prepare(dev_id, seed=42)
        return self.make_launcher(dev_id, self._call, self.input, self.weight)

    def _check(self, input, weight):
        ref = _ref_awq_gemm(input, *weight)
        # Sums are kept in float32; each part of the split is rounded to float16 once.
        self.verify.close(self.out, ref, name="output")
        self.verify.cosine(self.out, ref, name="output")
        return self.verify.verdict()

    def run_verification(self, dev_id):
        input, weight = self._prepare(dev_id, seed=7)
        self._call(input, weight)
        self.synchronize(dev_id)
        return self._check(input, weight)

    def verify_timed(self, dev_id):
        return self._check(self.input, self.weight)
