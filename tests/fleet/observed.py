"""Inject a fault, wait until all has settled, and see what came of it."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from .conftest import LoopbackFleet
from .faults import Fault
from .scene import NAME, OP, SIZES, Scene, scene
from .workbench import Result, wait_until

DEAD_LINK = 15.0  # seconds: the default of `timeouts.dead_link`
GONE = 10.0  # seconds after detection that a job's processes may last
LIMIT = 120.0  # seconds for everything to settle


@dataclass(frozen=True)
class Seen:
    """What came of it, in seconds.

    ``gone`` counts from the detection, None where the job goes on. ``free`` does as well; where the
    run goes on it counts from its end.
    """

    outcome: str
    code: int
    statuses: frozenset[str]
    detected: float
    gone: float | None
    free: float
    left: tuple[str, ...]
    missed_lines: int
    lost_rows: int
    usable: bool  # the host takes the next job
    said: str


def observe(fault: Fault, fleet: LoopbackFleet) -> Seen:
    """Begin a run, inject the fault, wait until all has settled, look at what is left."""
    with scene(fleet) as stage:
        fault.before(stage)
        stage.lay(far=fault.far, timeouts=fault.timeouts)
        stage.begin("run", "--op", OP, *fault.flags)
        began = time.monotonic()
        visible = fault.inject(stage)
        return _watched(fault, stage, began if visible is None else visible)


def _watched(fault: Fault, stage: Scene, began: float) -> Seen:
    dead = free = ended = None
    deadline = time.monotonic() + LIMIT
    healed = False
    while time.monotonic() < deadline:
        now = time.monotonic()
        over = stage.running.process.poll() is not None
        ended = (ended or now) if over else None
        if dead is None and now >= began and stage.dead():
            dead = now
        free = (free or now) if now >= began and stage.free() else None
        if fault.goes_on and (dead or now - began > (fault.pause or LIMIT)):
            stage.let_end()
        if over and fault.frozen and not healed:
            healed, began = True, now  # what cannot be killed now has to go when it can be
            fault.heal(stage)
        if over and dead and free:
            break
        time.sleep(0.1)
    told = stage.told(began) if fault.told else began
    result = stage.running.result(1)
    detected = began if told is None else told
    if not fault.frozen:
        fault.heal(stage)
    if fault.recover:
        stage.bench.mxfleet(*fault.recover, code=None)
    wait_until(lambda: not stage.left(), 45)
    left = tuple(stage.left())
    outcome, statuses = _outcome(stage, result)
    steps = stage.steps()
    again = stage.bench.mxfleet("run", "--op", "probe_digest", code=None)
    never = time.monotonic() + LIMIT  # worse than any promise
    freed_from = max(detected, ended or never) if fault.goes_on else detected
    return Seen(
        outcome=outcome,
        code=result.code,
        statuses=statuses,
        detected=detected - began,
        gone=None if fault.pause is not None else max(0.0, (dead or never) - detected),
        free=max(0.0, (free or never) - freed_from),
        left=left,
        missed_lines=len(set(range(max(steps, default=0) + 1)) - set(steps)),
        lost_rows=len(set(SIZES) - stage.rows()),
        usable=again.code == 0,
        said=result.stdout + result.stderr + ("" if again.code == 0 else str(again)),
    )


def broken(fault: Fault, found: Seen, times: float = 1.0) -> list[str]:
    """The promises that were not kept; ``times`` as long is allowed for everything."""
    wrong = []
    if found.code != fault.code:
        wrong.append(f"exit code {found.code}, not {fault.code}")
    if fault.statuses and found.statuses != fault.statuses:
        wrong.append(f"told as {sorted(found.statuses)}, not {sorted(fault.statuses)}")
    if fault.says not in found.said:
        wrong.append(f"{fault.says!r} was not said")
    if found.detected > times * (DEAD_LINK + 1.0):
        wrong.append(f"detected after {found.detected:.1f} s")
    if (found.gone or 0.0) > times * GONE:
        wrong.append(f"gone {found.gone:.1f} s after its detection")
    if found.free > times * GONE:
        wrong.append(f"the lock was free only after {found.free:.1f} s")
    if found.left:
        wrong.append(f"left: {', '.join(found.left)}")
    if found.lost_rows:
        wrong.append(f"{found.lost_rows} of {len(SIZES)} rows lost")
    if found.missed_lines:
        wrong.append(f"{found.missed_lines} lines missed")
    if not found.usable:
        wrong.append("the host does not take the next job")
    return wrong


def _outcome(stage: Scene, result: Result) -> tuple[str, frozenset[str]]:
    """How mxfleet named it, for people, and the statuses of its rows."""
    summary = next((e for e in result.events() if e["event"] == "summary"), None)
    if summary is None:
        if result.code < 0:
            return f"{signal.Signals(-result.code).name} of mxfleet", frozenset()
        return f"exit {result.code} without a summary", frozenset()
    words = [f"{count} {status}" for status, count in summary["counts"].items()]
    target = summary["targets"].get(NAME, "OK")
    words += [] if target == "OK" else [target]
    return f"{', '.join(words)}; exit {result.code}", frozenset(summary["counts"])


@contextmanager
def intact(fleet: LoopbackFleet) -> Iterator[None]:
    """Whatever a fault has broken of the fleet is repaired."""
    try:
        yield
    finally:
        fleet.repair()
