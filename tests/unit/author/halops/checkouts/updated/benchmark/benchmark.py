import argparse

import yaml

from kernel import attention, gemm

OP_REGISTRY = dict()
OP_REGISTRY.update(attention=attention)
OP_REGISTRY.update({"gemm": gemm})
BATCHES = "batch_sizes"


def _run_scenarios(op, spec, out):
    run = OP_REGISTRY[op].scenarios.SCENARIOS[spec.get("scenario")]
    for batch_size in spec.get(BATCHES, [1]):
        run({**spec, "batch_size": batch_size}, out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--config")
    with open(parser.parse_args().config) as stream:
        _run_scenarios("gemm", yaml.safe_load(stream), [])
