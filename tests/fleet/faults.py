"""Everything that can end a job early, with what mxfleet has to make of it.

The injections are in ``injections``; ``observed`` carries a fault out. The tests assert what is
seen, ``bench/faults.py`` makes a table of it.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from . import injections as do
from .injections import JOB_LIMIT, RUNS, SILENCE, STATISTICS, STORE, Inject, nothing
from .scene import Scene

Act = Callable[[Scene], None]


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


PASSED, TIMEOUT = frozenset({"PASSED"}), frozenset({"PASSED", "TIMEOUT"})
NOT_RUN = frozenset({"PASSED", "NOT_RUN"})
PULL = ("pull",)

FAULTS = (
    Fault("job timeout", "its limit passes", do.over_time, 4, TIMEOUT, timeouts={"job": JOB_LIMIT}),
    Fault(
        "silence", "SIGSTOP of the whole job", do.hang, 4, TIMEOUT, timeouts={"silence": SILENCE}
    ),
    Fault("Ctrl-C", "SIGINT, to the group", do.signals(signal.SIGINT), 130, NOT_RUN),
    Fault(
        "Ctrl-C twice",
        "SIGINT, and again after 0.7 s",
        do.signals(signal.SIGINT, signal.SIGINT),
        130,
        recover=PULL,
    ),
    Fault("SIGTERM", "of mxfleet", do.signals(signal.SIGTERM, group=False), 130, NOT_RUN),
    Fault(
        "kill -9 of mxfleet", "SIGKILL", do.signals(signal.SIGKILL, group=False), -9, recover=PULL
    ),
    Fault(
        "children stay",
        "the command ends; setsid, double fork, empty environment",
        do.finish,
        0,
        PASSED,
    ),
    Fault(
        "link cut", "SIGKILL of its sshd", do.cut_link, 0, PASSED, told=True, goes_on=True, pause=6
    ),
    Fault(
        "link cut for good",
        "the same, and nobody listens",
        do.cut_for_good,
        3,
        told=True,
        heal=do.start_sshd,
        recover=PULL,
    ),
    Fault(
        "black hole",
        "all packets dropped",
        do.black_hole,
        3,
        far=True,
        told=True,
        heal=do.heal_wire,
        recover=PULL,
    ),
    Fault(
        "black hole, 8 s",
        "all packets dropped",
        do.short_hole,
        0,
        PASSED,
        far=True,
        goes_on=True,
        pause=16,
    ),
    Fault(
        "bad wire",
        "100 ms round trip, 5 % loss",
        do.lossy,
        0,
        PASSED,
        far=True,
        goes_on=True,
        pause=20,
    ),
    Fault(
        "sshd hangs",
        "SIGSTOP of listener and sessions",
        do.stop_sshd,
        3,
        told=True,
        heal=do.continue_sshd,
        recover=PULL,
    ),
    Fault(
        "sshd restart",
        "SIGTERM of the listener, start",
        do.restart_sshd,
        0,
        PASSED,
        goes_on=True,
        pause=5,
    ),
    Fault(
        "engine restart",
        "dockerd ends, and starts again",
        do.stop_engine,
        3,
        says="UNUSABLE",
        told=True,
        heal=do.repair,
        recover=PULL,
    ),
    Fault(
        "engine crash",
        "SIGKILL of dockerd, its containers go on",
        do.kill_engine,
        3,
        says="UNUSABLE",
        told=True,
        heal=do.repair,
        recover=PULL,
    ),
    Fault(
        "container stop",
        "docker stop",
        do.docker("stop", "-t", "2"),
        3,
        says="UNUSABLE",
        told=True,
        heal=do.start_container,
        recover=PULL,
    ),
    Fault(
        "container kill",
        "docker kill",
        do.docker("kill"),
        3,
        says="UNUSABLE",
        told=True,
        heal=do.start_container,
        recover=PULL,
    ),
    Fault("agent killed", "SIGKILL", do.kill("agent"), 0, PASSED, told=True, goes_on=True),
    Fault(
        "agent and guardian killed",
        "SIGKILL of both",
        do.kill("guardian", "agent"),
        0,
        PASSED,
        told=True,
        goes_on=True,
    ),
    Fault(
        "guardian killed",
        "SIGKILL",
        do.kill("guardian"),
        0,
        PASSED,
        told=True,
        goes_on=True,
        pause=6,
    ),
    Fault(
        "lock's guardian killed",
        "SIGKILL of that on the host",
        do.kill("host_guardian"),
        0,
        PASSED,
        goes_on=True,
        pause=5,
    ),
    Fault(
        "lock's agent killed",
        "SIGKILL of it and its guardian on the host",
        do.kill("host_guardian", "host_agent"),
        0,
        PASSED,
        goes_on=True,
        pause=5,
    ),
    Fault(
        "mxfleet, agent, guardian killed",
        "SIGKILL of all three",
        do.kill("mxfleet", "guardian", "agent"),
        -9,
        recover=PULL,
    ),
    Fault(
        "frozen job",
        "state D by the cgroup freezer, over its limit",
        do.freeze,
        4,
        TIMEOUT,
        says="UNKILLABLE",
        timeouts={"job": JOB_LIMIT},
        frozen=True,
        heal=do.thaw,
        unfit=do.no_freezer,
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
        unfit=do.no_compiler,
        before=do.skew_clock,
    ),
)


def asleep(seconds: float, **timeouts: float) -> Fault:
    """A laptop that sleeps while its run goes on in the background: no line is missed."""
    return Fault(
        f"mxfleet asleep, {seconds:g} s",
        "SIGSTOP of a run with --detach, SIGCONT",
        do.sleep(seconds),
        0,
        PASSED,
        flags=("--detach",),
        timeouts=timeouts,
        goes_on=True,
        pause=10,
    )
