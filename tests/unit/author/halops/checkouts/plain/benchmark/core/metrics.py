GPU_SPECS = {
    "b200": {"bw": 8000.0, "bf16": 2250.0, "fp8": 4500.0, "fp4": 9000.0},
    "h200": {"bw": 4800.0, "bf16": 989.0, "fp8": 1979.0},
}


def get_gpu_spec(name):
    return GPU_SPECS.get(name, GPU_SPECS["b200"])
