"""Proof that a job is dead, for somebody who did not run it.

Looked for are the cookie and the tag that all its processes carry: in /proc of the host, which
shows the processes of containers too, where we may read it; else by a command in the job's
container. A container whose first process is gone has nothing left, nor has a machine that was
booted anew.
"""

import os
import signal
import subprocess
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

from .proc import COOKIE, ask, carriers, process, processes, signal_all, tag_of

DOCKER_SECONDS = 15.0
FIRST_LOOK, LONGEST_LOOK = 0.3, 5.0  # seconds between two looks at a job that goes on
TERM_SECONDS = 2.0  # from TERM to KILL
QUIET_SECONDS = 1.5  # a job's first process may be about to be started

# In the job's container, as its root: $0 the cookie, $1 a signal, $2 the tag. Threads are looked at
# one by one, because a process whose first thread has ended shows no environment of its own.
_SEARCH = (
    'f=$(grep -lsF "$0" /proc/[0-9]*/task/[0-9]*/environ); r=$?; [ $r -le 2 ] || exit 9; '
    'f="$f $(grep -lsE "^Max file locks +$2 " /proc/[0-9]*/limits)"; '
    'for p in $f; do p=${p#/proc/}; echo "${p%%/*}"; done | sort -u | while read p; do '
    'kill -s "$1" "$p" 2>/dev/null; echo "pid $p"; done; echo searched'
)


class Left(NamedTuple):
    """A process of a job: ``start`` None for a pid that only its container knows."""

    pid: int
    start: Optional[int]
    state: str

    def as_json(self) -> Dict[str, Any]:
        return {"pid": self.pid, "start": self.start, "state": self.state}


def here() -> Dict[str, Any]:
    """What makes process ids comparable: this boot, this namespace, and who reads them."""
    with open("/proc/sys/kernel/random/boot_id") as stream:
        boot = stream.read().strip()
    return {"boot": boot, "pids": os.readlink("/proc/self/ns/pid"), "uid": os.geteuid()}


def first_process(container: str, docker: List[str]) -> Optional[List[int]]:
    """Pid and start time of a container's first process, as the host has them."""
    code, said = _docker(docker + ["inspect", "-f", "{{.State.Pid}}", container])
    if code or not said.strip().isdigit():
        return None
    there = process(int(said))
    return None if there is None else [there.pid, there.start]


def _docker(words: List[str]) -> Tuple[Optional[int], str]:
    try:
        code, said = ask(words, DOCKER_SECONDS, subprocess.DEVNULL)
    except (OSError, subprocess.SubprocessError):
        return None, ""
    return code, said.decode("utf-8", "replace")


