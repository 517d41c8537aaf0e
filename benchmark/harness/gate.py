"""One case in its own process: load, verify, and only then measure.

``decide`` turns everything that can happen into an outcome: a plain dict of what the record holds.
"""

from __future__ import annotations

import os
import sys
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import absence, board, loader, markers, preload, verification
from harness.cases import CaseConfig
from harness.engines import Engine, Measurement, Settings
from harness.engines.state import CaseState, Launch
from harness.errors import (
    HarnessError,
    LibraryError,
    NotRunError,
    TreeError,
    UnavailableError,
    UnusableError,
    VerificationError,
)
from harness.libraries import Libraries
from harness.providers import Declared
from harness.worker import Send

if TYPE_CHECKING:
    from harness.base import OpBenchmarkBase

WARMUP_ITERATIONS = 10


@dataclass(frozen=True)
class Task:
    """One case to decide, on ``device`` (as the record has it), by the named engine."""

    root: Path
    op: str
    source: str
    config: dict[str, Any]
    device: dict[str, Any]
    engine: str
    settings: Settings
    # Which of the case's processes this is, from 1.
    number: int = 1
    # A file that takes what this process prints; None: it prints where its parent does.
    log: str | None = None
    # Only verify: nothing is measured.
    verify_only: bool = False
    # Which operator libraries are to serve, as ``--library`` said.
    declared: Declared = field(default_factory=Declared)

    @property
    def dev_id(self) -> int:
        """Index of the device."""
        index: int = self.device["index"]
        return index


def import_ahead(engine: str) -> None:
    """Import before the fork what every case's process will need; nothing with a driver."""
    from harness import base  # noqa: F401

    if engine == "torch":
        from torch.utils import benchmark  # noqa: F401

        from harness.engines import torch_cpu  # noqa: F401
    else:
        from harness.engines import nvbench  # noqa: F401


def run(task: Task, send: Send) -> None:
    """Decide ``task`` and send ``parameters`` (once known) and ``outcome``, or ``fatal``.

    ``fatal`` stops the whole run: the tree or the machine is at fault, not the case.
    """
    if task.log is not None:
        with Path(task.log).open("ab") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
    preload.restore_threads()
    try:
        outcome = _decide(task, send)
        try:
            send({"outcome": outcome})
        except Exception as error:  # noqa: BLE001 - str() of a runner's own summary may do anything
            message = f"what the runner declared cannot be written as JSON: {error}"
            markers.fatal(task.op, f"ERROR: {message}")
            failure = {"status": "ERROR", "error": _error("ERROR", message, None)}
            send({"outcome": {"library": outcome.get("library"), **failure}})
    except (TreeError, UnusableError) as error:
        send({"fatal": {"message": str(error), "code": error.code}})


def _make_engine(task: Task) -> Engine:
    # Imported in the case's own process: nvbench must not be loaded where forks are made.
    if task.engine == "torch":
        from harness.engines.torch_cpu import TorchEngine

        return TorchEngine(task.settings)
    from harness.engines.nvbench import NvbenchEngine

    return NvbenchEngine(task.settings)


def _decide(task: Task, send: Send) -> dict[str, Any]:
    outcome: dict[str, Any] = {"status": "ERROR"}
    libraries = Libraries(task.source, task.declared, task.device, lambda: _capability(task))
    try:
        from harness.base import hook

        engine = None if task.verify_only else _make_engine(task)
        runner, config = _make_runner(task, libraries, send, outcome)
        # The first process has verified; another one may be held to what it times alone.
        late = task.number > 1 and _offers_timed(runner)
        verdict = (
            verification.Verdict() if late else verification.verify(runner, task.op, task.dev_id)
        )
        outcome.update(verification.as_record(verdict))
        if verdict.passed is False:
            markers.fatal(task.op, f"verification failed, nothing is sampled: {verdict.reason}")
            outcome["status"] = "FAILED"
            outcome["error"] = _error("VerificationFailed", verdict.reason or "", None)
            return outcome
        if engine is None:
            outcome["status"] = "UNVERIFIED" if verdict.passed is None else "PASSED"
            return outcome
        measured = engine.measure(
            task.op, task.dev_id, lambda state: drive(runner, state, task, outcome, late=late)
        )
        outcome.update(_measurement(measured, _flops(runner)))
        outcome["compute_dtype"] = str(hook(runner, "compute_dtype")).removeprefix("torch.")
        outcome["status"] = "UNVERIFIED" if verdict.passed is None and not late else "PASSED"
        for key in config.unread():
            markers.warn(f"config/{task.op}.json: the runner never reads {key!r}")
    except (TreeError, UnusableError):
        raise
    except Exception as error:  # noqa: BLE001 - whatever a runner raises is an outcome of its case
        _refuse(task, error, libraries, outcome)
    except SystemExit as error:
        early = RuntimeError(f"the runner called exit({error.code!r})")
        _refuse(task, early, libraries, outcome)
    return outcome


def _make_runner(
    task: Task, libraries: Libraries, send: Send, outcome: dict[str, Any]
) -> tuple[OpBenchmarkBase, CaseConfig]:
    libraries.load()
    outcome["library"] = libraries.describe()
    cls = loader.load_runner(task.root, task.op, libraries.absence)
    on_cpu = task.device["kind"] == "cpu"
    cls.device_type = "cpu" if on_cpu else "cuda"
    outcome["library"] = libraries.describe(cls)
    if not on_cpu:
        import torch

        torch.cuda.set_device(task.dev_id)
    config = CaseConfig(task.config)
    runner = cls(task.op, config)
    send({"parameters": config.parameters()})
    libraries.check(sys.modules[cls.__module__])
    return runner, config


