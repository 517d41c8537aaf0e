"""Product of 16-bit activations with GPTQ's 4-bit weight by the exllama kernel.

Call: ``torch.ops._C.gptq_gemm(a, b_q_weight, b_gptq_qzeros, b_gptq_scales, b_g_idx, use_exllama, use_v2_format, bit)``
Libraries: vllm, mcoplib

Arguments:
    a: [num_tokens, in_features], float16.
    b_q_weight: [in_features / 8, out_features], int32; shuffled as by gptq_shuffle.
    b_gptq_qzeros: [in_features / group_size, out_features / 8], int32; columns in nibble order.
    b_gptq_scales: [in_features / group_size, out_features], float16.
    b_g_idx: empty int32 tensor on the device, or the rows' order where they are permuted.
    use_exllama: bool; True.
    use_v2_format: bool; False: zeros are stored less one.
    bit: int; 4.
    returns: [num_tokens, out_features], float16.
Parameters:
    num_tokens: 16, 1; from 51 on the operator unpacks the whole weight and multiplies that.
    in_features: 8192 (Llama-3 70B).
    out_features: 28672 (gate or up of Llama-3 70B).
    group_size: 128.
    use_v2_format: false.
    dtype: float16.
Pitfalls:
    - The weight has to be shuffled before; unshuffled, rows are exchanged within each eight.
    - Stored zeros are one less than the zeros meant, except in the v2 format.
    - Rows are packed along in_features, zeros along out_features.
    - Libraries before the v2 format take seven arguments: use_v2_format is left out for them.
    - Parts of in_features are summed by float16 atomics, so results differ from call to call.
"""  # noqa: E501

import torch
from mcoplib_mxbenchmark_op_wrapper import OpBenchmarkBase

try:
    import mcoplib._C  # noqa: F401 - registers torch.ops._C
except ImportError:
    pass

_LIMIT = 1e-2
_THRESHOLD = 0.99999
_REASON = (
    "exllama rounds to float16 after each of four additions and adds parts of 128 rows with "
    "float16 atomics: over 8192 rows the roundings reach 3e-3 of the row's magnitude"
)


def _shuffle(rows):
    """rows: [in_features, out_features] of 0 to 15; packed as gptq_shuffle leaves it."""
    grouped = rows.reshape(-1, 8, rows.shape[1])
    even = grouped[:, 0::2]
    odd = grouped[:, 1::2]
    return _pack(torch.cat((even, odd), dim=1))


def _pack(nibbles):
    """nibbles: [words, 8, columns] int32; returns [words, columns]."""
    words = torch.zeros_like(nibbles[:, 0])
    for position in range(8):
        words = words | (nibbles[:, position] << (4 * position))
    return words


def _ref_gptq_gemm(a, rows, zeros, scales):
    """rows: [in_features, out_features], zeros: [groups, out_features] as meant, not as stored.

    Returns a @ weight in float64.
    """
    group_size = rows.shape[0] // scales.shape[0]
    all_zeros = zeros.repeat_interleave(group_size, dim=0)
    all_scales = scales.to(torch.float64).repeat_interleave(group_size, dim=0)
    steps = rows - all_zeros
    weight = steps.to(torch.float64) * all_scales
    return a.to(torch.float64) @ weight


class Gptq_gemm_runner(OpBenchmarkBase):
    def __init__(self, name, config):
        super().__init__(name, config)
        self.num_tokens = config.get("num_tokens", 16)
        self.in_features = config.get("in_features", 8192)
        self.out_features = config.get("out_features", 28672)
        self.group_size = config.get("group_size", 128)
        self.use_v2_format = config.get("use_v2_format", False)

    def define_metrics(self, state):
        state.add_summary("Op", self.name)
        state.add_summary("dtype", str(self.dtype).removeprefix("torch."))
        state.add_summary(
            "Shape", f"M={self.num_tokens} N={self.out_features} K={self.in_features}"
        )
        state.add_element_count(self.out.numel())
        self.moves(state, read=self.inputs, written=(self.out,))

    def flops(self):
        return 2 * self.num_tokens * self.in_features * self.out_features

    def _prepare(self, dev_id, seed):
        """Returns what the operator takes and what it means: rows, zeros and scales."""
        device = self.device(dev_id)
        gen = self.generator(dev_id, seed)
        groups = self.in_features // self.group_size
        small = {"dtype": torch.int32, "device": device, "generator": gen}
        a = torch.randn(
            self.num_tokens, self.in_features, dtype=self.dtype, device=device, generator=gen
        )
        rows = torch.randint(0, 16, (self.in_features, self.out_features), **small)
        zeros = torch.randint(1, 16, (groups, self.out_features), **small)
        scales = torch.rand(
            groups, self.out_features, dtype=torch.float32, device=device, generator=gen
        )
        scales = (scales * 0.01 + 0.005).to(self.dtype)
        stored = zeros if self.use_v2_format else zeros - 1
        columns = stored.reshape(groups, -1, 8).transpose(1, 2)
        none = torch.empty(0, dtype=torch.int32, device=device)
        return (a, _shuffle(rows), _pack(columns), scales, none), (rows, zeros, scales)

    def _options(self):
        """What follows the tensors: use_exllama, use_v2_format where the library has it, bit."""
        names = [argument.name for argument in torch.ops._C.gptq_gemm.default._schema.arguments]
        if "use_v2_format" in names:
            return True, self.use_v2_format, 4
        if self.use_v2_format:
            raise ValueError(
                "this library's gptq_gemm knows no v2 format; measure with use_v2_format false"
            )
        return True, 4

    def _call(self, *arguments):
        self.out = torch.ops._C.gptq_gemm(*arguments)

    def prepare_and_get_launcher(self, dev_id, tc_s):
        with self.stream(tc_s):
            self.inputs, self.meant = self._prepare(dev_id, seed=42)
        return self.make_launcher(dev_id, self._call, *self.inputs, *self._options())

    def _check(self, a, meant):
        ref = _ref_gptq_gemm(a, *meant)
        self.verify.close(self.out, ref, limit=_LIMIT, reason=_REASON, name="output")
        self.verify.cosine(self.out, ref, _THRESHOLD, reason=_REASON, name="output")
        return self.verify.verdict()

    def run_verification(self, dev_id):
        inputs, meant = self._prepare(dev_id, seed=7)
        self._call(*inputs, *self._options())
        self.synchronize(dev_id)
        return self._check(inputs[0], meant)

    def verify_timed(self, dev_id):
        return self._check(self.inputs[0], self.meant)
