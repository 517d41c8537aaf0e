"""FP8 quantisation in plain torch."""
from typing import Optional, Tuple, Union

import torch

FP8_DTYPE = torch.float8_e4m3fn


def as_float32_tensor(x: Union[float, torch.Tensor]) -> torch.Tensor:
    return torch.as_tensor(x, dtype=torch.float32, device="cuda")


def ref_dynamic_per_token_quant(
    x: torch.Tensor,
    quant_dtype: torch.dtype,
    scale_ub: Optional[torch.Tensor] = None,
) -> Tuple[torch.Tensor, torch.Tensor]:
    qtype_traits = torch.finfo(quant_dtype)
    qtype_max = as_float32_tensor(qtype_traits.max)
    s_1 = as_float32_tensor(1.0)
    s_512 = as_float32_tensor(512.0)

    # the largest magnitude of each token
    x_token_max, _ = x.abs().max(dim=-1)
    x_token_max = as_float32_tensor(x_token_max)
    if scale_ub is not None:
        x_token_max = x_token_max.clamp(max=scale_ub)
    scales = (x_token_max / qtype_max)[:, None]
    min_scaling_factor = s_1 / (qtype_max * s_512)
    scales = scales.clamp(min=min_scaling_factor)

    torch_out = as_float32_tensor(x) / scales
    torch_out = torch_out.clamp(qtype_traits.min, qtype_traits.max).to(quant_dtype)
    return torch_out, scales


def ref_static_quant(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    traits = torch.finfo(FP8_DTYPE)
    inverse = 1.0 / scale
    scaled = x.to(torch.float32) * inverse
    return scaled.clamp(traits.min, traits.max).to(FP8_DTYPE)