def _capability(task: Task) -> tuple[int, int] | None:
    if task.device["kind"] == "cpu":
        return None
    import torch

    return torch.cuda.get_device_capability(task.dev_id)


def drive(
    runner: OpBenchmarkBase, state: CaseState, task: Task, outcome: dict[str, Any], *, late: bool
) -> None:
    """Prepare, warm up, declare and measure one case with an engine's ``state``.

    ``outcome`` takes the board's state before and after sampling (later the clocks are idle ones)
    and whether the timed buffers were verified; it has to be done here, for nvbench resets the
    device. ``late``: nothing is verified yet. Raises ``VerificationError``.
    """
    if outcome["verification"] is not None:
        state.show_verdict("Yes", str(outcome["cos_dist"]))
    stream = state.get_stream()
    launcher = runner.prepare_and_get_launcher(
        task.dev_id, runner.as_torch_stream(stream, task.dev_id)
    )
    launch = Launch(stream)
    with markers.warmup(WARMUP_ITERATIONS):
        for _ in range(WARMUP_ITERATIONS):
            launcher(launch)
        verification.synchronize(runner, task.dev_id)
    runner.define_metrics(state)
    synchronous = bool(getattr(runner, "_force_sync", False))
    before = board.snapshot(task.device)
    state.exec(launcher, batched=task.settings.batched and not synchronous, sync=synchronous)
    outcome["board"] = {"before": before, "after": board.snapshot(task.device)}
    timed = verification.verify_timed(runner, task.op, task.dev_id)
    if timed.passed is False:
        told = verification.as_record(timed)["verification"]
        before = outcome["verification"]
        outcome["verification"] = told if before is None else verification.merged([before, told])
        raise VerificationError(f"what was timed is wrong: {timed.reason}")
    if late:
        verdict = timed
        if timed.passed is None:
            verdict = verification.verify(runner, task.op, task.dev_id)
        outcome.update(verification.as_record(verdict))
        if verdict.passed is False:
            raise VerificationError(str(verdict.reason))
    elif outcome["verification"] is not None and timed.passed:
        told = verification.as_record(timed)["verification"]
        outcome["verification"] = verification.merged([outcome["verification"], told])
    if outcome["verification"] is not None:
        outcome["verification"]["timed"] = timed.passed is not None


def _offers_timed(runner: OpBenchmarkBase) -> bool:
    from harness.base import OpBenchmarkBase

    return type(runner).verify_timed is not OpBenchmarkBase.verify_timed


def _flops(runner: OpBenchmarkBase) -> int | None:
    """The operations that the runner declares; raises ``TypeError`` for no count of them."""
    from harness.base import hook

    found = hook(runner, "flops")
    if found is None:
        return None
    if isinstance(found, (bool, str, bytes)) or not 0 <= found < 2**63 or found != int(found):
        raise TypeError(f"flops returned {found!r}, which is no count of operations below 2**63")
    return int(found)


def _refuse(task: Task, error: Exception, libraries: Libraries, outcome: dict[str, Any]) -> None:
    error = _meant(error, libraries)
    if isinstance(error, UnavailableError):
        outcome["status"] = "UNAVAILABLE"
    elif isinstance(error, NotRunError):
        outcome["status"] = "NOT_RUN"
    elif isinstance(error, VerificationError):
        outcome["status"] = "FAILED"
        told = (
            outcome.get("verification")
            or verification.as_record(verification.Verdict(False))["verification"]
        )
        outcome["verification"] = {**told, "passed": False}
    trace = None
    if outcome["status"] == "ERROR" and not isinstance(error, LibraryError):
        markers.log_traceback(error)
        trace = "".join(traceback.format_exception(error))
    own = isinstance(error, HarnessError) and not isinstance(error, LibraryError)
    name = outcome["status"] if own else type(error).__name__
    markers.fatal(task.op, f"{name}: {error}")
    outcome["error"] = _error(name, str(error), trace)


def _meant(error: Exception, libraries: Libraries) -> Exception:
    """What ``error`` is about: a library that is absent, broken or one too many, else itself."""
    if isinstance(error, HarnessError):
        return error
    try:
        wrong = absence.named(error)
        absent = None if wrong is not None else libraries.absence(error)
    except LibraryError as found:
        return found
    if absent is not None:
        return UnavailableError(absent).with_traceback(error.__traceback__)
    return wrong or error


def _error(name: str, message: str, trace: str | None) -> dict[str, Any]:
    return {"type": name, "message": message, "traceback": trace}


def _measurement(measured: Measurement, flops: int | None) -> dict[str, Any]:
    state = measured.state
    return {
        "criterion": measured.criterion,
        "summaries": state.summaries,
        "timers": {
            "cold_gpu": measured.cold_gpu,
            "cpu": measured.cpu,
            "batch_gpu": measured.batch_gpu,
        },
        "elements": state.elements,
        "bytes_read": state.bytes_read,
        "bytes_written": state.bytes_written,
        "flops": flops,
        "rates": {
            "elements_per_second": measured.elements_per_second,
            "bytes_per_second": measured.bytes_per_second,
            "bandwidth_utilisation": measured.bandwidth_utilisation,
        },
    }
