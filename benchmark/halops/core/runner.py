"""The course of one case: data, reference, and each backend checked first, then timed.

A scenario calls ``run_case`` once for each point of its sweep. What a backend cannot do, or does
wrong, becomes a row of its own status; it never ends the sweep.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from harness import board, storage
from harness.errors import DeadDeviceError

from core import metrics, refcheck, timing
from core.backends import (
    Adapt,
    Config,
    Launch,
    UnavailableError,
    UnsupportedError,
    refusal,
)
from core.metrics import Work
from core.report import Row, first_backend, set_speedups


class ConfigError(ValueError):
    """The configuration is wrong; nothing is run with it."""


@dataclass(frozen=True)
class Options:
    """The fields that every scenario reads beside its shapes; scenarios fill it from ``cfg``."""

    refcheck: bool = True
    refcheck_reference: str | None = "golden"
    cold_l2_cache: bool = True
    use_cuda_graph: bool = False
    gpu_type: str | None = None


@dataclass
class Context:
    """What a run of the suite is: its device, how long to measure, and the rows so far.

    ``device_record`` is the record's ``device``, ``device_model`` its model (None on a CPU).
    ``only``: the backend that ``--backend`` asks for. ``checking``: nothing is run, configurations
    are only refused. ``timer``: what GPU times are taken with, ``events`` or ``cpu``. ``foreign``:
    processes of others on the device (``board.idle``). ``on_row`` takes each row once decided.
    """

    device: torch.device
    device_record: dict[str, Any]
    device_model: str | None = None
    only: str | None = None
    dry_run_iters: int | None = None
    repeat_iters: int | None = None
    timer: str = "events"
    foreign: list[dict[str, Any]] | None = None
    checking: bool = False
    op: str = ""
    scenario: str = ""
    rows: list[Row] = field(default_factory=list)
    on_row: Callable[[Row], None] = lambda row: None
    notes: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        """Remember ``text`` for the report, once."""
        if text not in self.notes:
            self.notes.append(text)


def run_case(
    ctx: Context,
    cfg: Config,
    params: Mapping[str, Any],
    backends: Mapping[str, Adapt],
    build: Callable[[], Any],
    work: Callable[[Any], Work],
    options: Options,
    *,
    names: Sequence[str] | None = None,
    base: Callable[[Sequence[Row]], Row | None] = first_backend,
    limit: float | None = None,
) -> list[Row]:
    """Run one point of a sweep and return its rows, a backend each, in the order of ``names``.

    ``params`` say which point it is (plain values; they and the backend's name are the case's
    parameters). ``backends`` is the scenario's registry, ``names`` those to run (default: as
    ``cfg["backends"]`` has them). ``build`` makes the inputs, ``work`` counts what they ask for.
    ``base`` chooses the row that speed-ups are against, ``limit`` replaces the usual one of
    ``refcheck.LIMITS``. Raises ``ConfigError`` for a backend that the scenario does not have or
    that refuses the configuration.
    """
    wanted = list(names if names is not None else cfg["backends"])
    if ctx.only is not None:
        wanted = [ctx.only]
    _check_names(ctx, cfg, wanted, backends, options)
    spec, note = metrics.gpu_spec(options.gpu_type, ctx.device_model)
    if note is not None:
        ctx.note(note)
    if ctx.checking:
        return []
    case = _Case(ctx, cfg, dict(params), backends, options, spec, limit)
    try:
        case.make(build, work)
    except Exception as error:  # out of memory, an assert of the shapes: told, and on  # noqa: BLE001
        failed = f"inputs: {_told(error)}"
        rows = [case.row(name, "ERROR", failed) for name in wanted]
    else:
        rows = [case.run(name) for name in wanted]
    set_speedups(rows, base(rows))
    ctx.rows.extend(rows)
    for row in rows:
        ctx.on_row(row)
    return rows


def _check_names(
    ctx: Context,
    cfg: Config,
    wanted: Sequence[str],
    backends: Mapping[str, Adapt],
    options: Options,
) -> None:
    known = ", ".join(backends)
    reference = options.refcheck_reference
    if not wanted:
        raise ConfigError(f"{ctx.scenario}: backends is empty; use {known}")
    for name in wanted:
        if name not in backends:
            raise ConfigError(f"{ctx.scenario} has no backend {name!r}; use {known}")
        reason = refusal(backends[name], cfg)
        if reason is not None:
            raise ConfigError(f"{ctx.scenario}: {reason}")
    if options.refcheck and reference is not None and reference not in backends:
        raise ConfigError(f"{ctx.scenario}: refcheck_reference {reference!r} is none of {known}")


@dataclass
class _Case:
    """One point of a sweep: its inputs, its work, and the reference's output."""

    ctx: Context
    cfg: Config
    params: dict[str, Any]
    backends: Mapping[str, Adapt]
    options: Options
    spec: str | None
    limit: float | None
    inputs: Any = None
    work: Work | None = None
    reference: torch.Tensor | None = None
    no_reference: str = "refcheck is off"

    def make(self, build: Callable[[], Any], work: Callable[[Any], Work]) -> None:
        self.inputs = build()
        self.work = work(self.inputs)
        name = self.options.refcheck_reference
        if not self.options.refcheck or name is None:
            return
        try:
            self.reference = self.backends[name](self.inputs, self.cfg)().clone()
            _synchronize(self.ctx.device)
        except Exception as error:  # without it outputs are unverified, not wrong  # noqa: BLE001
            self.no_reference = f"the reference {name} failed: {_told(error)}"

    def run(self, name: str) -> Row:
        """Check, then time the backend ``name``; whatever happens is a row."""
        began = time.time()
        try:
            row = self._run(name)
        except UnavailableError as error:
            row = self.row(name, "UNAVAILABLE", str(error))
        except UnsupportedError as error:
            row = self.row(name, "UNAVAILABLE", f"not for this case: {error}")
        except Exception as error:  # whatever a backend raises is an outcome  # noqa: BLE001
            row = self.row(name, "ERROR", _told(error))
            _still_answers(self.ctx.device, row)
        row.started, row.duration = began, time.time() - began
        gc.collect()
        return row

    def _run(self, name: str) -> Row:
        ctx, options = self.ctx, self.options
        launch = self.backends[name](self.inputs, self.cfg)
        verdict = self._verify(name, launch)
        if verdict.passed is False:
            return self.row(name, "FAILED", verdict.reason, verdict=verdict)
        on_gpu = ctx.device.type == "cuda"
        if options.use_cuda_graph and not on_gpu:
            ctx.note("use_cuda_graph: there are no CUDA graphs on a CPU")
        if options.use_cuda_graph and on_gpu:
            launch = timing.Graph(launch)
        before = board.snapshot(ctx.device_record)
        timed = timing.measure(
            launch,
            ctx.device,
            cold=options.cold_l2_cache,
            timer=ctx.timer,
            warmup=ctx.dry_run_iters,
            repeats=ctx.repeat_iters,
        )
        after = board.snapshot(ctx.device_record)
        if isinstance(launch, timing.Graph):
            verdict = refcheck.worse(verdict, self._recheck(name, launch))
        status = {True: "PASSED", False: "FAILED", None: "UNVERIFIED"}[verdict.passed]
        row = self.row(name, status, verdict.reason, verdict=verdict)
        row.timing, row.board = timed, {"before": before, "after": after, "foreign": [ctx.foreign]}
        # A time that is not to be believed is not shown, and gives no rate.
        if status != "FAILED":
            row.roofline = metrics.roofline(self.spec, row.work, timed.median) if row.work else None
        return row

    def _verify(self, name: str, launch: Launch) -> refcheck.Verdict:
        out, poisoned = refcheck.fresh_output(launch)
        _synchronize(self.ctx.device)
        return self._judge(name, out, poisoned)

    def _recheck(self, name: str, graph: timing.Graph) -> refcheck.Verdict:
        """What a replay writes over poison: the graph could have captured something else."""
        storage.poison(graph.output)
        out = graph()
        _synchronize(self.ctx.device)
        return self._judge(name, out, True)

    def _judge(self, name: str, out: torch.Tensor, poisoned: bool) -> refcheck.Verdict:
        if self.reference is None:
            return refcheck.unverified(self.no_reference)
        if name == self.options.refcheck_reference:
            return refcheck.unverified("it is the reference itself")
        assert self.work is not None
        return refcheck.check(
            out, self.reference, self.work.compute, poisoned=poisoned, limit=self.limit
        )

    def row(
        self, name: str, status: str, reason: str | None, verdict: refcheck.Verdict | None = None
    ) -> Row:
        """A row of this case for the backend ``name``."""
        return Row(
            op=self.ctx.op,
            scenario=self.ctx.scenario,
            params=self.params,
            backend=name,
            status=status,
            reason=reason,
            work=self.work,
            verdict=verdict,
        )


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:500]


def _still_answers(device: torch.device, row: Row) -> None:
    """Raise ``DeadDeviceError`` where an error has left the device unfit for another case."""
    if device.type != "cuda":
        return
    try:
        torch.cuda.synchronize(device)
        torch.cuda.empty_cache()
    except RuntimeError as error:
        raise DeadDeviceError(
            f"after {row.backend} ({row.reason}) the GPU answers nothing in this process: "
            f"{_told(error)}; run the other backends without it"
        ) from None


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
