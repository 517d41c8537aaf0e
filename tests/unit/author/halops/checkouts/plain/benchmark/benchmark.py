"""Front door: one config, one scenario."""

import argparse
import importlib

import yaml

from core.metrics import get_gpu_spec

OP_REGISTRY = {
    "attention": "kernel.attention.scenarios",
    "gemm": "kernel.gemm.scenarios",
}


def _run_scenarios(op, cfg, ctx):
    module = importlib.import_module(OP_REGISTRY[op])
    run = module.SCENARIOS[cfg["scenario"]]
    batch_sizes = cfg.get("batch_sizes")
    if batch_sizes is None:
        batch_sizes = [cfg.get("batch_size", 1)]
    rows = []
    for bs in batch_sizes:
        sub = dict(cfg)
        sub["batch_size"] = bs
        rows.extend(run(sub, ctx))
    return rows


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", required=True)
    parser.add_argument("--backend")
    args = parser.parse_args()
    with open("configs/" + args.config) as stream:
        cfg = yaml.safe_load(stream)
    if args.backend:
        cfg["backends"] = [args.backend]
    ctx = {"gpu": get_gpu_spec(cfg.get("gpu_type", "b200")), "cold": cfg.get("cold_l2_cache", True)}
    _run_scenarios(args.config.split("/")[0], cfg, ctx)


if __name__ == "__main__":
    main()
