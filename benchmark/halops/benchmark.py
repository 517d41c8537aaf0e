"""The suite's front door: run one configuration's scenarios over its sweep.

    python benchmark.py --config=attention/decode_gqa.yaml --backend=golden --repeat-iters=1

A configuration names a scenario and its fields (docs/config_schema.md); everything that it asks
for is checked before anything runs. Exit codes: 0 all passed or unverified, 1 a backend failed or
ended in an error, 2 the configuration is wrong, 3 a backend asked for with --backend is unavailable
or the device is.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent
# The harness lies beside the suite; last, so that no folder here hides an installed library.
sys.path.append(str(ROOT.parent))
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
from core import report, timing  # noqa: E402
from core.runner import ConfigError, Context  # noqa: E402
from harness import board, environment, errors, record  # noqa: E402
from harness.cases import CaseConfig  # noqa: E402

# The operators, and the package that has each one's scenarios.
OP_REGISTRY = {
    "attention": "kernel.attention.scenarios",
    "gemm": "kernel.gemm.scenarios",
}

Scenario = Callable[[CaseConfig, Context], None]


def load_config(name: str) -> tuple[str, dict[str, Any]]:
    """The operator and the fields of ``configs/<op>/<file>.yaml`` (or a path to such a file).

    Raises ``ConfigError``.
    """
    try:
        import yaml
    except ImportError:
        raise errors.UnusableError("PyYAML is not installed; pip install PyYAML") from None
    path = Path(name) if Path(name).is_file() else ROOT / "configs" / name
    try:
        loaded = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{path}: {' '.join(str(error).split())}") from None
    if not isinstance(loaded, dict) or not all(isinstance(key, str) for key in loaded):
        raise ConfigError(f"{path}: not a mapping of fields")
    op = path.resolve().parent.name
    if op not in OP_REGISTRY:
        raise ConfigError(f"{path}: its folder {op!r} is none of {_list(OP_REGISTRY)}")
    return op, loaded


def find_scenario(op: str, cfg: Mapping[str, Any]) -> Scenario:
    """The function of the scenario that ``cfg`` names; raises ``ConfigError``."""
    scenarios: dict[str, Scenario] = importlib.import_module(OP_REGISTRY[op]).SCENARIOS
    name = cfg.get("scenario")
    if name not in scenarios:
        raise ConfigError(f"scenario {name!r} is unknown; {op} has {_list(scenarios)}")
    return scenarios[name]


def _run_scenarios(scenario: Scenario, cfg: Mapping[str, Any], ctx: Context) -> None:
    """Call ``scenario`` once for each of ``batch_sizes``, as the scalar ``batch_size``."""
    fields = dict(cfg)
    fields.pop("scenario", None)
    batch_sizes = fields.pop("batch_sizes", None)
    if batch_sizes is not None and "batch_size" in fields:
        raise ConfigError("batch_size and batch_sizes are both given; keep one")
    points = [{}] if batch_sizes is None else [{"batch_size": size} for size in batch_sizes]
    for point in points:
        case = CaseConfig(fields | point)
        scenario(case, ctx)
        unread = case.unread()
        if unread:
            ctx.note(f"{ctx.scenario} never reads {_list(unread)}: misspelt?")


def _check(scenario: Scenario, cfg: Mapping[str, Any], ctx: Context) -> None:
    """Go over the whole sweep without running any of it; raises ``ConfigError``."""
    if not isinstance(cfg.get("backends"), list):
        raise ConfigError(f"backends is {cfg.get('backends')!r}; write a list of names")
    ctx.checking = True
    try:
        _run_scenarios(scenario, cfg, ctx)
    except KeyError as error:
        raise ConfigError(f"the field {error} is missing") from None
    except AttributeError as error:
        # How ``getattr(torch, cfg["dtype"])`` answers to ``bf16``.
        hint = "; write torch's name of a dtype, bfloat16 say" if "torch" in str(error) else ""
        raise ConfigError(f"{error}{hint}") from None
    except (ValueError, TypeError) as error:
        raise ConfigError(str(error)) from None
    ctx.checking = False


# A read that a flush slows by less than this part came from the cache nevertheless.
_COLD = 1.1


def _coldness(cfg: Mapping[str, Any], ctx: Context) -> float | None:
    """``timing.coldness`` of the device, where cold times are asked for; told when it is none."""
    if ctx.device.type != "cuda" or not cfg.get("cold_l2_cache", True):
        return None
    found = timing.coldness(ctx.device, bool(cfg.get("use_cuda_graph", False)))
    if found < _COLD:
        ctx.note(f"a flush slows reads by {found:.2f} times only: times may not be cold")
    return found


def _list(names: Any) -> str:
    return ", ".join(sorted(names))


def _context(args: argparse.Namespace) -> Context:
    device: dict[str, Any] = environment.cpu_device()
    model = None
    if args.device != "cpu":
        found = environment.gpu_devices()
        if not found and args.device == "cuda":
            raise errors.UnusableError("torch sees no GPU here")
        if found:
            device = found[0]
            model = environment.device_model(device["name"], device["kind"])
    place = torch.device("cpu" if model is None else "cuda")
    return Context(
        place,
        device,
        model,
        only=args.backend,
        dry_run_iters=args.dry_run_iters,
        repeat_iters=args.repeat_iters,
        timer=args.timer,
        # Asked before this process is on the device itself.
        foreign=board.idle(device).foreign,
    )


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Run a HALOps configuration.")
    parser.add_argument("--config", required=True, help="<op>/<name>.yaml of configs/, or a path")
    parser.add_argument("--backend", help="run this backend alone")
    parser.add_argument("--dry-run-iters", type=int, help="warm-up calls (default: until steady)")
    parser.add_argument("--repeat-iters", type=int, help="samples (default: what 0.3 s take)")
    parser.add_argument("--device", choices=("auto", "cuda", "cpu"), default="auto")
    parser.add_argument(
        "--timer", choices=("events", "cpu"), default="events", help="what GPU times are taken with"
    )
    parser.add_argument("--csv", type=Path, help="write the table here as CSV")
    parser.add_argument("--records", type=Path, help="append mxfleet-result/1 lines here")
    return parser.parse_args(argv)


def _exit_code(rows: Sequence[report.Row], asked: str | None) -> int:
    found = {row.status for row in rows}
    if found & {"FAILED", "ERROR"}:
        return 1
    measured = any(row.counts for row in rows)
    return 3 if "UNAVAILABLE" in found and (asked is not None or not measured) else 0


def _run(args: argparse.Namespace) -> int:
    op, cfg = load_config(args.config)
    scenario = find_scenario(op, cfg)
    ctx = _context(args)
    ctx.op, ctx.scenario = op, str(cfg["scenario"])
    _check(scenario, cfg, ctx)
    facts = environment.facts(ROOT.parent) | {"l2_coldness": _coldness(cfg, ctx)}
    code = report.definition(ROOT, op)
    if args.records is not None:
        record.append(args.records)

        def keep(row: report.Row) -> None:
            line = report.as_record(
                row, definition=code, device=ctx.device_record, environment=facts
            )
            record.append(args.records, line)

        ctx.on_row = keep
    try:
        _run_scenarios(scenario, cfg, ctx)
    finally:
        # Whatever ends a run early, what it measured is told.
        _tell(ctx, args.csv)
    return _exit_code(ctx.rows, args.backend)


def _tell(ctx: Context, csv: Path | None) -> None:
    l2_bytes = ctx.device_record.get("l2_bytes")
    print(report.table(ctx.rows, l2_bytes))
    for note in ctx.notes:
        print(f"note: {note}")
    if csv is not None:
        csv.parent.mkdir(parents=True, exist_ok=True)
        csv.write_text(report.csv_text(ctx.rows, l2_bytes), encoding="utf-8")


def main(argv: Sequence[str] | None = None) -> int:
    """Run as the command line says; returns the exit code."""
    args = _parse(argv)
    try:
        return _run(args)
    except ConfigError as error:
        print(f"error: {args.config}: {error}", file=sys.stderr)
        return 2
    except errors.HarnessError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.code


if __name__ == "__main__":
    sys.exit(main())
