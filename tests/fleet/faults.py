"""Everything that can end a job early, each injected for real, and what came of it.

``FAULTS`` is the list; ``observe`` carries one of them out on a host that may be broken. The tests
assert what was seen, ``bench/faults.py`` makes a table of it.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .conftest import LoopbackFleet
from .scene import HOST, NAME, OP, SIZES, Scene, remains, run, scene
from .workbench import Result, wait_until

DEAD_LINK = 15.0  # seconds: the default of `timeouts.dead_link`
GONE = 10.0  # seconds after detection that a job's processes may last
LIMIT = 120.0  # seconds for everything to settle
JOB_LIMIT, SILENCE = 4.0, 3.0
# The clock of the day as a shared library has it that is loaded before the C library.
CLOCK = """
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
enum { AHEAD = 365 * 86400 };
int clock_gettime(clockid_t clock, struct timespec *now) {
    int wrong = syscall(SYS_clock_gettime, clock, now);
    if (!wrong && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += AHEAD;
    return wrong;
}
int gettimeofday(struct timeval *now, void *zone) {
    int wrong = syscall(SYS_gettimeofday, now, zone);
    if (!wrong) now->tv_sec += AHEAD;
    return wrong;
}
time_t time(time_t *now) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    if (now) *now = t.tv_sec;
    return t.tv_sec;
}
"""
FREEZER = Path("/sys/fs/cgroup/freezer")

Inject = Callable[[Scene], float | None]
Act = Callable[[Scene], None]


def nothing(_: Scene) -> None:
    """Nothing to do."""


@dataclass(frozen=True)
class Fault:
    """One way to be hit, and what has to come of it.

    ``inject`` returns when the fault became visible, None for now. ``told``: the controller has to
    notice it, else it is known at once. ``goes_on``: the job, or its next attempt, is to end well;
    it is let go once the first attempt is dead, or ``pause`` seconds have passed. ``heal`` repairs
    what was broken, then ``recover`` brings what is missing. ``code`` and ``statuses`` of the
    records are what mxfleet has to say; ``says`` has to be in its words.
    """

    name: str
    what: str
    inject: Inject
    code: int
    statuses: frozenset[str] = frozenset()
    says: str = ""
    flags: tuple[str, ...] = ()
    timeouts: Mapping[str, Any] = field(default_factory=dict)
    far: bool = False
    told: bool = False
    goes_on: bool = False
    pause: float | None = None
    before: Act = nothing
    heal: Act = nothing
    recover: tuple[str, ...] = ()
    unfit: Callable[[], str | None] = lambda: None  # why it cannot be injected here
    frozen: bool = False  # its processes cannot be killed until it is healed


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


# --- what is done ---------------------------------------------------------------------------------


def over_time(stage: Scene) -> float:
    """It just goes on; visible once its time is over."""
    at = next(at for at, line in stage.running.lines if '"event": "job_started"' in line)
    return at + JOB_LIMIT


def hang(stage: Scene) -> float:
    """Every process of the job stops: it says nothing any more."""
    for one in remains(stage.processes):
        os.kill(one.pid, signal.SIGSTOP)
    return time.monotonic() + SILENCE


def signals(*numbers: int, group: bool = True, pause: float = 0.7) -> Inject:
    """Signals for mxfleet, as a terminal sends them (to the group) or to the process alone."""

    def inject(stage: Scene) -> None:
        for count, number in enumerate(numbers):
            if count:
                time.sleep(pause)
            with suppress(ProcessLookupError):
                if group:
                    stage.running.signal_group(number)
                else:
                    stage.running.process.send_signal(number)

    return inject


def _sessions(stage: Scene) -> list[int]:
    """The processes of sshd that serve the connections, without what they started."""
    assert stage.sshd is not None
    found = []
    for pid in stage.sshd.sessions():
        with suppress(OSError):
            if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"sshd"):
                found.append(pid)
    return found


def cut_link(stage: Scene) -> None:
    """The connection breaks; a new one works at once."""
    for pid in _sessions(stage):
        os.kill(pid, signal.SIGKILL)


def _listener(stage: Scene) -> int:
    assert stage.sshd is not None
    return stage.sshd.listener


def cut_for_good(stage: Scene) -> None:
    """The connection breaks, and nobody listens any more."""
    sessions = _sessions(stage)  # found as the listener's children
    os.kill(_listener(stage), signal.SIGKILL)
    for pid in sessions:
        os.kill(pid, signal.SIGKILL)


def start_sshd(stage: Scene) -> None:
    """sshd is back on its port."""
    assert stage.sshd is not None
    stage.sshd.start()


def restart_sshd(stage: Scene) -> None:
    """As its unit file does: the listener ends and comes back, sessions go on."""
    os.kill(_listener(stage), signal.SIGTERM)
    time.sleep(1.0)
    start_sshd(stage)


def stop_sshd(stage: Scene) -> None:
    """sshd hangs, listener and sessions."""
    for pid in [_listener(stage), *_sessions(stage)]:
        os.kill(pid, signal.SIGSTOP)


def continue_sshd(stage: Scene) -> None:
    """And goes on."""
    for pid in [_listener(stage), *_sessions(stage)]:
        os.kill(pid, signal.SIGCONT)


def black_hole(stage: Scene) -> None:
    """No packet passes in either direction, and nobody is told."""
    stage.drop()


def short_hole(stage: Scene) -> None:
    """The same for 8 seconds."""
    stage.drop()
    time.sleep(8.0)
    stage.pass_on()


def lossy(stage: Scene) -> None:
    """5 % of all packets are lost in each direction."""
    stage.drop("-m", "statistic", "--mode", "random", "--probability", "0.05")


def heal_wire(stage: Scene) -> None:
    """All packets pass again."""
    stage.pass_on()


def docker(*words: str) -> Inject:
    """A docker command on the container."""

    def inject(stage: Scene) -> None:
        stage.fleet.docker(HOST, *words, stage.fleet.container)

    return inject


def start_container(stage: Scene) -> None:
    """The container runs again, with its files."""
    stage.fleet.docker(HOST, "start", stage.fleet.container)


def stop_engine(stage: Scene) -> None:
    """Docker ends orderly, with its containers."""
    stage.fleet.stop(HOST, "engine")


def kill_engine(stage: Scene) -> None:
    """dockerd dies; its containers go on without it."""
    known = json.loads((stage.fleet.state / "hosts" / HOST / "processes.json").read_text())
    os.kill(known["dockerd"]["pid"], signal.SIGKILL)


def repair(stage: Scene) -> None:
    """The engine is started again, and the container with its files."""
    stage.fleet.repair()


def kill(*victims: str) -> Inject:
    """SIGKILL at once; ``victims``: agent, guardian, host_agent, host_guardian, mxfleet."""

    def inject(stage: Scene) -> None:
        named = {"agent": stage.inside[0].pid, "guardian": stage.inside[1].pid}
        named |= {"host_agent": stage.outside[0].pid, "host_guardian": stage.outside[1].pid}
        named["mxfleet"] = stage.running.process.pid
        for victim in victims:  # none of them may see another one's end and act
            os.kill(named[victim], signal.SIGSTOP)
        for victim in victims:
            os.kill(named[victim], signal.SIGKILL)

    return inject


def finish(stage: Scene) -> None:
    """The command ends well and leaves its children behind."""
    stage.let_end()


def sleep(seconds: float) -> Inject:
    """The controller's machine sleeps, and its end of the link with it."""

    def inject(stage: Scene) -> float:
        assert stage.controller is not None
        os.kill(stage.controller, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(stage.controller, signal.SIGCONT)
        return time.monotonic()

    return inject


def _freezer(stage: Scene) -> Path:
    return FREEZER / f"mxfault-{stage.nap}"


def freeze(stage: Scene) -> float:
    """All processes of the job are put into state D by the kernel's freezer."""
    folder = _freezer(stage)
    folder.mkdir()
    for one in remains(stage.processes):
        (folder / "cgroup.procs").write_text(str(one.pid))
    (folder / "freezer.state").write_text("FROZEN")
    assert wait_until(lambda: (folder / "freezer.state").read_text() == "FROZEN\n", 5)
    return over_time(stage)


def thaw(stage: Scene) -> None:
    """The frozen ones can die."""
    folder = _freezer(stage)
    (folder / "freezer.state").write_text("THAWED")
    wait_until(lambda: not (folder / "cgroup.procs").read_text().split(), 10)
    folder.rmdir()


def no_freezer() -> str | None:
    """Why nothing can be frozen here."""
    return None if (FREEZER / "tasks").exists() else "no cgroup v1 freezer"


def no_compiler() -> str | None:
    """Why no clock can be skewed here: that needs a library of one's own."""
    return None if shutil.which("cc") else "no C compiler"


def skew_clock(stage: Scene) -> None:
    """Logins get a library that puts the clock of the day ahead; nobody else's is touched."""
    source, library = stage.folder / "clock.c", stage.folder / "clock.so"
    source.write_text(CLOCK)
    run(["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source)])
    stage.log_in_with(LD_PRELOAD=str(library))


@dataclass(frozen=True)
class Disk:
    """A small disk that fills up in the middle of a job. ``folder`` of the working folder, or
    the store in the container."""

    folder: str | None

    def _path(self, stage: Scene) -> str:
        return stage.bench.store if self.folder is None else str(stage.bench.folder / self.folder)

    def before(self, stage: Scene) -> None:
        """Mount it."""
        stage.small_disk(self._path(stage), inside=self.folder is None)

    def fill(self, stage: Scene) -> None:
        """No byte is left."""
        stage.fill(self._path(stage), inside=self.folder is None)

    def empty(self, stage: Scene) -> None:
        """Room again."""
        stage.empty(self._path(stage), inside=self.folder is None)


STORE, RUNS, STATISTICS = Disk(None), Disk("runs"), Disk("benchmark/statistics")
PASSED, TIMEOUT = frozenset({"PASSED"}), frozenset({"PASSED", "TIMEOUT"})
NOT_RUN, ERROR = frozenset({"PASSED", "NOT_RUN"}), frozenset({"PASSED", "ERROR"})
PULL = ("pull",)

FAULTS = (
    Fault("job timeout", "its limit passes", over_time, 4, TIMEOUT, timeouts={"job": JOB_LIMIT}),
    Fault("silence", "SIGSTOP of the whole job", hang, 4, TIMEOUT, timeouts={"silence": SILENCE}),
    Fault("Ctrl-C", "SIGINT, to the group", signals(signal.SIGINT), 130, NOT_RUN),
    Fault(
        "Ctrl-C twice",
        "SIGINT, and again after 0.7 s",
        signals(signal.SIGINT, signal.SIGINT),
        130,
        recover=PULL,
    ),
    Fault("SIGTERM", "of mxfleet", signals(signal.SIGTERM, group=False), 130, NOT_RUN),
    Fault("kill -9 of mxfleet", "SIGKILL", signals(signal.SIGKILL, group=False), -9, recover=PULL),
    Fault(
        "children stay",
        "the command ends; setsid, double fork, empty environment",
        finish,
        0,
        PASSED,
    ),
    Fault("link cut", "SIGKILL of its sshd", cut_link, 0, PASSED, told=True, goes_on=True, pause=6),
    Fault(
        "link cut for good",
        "the same, and nobody listens",
        cut_for_good,
        3,
        told=True,
        heal=start_sshd,
        recover=PULL,
    ),
    Fault(
        "black hole",
        "all packets dropped",
        black_hole,
        3,
        far=True,
        told=True,
        heal=heal_wire,
        recover=PULL,
    ),
    Fault(
        "black hole, 8 s",
        "all packets dropped",
        short_hole,
        0,
        PASSED,
        far=True,
        goes_on=True,
        pause=16,
    ),
    Fault(
        "bad wire",
        "100 ms round trip, 5 % loss",
        lossy,
        0,
        PASSED,
        far=True,
        goes_on=True,
        pause=20,
    ),
    Fault(
        "sshd hangs",
        "SIGSTOP of listener and sessions",
        stop_sshd,
        3,
        told=True,
        heal=continue_sshd,
        recover=PULL,
    ),
    Fault(
        "sshd restart",
        "SIGTERM of the listener, start",
        restart_sshd,
        0,
        PASSED,
        goes_on=True,
        pause=5,
    ),
    Fault(
        "engine restart",
        "dockerd ends, and starts again",
        stop_engine,
        3,
        says="UNUSABLE",
        told=True,
        heal=repair,
        recover=PULL,
    ),
    Fault(
        "engine crash",
        "SIGKILL of dockerd, its containers go on",
        kill_engine,
        3,
        says="UNUSABLE",
        told=True,
        heal=repair,
        recover=PULL,
    ),
    Fault(
        "container stop",
        "docker stop",
        docker("stop", "-t", "2"),
        3,
        says="UNUSABLE",
        told=True,
        heal=start_container,
        recover=PULL,
    ),
    Fault(
        "container kill",
        "docker kill",
        docker("kill"),
        3,
        says="UNUSABLE",
        told=True,
        heal=start_container,
        recover=PULL,
    ),
    Fault("agent killed", "SIGKILL", kill("agent"), 0, PASSED, told=True, goes_on=True),
    Fault(
        "agent and guardian killed",
        "SIGKILL of both",
        kill("guardian", "agent"),
        0,
        PASSED,
        told=True,
        goes_on=True,
    ),
    Fault(
        "lock's agent killed",
        "SIGKILL of it and its guardian on the host",
        kill("host_guardian", "host_agent"),
        0,
        PASSED,
        goes_on=True,
        pause=5,
    ),
    Fault(
        "mxfleet, agent, guardian killed",
        "SIGKILL of all three",
        kill("mxfleet", "guardian", "agent"),
        -9,
        recover=PULL,
    ),
    Fault(
        "frozen job",
        "state D by the cgroup freezer, over its limit",
        freeze,
        4,
        TIMEOUT,
        says="UNKILLABLE",
        timeouts={"job": JOB_LIMIT},
        frozen=True,
        heal=thaw,
        unfit=no_freezer,
    ),
    Fault(
        "store full",
        "on the target",
        STORE.fill,
        0,
        PASSED,
        before=STORE.before,
        heal=STORE.empty,
        goes_on=True,
        pause=3,
    ),
    Fault(
        "run's folder full",
        "here",
        RUNS.fill,
        2,
        before=RUNS.before,
        heal=RUNS.empty,
        recover=PULL,
        goes_on=True,
        pause=3,
    ),
    Fault(
        "statistics full",
        "here",
        STATISTICS.fill,
        2,
        before=STATISTICS.before,
        heal=STATISTICS.empty,
        recover=PULL,
        goes_on=True,
        pause=3,
    ),
    Fault(
        "host's clock",
        "a year ahead for all that logs in there",
        nothing,
        0,
        PASSED,
        goes_on=True,
        pause=4,
        unfit=no_compiler,
        before=skew_clock,
    ),
)


def asleep(seconds: float, **timeouts: float) -> Fault:
    """A laptop that sleeps while its run goes on in the background: no line is missed."""
    return Fault(
        f"mxfleet asleep, {seconds:g} s",
        "SIGSTOP of a run with --detach, SIGCONT",
        sleep(seconds),
        0,
        PASSED,
        flags=("--detach",),
        timeouts=timeouts,
        goes_on=True,
        pause=10,
    )


@contextmanager
def intact(fleet: LoopbackFleet) -> Iterator[None]:
    """Whatever a fault has broken of the fleet is repaired."""
    try:
        yield
    finally:
        fleet.repair()
