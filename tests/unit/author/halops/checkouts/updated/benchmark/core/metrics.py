_B200 = {"peaks": {"bf16": 2.25e15, "fp8": 4.5e15, "fp4": 9e15}}
GPU_SPECS = {"b200": _B200, "h200": {"peaks": {"bf16": 9.89e14}}}


def spec(gpu_type="b200"):
    if gpu_type not in GPU_SPECS:
        gpu_type = "b200"
    return GPU_SPECS[gpu_type]
