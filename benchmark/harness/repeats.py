"""One case measured in several processes, and what they say together.

Samples within a process are correlated: clocks, placement of the data in memory and the state of
the driver are drawn once a process. So several short processes are measured instead of one long
one; the headline is the median of their medians, and their spread says how far it can be trusted.
The first process verifies before it measures, and so do the others, unless the runner offers the
buffers that were timed: then they are held to those. One that fails decides the case.
"""

from __future__ import annotations

import codecs
import dataclasses
import operator
import statistics
import tempfile
import time
from collections.abc import Sequence
from typing import Any

from harness import gate, markers, verification, worker
from harness.cases import CaseConfig
from harness.errors import HarnessError
from harness.timing import Timer

Outcome = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Decided:
    """A case's outcome, and whether one of its processes ended as it should not."""

    parameters: dict[str, Any]
    outcome: Outcome
    broken: bool


def decide(task: gate.Task, repeats: int, limit: float) -> Decided:
    """Measure ``task`` in ``repeats`` processes, within ``limit`` seconds in all.

    A task that only verifies is for one of them.

    Raises ``HarnessError`` when a process found the tree or the machine at fault.
    """
    deadline = time.monotonic() + limit
    outcomes: list[Outcome] = []
    for number in range(1, repeats + 1):
        settings = dataclasses.replace(task.settings, batched=number == 1)
        one = dataclasses.replace(task, settings=settings, number=number)
        left = max(0.0, deadline - time.monotonic())
        ended, parameters, outcome = _one(one, left, limit, quiet=number > 1)
        if outcome["status"] not in ("PASSED", "UNVERIFIED"):
            broken = ended.how() is not None or outcome["status"] == "ERROR"
            return Decided(parameters, _stopped(outcome, outcomes, repeats), broken)
        outcomes.append(outcome)
    if task.verify_only:
        return Decided(parameters, outcomes[0], False)
    together = combine(outcomes)
    if repeats > 1 and "repeat_spread" in together:
        middle, spread = statistics.median(together["medians"]), together["repeat_spread"]
        markers.say(
            f"[REPEAT] {task.op}: median of {repeats} processes {middle:.4e} s, spread {spread:.2%}"
        )
    return Decided(parameters, together, False)


def _one(
    task: gate.Task, left: float, limit: float, *, quiet: bool
) -> tuple[worker.Ended, dict[str, Any], Outcome]:
    """Run one process; a quiet one is heard only when it does not pass."""
    with tempfile.NamedTemporaryFile(prefix="repeat-") as log:
        if quiet:
            task = dataclasses.replace(task, log=log.name)
        ended = worker.call(worker.Named("harness.gate", "run", task), limit=left)
        parameters, outcome = _hear(task, ended, limit)
        if outcome["status"] not in ("PASSED", "UNVERIFIED"):
            # Piece by piece, for it may have printed gigabytes.
            pieces = iter(lambda: log.read(1 << 20), b"")
            for text in codecs.iterdecode(pieces, "utf-8", "replace"):
                markers.say(text, end="")
            if "died" in outcome:
                # It may have died within a line.
                markers.say("")
                markers.fatal(task.op, outcome.pop("died"))
    return ended, parameters, outcome


def _hear(task: gate.Task, ended: worker.Ended, limit: float) -> tuple[dict[str, Any], Outcome]:
    """Parameters and outcome from what a process said or failed to say."""
    said: dict[str, Any] = {}
    twice = False
    for part in ended.messages:
        twice = twice or bool(said.keys() & part.keys())
        said.update(part)
    if "fatal" in said:
        error = HarnessError(said["fatal"]["message"])
        error.code = said["fatal"]["code"]
        raise error
    parameters = said.get("parameters") or CaseConfig(task.config).parameters()
    broken = ended.how() or ("the process reported twice: the runner forks" if twice else None)
    if ended.timed_out:
        status, message = "TIMEOUT", f"the case was killed after {limit:g} s"
    elif broken is None and "outcome" in said:
        return parameters, said["outcome"]
    else:
        status, message = "ERROR", broken or "the process ended without a result"
    failure = {"type": status, "message": message, "traceback": None}
    return parameters, {"status": status, "error": failure, "died": f"{status}: {message}"}


def _stopped(outcome: Outcome, before: Sequence[Outcome], repeats: int) -> Outcome:
    """The outcome that ended the case, with what earlier processes measured beside it."""
    if not before:
        return outcome
    error = outcome.get("error") or {}
    where = f"in process {len(before) + 1} of {repeats}, after {len(before)} that passed"
    outcome["error"] = {**error, "message": f"{error.get('message', '')} ({where})"}
    for key in ("library", "summaries"):
        outcome.setdefault(key, before[0].get(key))
    # Times of a case that did not pass are not its result; its processes' medians stay readable.
    outcome["medians"] = _medians(before)
    return outcome


def combine(outcomes: Sequence[Outcome]) -> Outcome:
    """One outcome of processes that all passed; batch time and columns are the first one's."""
    together = dict(outcomes[0])
    timers = [outcome["timers"] for outcome in outcomes]
    together["timers"] = {
        "cold_gpu": _timer([each["cold_gpu"] for each in timers]),
        "cpu": _timer([each["cpu"] for each in timers]),
        "batch_gpu": timers[0]["batch_gpu"],
    }
    # Rates are work over the mean time, here as in a single process.
    ours, first = (each["cold_gpu"] or each["cpu"] for each in (together["timers"], timers[0]))
    factor = first["mean"] / ours["mean"] if first and ours and ours["mean"] else 1.0
    together["rates"] = {
        name: None if rate is None else rate * factor for name, rate in outcomes[0]["rates"].items()
    }
    medians = _medians(outcomes)
    together["medians"] = medians
    if len(outcomes) > 1 and medians:
        together["repeat_spread"] = (max(medians) - min(medians)) / statistics.median(medians)
    together["repeats"] = len(outcomes)
    together["board"] = {
        "before": outcomes[0]["board"].get("before"),
        "after": outcomes[-1]["board"].get("after"),
    }
    told = [o["verification"] for o in outcomes if o["verification"] is not None]
    if outcomes[0]["verification"] is not None:
        together["verification"] = verification.merged(told)
    return together


def _medians(outcomes: Sequence[Outcome]) -> list[float]:
    """Each process's median in seconds: cold GPU time, CPU time where there is no GPU."""
    found = []
    for outcome in outcomes:
        timer = outcome["timers"]["cold_gpu"] or outcome["timers"]["cpu"] or {}
        value = timer.get("median") or timer.get("mean")
        if value:
            found.append(value)
    return found


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _timer(timers: Sequence[Timer | None]) -> Timer | None:
    """Timers of several processes as one.

    The median, quartiles and noise are the medians over the processes, the mean is over all
    samples, minimum and maximum are the extremes.
    """
    known = [timer for timer in timers if timer is not None]
    if len(known) < 2:
        return known[0] if known else None

    def column(name: str) -> list[Any]:
        return [timer[name] for timer in known if timer[name] is not None]  # type: ignore[literal-required]

    samples, means = column("samples"), column("mean")
    weighted = len(samples) == len(means) == len(known) and sum(samples) > 0
    mean = sum(map(operator.mul, samples, means)) / sum(samples) if weighted else _median(means)
    return Timer(
        mean=mean,
        median=_median(column("median")),
        min=min(column("min"), default=None),
        max=max(column("max"), default=None),
        q25=_median(column("q25")),
        q75=_median(column("q75")),
        noise=_median(column("noise")),
        samples=sum(samples) if samples else None,
    )
