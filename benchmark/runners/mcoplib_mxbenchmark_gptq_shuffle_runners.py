"""GPTQ's 4-bit weight reordered in place into the nibble order that the exllama kernels read.

Call: ``torch.ops._C.gptq_shuffle(q_weight, q_perm, bit)``
Libraries: vllm, mcoplib

Arguments:
    q_weight: [in_features / 8, out_features], int32; eight 4-bit rows in a word; changed in place.
    q_perm: [in_features], int32: row i becomes row q_perm[i]; empty: rows stay where they are.
    bit: int; 4.
Parameters:
    in_features: 8192 (Llama-3 70B).
    out_features: 28672 (gate or up of Llama-3 70B), 10240 (its QKV).
    dtype: int32, of q_weight.
Pitfalls:
    - The even nibbles of a word go to its lower half, the odd ones to its upper half.
    - Every bit counts: compare bit for bit, cosine does not see an exchanged nibble.
    - With a q_perm every call allocates and synchronises: it is verified, and timed without.
    - It changes its argument: each timed call shuffles what the one before left.
"""

import torch
from mcoplib_mxbenchmark_op_wrapper import OpBenchmarkBase

try:
    import mcoplib._C  # noqa: F401 - registers torch.ops._C
except ImportError:
    pass


def _ref_unpack(q_weight):
    """q_weight: [in_features / 8, out_features]; returns rows of nibbles, [in_features, ...]."""
    shifts = torch.arange(0, 32, 4, dtype=torch.int32, device=q_weight.device)
    shifted = q_weight.unsqueeze(1) >> shifts.view(1, 8, 1)
    nibbles = shifted & 0xF
    return nibbles.reshape(-1, q_weight.shape[1])


def _ref_pack(rows):
    """rows: [in_features, out_features] of 0 to 15; row 8 * i + j becomes nibble j of word i."""
    grouped = rows.reshape(-1, 8, rows.shape[1])
    words = torch.zeros_like(grouped[:, 0])
    for nibble in range(8):
        words = words | (grouped[:, nibble] << (4 * nibble))
    return words


def _ref_gptq_shuffle(q_weight, q_perm):
    """Returns the shuffled weight; q_weight is left as it is."""
    rows = _ref_unpack(q_weight)
    if q_perm.numel():
        rows = rows[q_perm.to(torch.int64)]
    grouped = rows.reshape(-1, 8, rows.shape[1])
    even = grouped[:, 0::2]
    odd = grouped[:, 1::2]
    shuffled = torch.cat((even, odd), dim=1)
    return _ref_pack(shuffled.reshape(rows.shape))


class Gptq_shuffle_runner(OpBenchmarkBase):
    def __init__(self, name, config):
        super().__init__(name, config)
        self.in_features = config.get("in_features", 8192)
        self.out_features = config.get("out_features", 28672)

    def define_metrics(self, state):
        state.add_summary("Op", self.name)
        state.add_summary("dtype", str(self.dtype).removeprefix("torch."))
        state.add_summary("Shape", f"({self.in_features} {self.out_features})")
        state.add_element_count(self.in_features * self.out_features)
        self.moves(state, read=(self.q_weight,), written=(self.q_weight,))

    def _prepare(self, dev_id, seed):
        return torch.randint(
            -(2**31),
            2**31,
            (self.in_features // 8, self.out_features),
            dtype=self.dtype,
            device=self.device(dev_id),
            generator=self.generator(dev_id, seed),
        )

    def _permutations(self, dev_id):
        """None, as weights without act-order have it, and a random one."""
        device = self.device(dev_id)
        none = torch.empty(0, dtype=torch.int32, device=device)
        order = torch.randperm(
            self.in_features, device=device, generator=self.generator(dev_id, 11)
        )
        return none, order.to(torch.int32)

    def prepare_and_get_launcher(self, dev_id, tc_s):
        with self.stream(tc_s):
            self.q_weight = self._prepare(dev_id, seed=42)
            none, _ = self._permutations(dev_id)
        return self.make_launcher(dev_id, torch.ops._C.gptq_shuffle, self.q_weight, none, 4)

    def run_verification(self, dev_id):
        original = self._prepare(dev_id, seed=7)
        for name, q_perm in zip(("plain", "permuted"), self._permutations(dev_id), strict=True):
            q_weight = original.clone()
            torch.ops._C.gptq_shuffle(q_weight, q_perm, 4)
            self.synchronize(dev_id)
            self.verify.exact(
                q_weight, _ref_gptq_shuffle(original, q_perm), name=f"{name} q_weight"
            )
        return self.verify.verdict()
