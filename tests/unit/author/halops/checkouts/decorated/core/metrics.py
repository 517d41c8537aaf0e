from core.gpus import GPU_SPECS


def spec_of(name):
    if name not in GPU_SPECS:
        raise KeyError(f"unknown GPU {name}")
    return GPU_SPECS[name]
