from dataclasses import dataclass


@dataclass
class Gpu:
    bandwidth: float
    bf16: float
    fp8: float = 0.0
    fp4: float = 0.0


GPU_SPECS: dict = {
    "b200": Gpu(8e12, 2.25e15, 4.5e15, 9e15),
    "b300": Gpu(8e12, 2.5e15, 5e15, fp4=1.5e16),
    "h20": Gpu(4e12, 1.48e14, 2.96e14),
}