class Suspect(object):
    """A job that may still run, as its lock's note tells.

    ``docker`` is our own docker command: a note's is never run.
    """

    def __init__(self, note: Dict[str, Any], docker: List[str]) -> None:
        self.job = str(note["job"])
        self._note = note
        self._docker = docker
        self._here = here()

    @property
    def _comparable(self) -> bool:
        return bool(self._note.get("pids") == self._here["pids"])

    def look(self, number: Optional[int] = None) -> Optional[List[Left]]:
        """What is left of the job: [] proves it dead, None is a job that we cannot look at.

        ``number`` is a signal for all that is found.
        """
        if self._note.get("boot") != self._here["boot"]:
            return []
        if self._comparable and self._ended_with_container():
            return []
        found = carriers(self.job)
        if number is not None:
            signal_all(found, number)
        left = [Left(p.pid, p.start, p.state) for p in found]
        known = {p.pid for p in left}
        left += [p for p in self._named() if p.pid not in known]
        # Root's view of /proc has all; the job's own user's has all that is the user's.
        ours = self._comparable and (
            self._here["uid"] == 0
            or (not self._note.get("container") and self._here["uid"] == self._note.get("uid"))
        )
        if ours or (left and number is None):
            return left
        # Others see that a process is there, but only its container's root may signal it.
        inside = self._look_inside(number)
        return left or inside

    def _ended_with_container(self) -> bool:
        init = _identity(self._note.get("init"))
        return init is not None and not _lives(init)

    def _named(self) -> List[Left]:
        """Processes that the note names, because they could not be killed, and that are there."""
        if not self._comparable:
            return []
        found = []
        for named in self._note.get("unkillable") or ():
            known = _identity([named.get("pid"), named.get("start")])
            there = None if known is None else process(known[0])
            if there is not None and known is not None and there.start == known[1]:
                found.append(Left(there.pid, there.start, there.state))
        return found

    def _look_inside(self, number: Optional[int]) -> Optional[List[Left]]:
        container = self._note.get("container")
        if not container or not self._docker:
            return None
        name = "0" if number is None else signal.Signals(number).name[3:]
        words = ["exec", "-u", "0", str(container), "sh", "-c", _SEARCH]
        words += ["%s=%s" % (COOKIE, self.job), name, str(tag_of(self.job))]
        _, said = _docker(self._docker + words)
        lines = said.split("\n")
        if "searched" not in lines:
            return None
        pids = [line[4:] for line in lines if line.startswith("pid ") and line[4:].isdigit()]
        return [Left(int(pid), None, "?") for pid in pids]

    def host_view(self, inside: List[Any]) -> List[Left]:
        """The host's processes for pids that the job's container gave: unkillable ones."""
        pids = {p.get("pid") for p in inside if isinstance(p, dict)}
        found = []
        for there in processes().values():
            numbers = _namespace_pids(there.pid)
            if numbers and numbers[-1] in pids and there.state in "DZTt" and self._is_in(there.pid):
                found.append(Left(there.pid, there.start, there.state))
        return found

    def _is_in(self, pid: int) -> bool:
        """Whether a process may be one of the job's container, or of the host without one."""
        init = _identity(self._note.get("init"))
        try:
            theirs = os.readlink("/proc/%d/ns/pid" % pid)
            if init is None:
                return bool(theirs == self._here["pids"])
            return theirs == os.readlink("/proc/%d/ns/pid" % init[0])
        except OSError:
            return True  # only root may look


def _namespace_pids(pid: int) -> List[int]:
    try:
        with open("/proc/%d/status" % pid) as stream:
            for line in stream:
                if line.startswith("NSpid:"):
                    return [int(word) for word in line.split()[1:]]
    except (OSError, ValueError):
        pass
    return []


def _identity(value: Any) -> Optional[Tuple[int, int]]:
    """Pid and start time as a note has them, None for anything else."""
    if isinstance(value, list) and len(value) == 2 and all(type(n) is int for n in value):
        return value[0], value[1]
    return None


def _lives(known: Tuple[int, int]) -> bool:
    there = process(known[0])
    return there is not None and there.start == known[1]


def any_lives(identities: Any) -> bool:
    """Whether one of these processes (pid and start time) is there."""
    known = [_identity(value) for value in identities or ()]
    return any(one is not None and _lives(one) for one in known)


def prove(
    suspect: Suspect,
    patience: Callable[[], float],
    limit: float,
    go_on: Callable[[], bool] = lambda: True,
) -> Optional[List[Left]]:
    """Wait until the job is dead; after ``patience`` seconds end it, for ``limit`` seconds.

    ``patience`` is asked again and again. Returns what is left, [] for a dead job; None when that
    could not be told, or when ``go_on`` has become false. The job is watched for a moment before
    it is believed dead without our doing.
    """
    began = time.monotonic()
    quiet: Optional[float] = None
    killing: Optional[float] = None
    pause = FIRST_LOOK
    while go_on():
        now = time.monotonic()
        if killing is None and now - began >= patience():
            killing, pause = now, FIRST_LOOK
        number = None
        if killing is not None:
            number = signal.SIGTERM if now - killing < TERM_SECONDS else signal.SIGKILL
        left = suspect.look(number)
        if left != []:
            quiet = None
        elif killing is not None or quiet is not None and now - quiet >= QUIET_SECONDS:
            return []
        elif quiet is None:
            quiet, pause = now, FIRST_LOOK
        if killing is not None and now - killing > limit:
            return left
        while go_on() and time.monotonic() - now < pause:
            if killing is None and time.monotonic() - began >= patience():
                break
            time.sleep(0.1)
        if killing is None:
            pause = min(pause * 1.5, LONGEST_LOOK)
    return None
