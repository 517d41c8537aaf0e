"""Copies whole blocks from one cache to another, on the device or between device and host.

Call: ``torch.ops._C_cache_ops.swap_blocks(src, dst, block_size_in_bytes, block_mapping)``
Libraries: vllm, mcoplib

Arguments:
    src: [num_blocks, block_size, num_kv_heads, head_size], any dtype, on the device or pinned on
        the host.
    dst: like src, written; not both on the host.
    block_size_in_bytes: bytes of one block; mcoplib and older vllm have no such argument.
    block_mapping: [num_pairs, 2], int64, on the host; source block, destination block.
Parameters:
    direction: device_to_device, device_to_host (swap out), host_to_device (swap in).
    num_kv_heads: 8 (Llama-3 70B, Qwen3 32B).
    head_size: 128 (Llama-3 70B, Qwen3 32B).
    num_pairs: 256; 34 MB are copied, 67 MB move within the device.
    num_blocks: 1024.
    block_size: 64.
Pitfalls:
    - Three arguments or four: the registered schema decides which are passed.
    - block_mapping lies on the host: on the device it is refused.
    - One asynchronous copy a pair: more than about a thousand of them fill the stream's queue,
      and a measurement that holds the stream back until all are queued hangs.
    - Host memory must be pinned, else every copy waits for the device.
    - To and from the host the bus is measured; only the device's side counts as its memory traffic.
"""

import torch
from mcoplib_mxbenchmark_op_wrapper import OpBenchmarkBase

try:
    import mcoplib._C  # noqa: F401
except ImportError:
    pass

DIRECTIONS = ("device_to_device", "device_to_host", "host_to_device")


def _ref_swap_blocks(src, dst, block_mapping):
    """The destination as it should be after the call, one pair at a time."""
    expected = dst.clone()
    for source, destination in block_mapping.tolist():
        expected[destination] = src[source].to(dst.device)
    return expected


class Swap_blocks_runner(OpBenchmarkBase):
    def __init__(self, name, config):
        super().__init__(name, config)
        self.direction = config.get("direction", "device_to_device")
        self.num_pairs = config.get("num_pairs", 256)
        self.num_blocks = config.get("num_blocks", 1024)
        self.block_size = config.get("block_size", 64)
        self.num_kv_heads = config.get("num_kv_heads", 8)
        self.head_size = config.get("head_size", 128)
        if self.direction not in DIRECTIONS:
            raise ValueError(
                f"direction {self.direction!r} is none of {', '.join(DIRECTIONS)}; write one"
            )

    def define_metrics(self, state):
        state.add_summary("Op", self.name)
        state.add_summary("dtype", str(self.dtype).removeprefix("torch."))
        state.add_summary(
            "Shape",
            f"({self.direction} pairs={self.num_pairs} block={self.block_size} "
            f"KV={self.num_kv_heads} D={self.head_size})",
        )
        copied = self.num_pairs * self.src[0].numel()
        state.add_element_count(copied)
        nbytes = copied * self.dtype.itemsize
        self.moves(
            state,
            read=() if self.direction == "host_to_device" else (nbytes,),
            written=() if self.direction == "device_to_host" else (nbytes,),
        )

    def _prepare(self, dev_id, seed, num_pairs, num_blocks):
        gen = self.generator(dev_id, seed)
        make = {"dtype": self.dtype, "device": self.device(dev_id), "generator": gen}
        shape = (num_blocks, self.block_size, self.num_kv_heads, self.head_size)
        src = torch.randn(shape, **make)
        dst = torch.randn(shape, **make)
        if self.direction == "host_to_device":
            src = self._on_host(src)
        if self.direction == "device_to_host":
            dst = self._on_host(dst)
        host = torch.Generator().manual_seed(seed)
        sources = torch.randperm(num_blocks, generator=host)[:num_pairs]
        destinations = torch.randperm(num_blocks, generator=host)[:num_pairs]
        return src, dst, torch.stack((sources, destinations), dim=1)

    def _on_host(self, tensor):
        host = tensor.cpu()
        return host.pin_memory() if tensor.is_cuda else host

    def _arguments(self, src, dst, block_mapping):
        schema = torch.ops._C_cache_ops.swap_blocks.default._schema
        if len(schema.arguments) == 3:
            return src, dst, block_mapping
        return src, dst, src[0].numel() * src.element_size(), block_mapping

    def prepare_and_get_launcher(self, dev_id, tc_s):
        with self.stream(tc_s):
            data = self._prepare(dev_id, 42, self.num_pairs, self.num_blocks)
            self.src, self.dst, self.block_mapping = data
        arguments = self._arguments(*data)
        return self.make_launcher(dev_id, torch.ops._C_cache_ops.swap_blocks, *arguments)

    def run_verification(self, dev_id):
        num_blocks = min(self.num_blocks, 64)
        num_pairs = min(self.num_pairs, num_blocks // 2)
        src, dst, block_mapping = self._prepare(dev_id, 7, num_pairs, num_blocks)
        source = src.clone()
        expected = _ref_swap_blocks(src, dst, block_mapping)
        torch.ops._C_cache_ops.swap_blocks(*self._arguments(src, dst, block_mapping))
        self.synchronize(dev_id)
        self.verify.exact(dst, expected, name="dst")
        self.verify.exact(src, source, name="src")
        return self.verify.verdict()

    def verify_timed(self, dev_id):
        sources, destinations = self.block_mapping.unbind(1)
        copied = self.dst[destinations.to(self.dst.device)]
        wanted = self.src[sources.to(self.src.device)]
        self.verify.exact(copied, wanted.to(copied.device), name="timed dst")
        return self.verify.verdict()
