"""Runs what a config asks for."""
import sys

from core.config import expand, load
from core.registry import OP_REGISTRY
import kernel.attention  # noqa: F401  registers itself
import kernel.gemm  # noqa: F401
import kernel.norm  # noqa: F401


def _run_scenarios(env, conf):
    scenario = OP_REGISTRY[env.op].SCENARIOS[conf["scenario"]]
    for one in expand(conf):
        scenario(env, one)


def main(argv=None):
    env, conf = load(argv or sys.argv[1:])
    _run_scenarios(env, conf)
