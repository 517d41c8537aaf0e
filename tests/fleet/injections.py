"""What is done to a running mxfleet, its job, its link and its host: each fault for real."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from .scene import HOST, Scene, remains, run
from .workbench import wait_until

JOB_LIMIT, SILENCE = 4.0, 3.0  # seconds
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

# Returns when the fault became visible, None for now.
Inject = Callable[[Scene], float | None]


def nothing(_: Scene) -> None:
    """Nothing to do."""


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
