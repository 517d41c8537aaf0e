import torch

from vllm.platforms import current_platform

if not current_platform.is_tpu():
    import vllm._C  # noqa: F401


# activation ops
def gelu_quick(out: torch.Tensor, x: torch.Tensor) -> None:
    torch.ops._C.gelu_quick(out, x)


# moe ops
def moe_sum(input: torch.Tensor, output: torch.Tensor):
    torch.ops._moe_C.moe_sum(input, output)
