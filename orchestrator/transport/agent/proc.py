"""The process tree of a job: nothing that it starts may outlive it.

A job's first process leads its own session, the agent is the subreaper of all that it starts, and
every process inherits a cookie in its environment. Processes are found by session, by descent and
by cookie, so that one that daemonises, re-parents or starts its own session is found as well.
"""

import ctypes
import os
import signal
import subprocess
import threading
import time
from typing import Any, Dict, List, NamedTuple, Optional, Set

COOKIE = "MXFLEET_JOB_COOKIE"
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


try:
    # Looked up once: after a fork only calls that take no locks are safe.
    _LIBC_PRCTL = ctypes.CDLL(None, use_errno=True).prctl  # type: Any
except (OSError, AttributeError):
    _LIBC_PRCTL = None  # not Linux: the cookie and the session still hold


def _prctl(option: int, value: int) -> None:
    if _LIBC_PRCTL is not None:
        _LIBC_PRCTL(option, value, 0, 0, 0)


def become_subreaper() -> None:
    """Make orphans of our jobs our children instead of init's."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent() -> None:
    """In a new child: be killed when the agent is. Undone by nobody but a set-user-id program."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class Process(NamedTuple):
    """A line of /proc: state is R, S, D, Z, ... ``start`` makes the pid unique."""

    pid: int
    parent: int
    session: int
    state: str
    start: int


def processes() -> Dict[int, Process]:
    """All processes that we can see."""
    found = {}
    try:
        names = os.listdir("/proc")
    except OSError:
        return found
    for name in names:
        if not name.isdigit():
            continue
        try:
            with open("/proc/%s/stat" % name, "rb") as stream:
                # The command name is in parentheses and may hold anything, also parentheses.
                fields = stream.read().rpartition(b")")[2].split()
        except OSError:
            continue
        if len(fields) > 19:
            pid = int(name)
            found[pid] = Process(
                pid, int(fields[1]), int(fields[3]), fields[0].decode("ascii"), int(fields[19])
            )
    return found


def _has_cookie(pid: int, needle: bytes) -> bool:
    try:
        with open("/proc/%d/environ" % pid, "rb") as stream:
            return needle in b"\0" + stream.read() + b"\0"
    except OSError:
        return False


def members(cookie: str, session: Optional[int]) -> List[Process]:
    """The processes of a job that are not gone: by cookie, by session, and all their descendants.

    Zombies count: they hold their pid until someone reaps them.
    """
    everything = processes()
    me = os.getpid()
    needle = ("\0%s=%s\0" % (COOKIE, cookie)).encode("utf-8", "surrogateescape")
    ours = {
        p.pid
        for p in everything.values()
        if p.pid != me and ((session is not None and p.session == session) or _has_cookie(p.pid, needle))
    }  # type: Set[int]
    grown = True
    while grown:
        more = {p.pid for p in everything.values() if p.parent in ours and p.pid not in ours}
        more.discard(me)
        grown = bool(more)
        ours |= more
    return [everything[pid] for pid in sorted(ours)]


# Children that ``subprocess`` waits for itself; a foreign wait would lose their exit status.
KEEP = set()  # type: Set[int]
_SPAWN = threading.Lock()


def spawn(argv: List[str], **options: Any) -> "subprocess.Popen[bytes]":
    """Start a child in its own session that ``reap`` leaves alone and that dies with the agent.

    Call it from a thread that lives as long as the child: the kernel ties the two together.
    """
    with _SPAWN:
        child = subprocess.Popen(
            argv, start_new_session=True, preexec_fn=die_with_parent, close_fds=True, **options
        )
        KEEP.add(child.pid)
    return child


def reap() -> None:
    """Collect orphans that became our children and have ended."""
    with _SPAWN:
        for child in processes().values():
            if child.parent == os.getpid() and child.state == "Z" and child.pid not in KEEP:
                try:
                    os.waitpid(child.pid, os.WNOHANG)
                except OSError:
                    pass


def _signal_all(found: List[Process], number: int) -> None:
    for process in found:
        try:
            os.kill(process.pid, number)
        except OSError:
            pass


def end_tree(cookie: str, session: Optional[int], grace: float, limit: float) -> List[Process]:
    """TERM, then KILL after ``grace`` seconds, until nothing is left or ``limit`` has passed.

    Returns what is still there: processes in uninterruptible sleep, or not ours to kill.
    """
    started = time.monotonic()
    _signal_all(_living(cookie, session), signal.SIGTERM)
    # A stopped process acts on TERM only once it is continued.
    _signal_all(_living(cookie, session), signal.SIGCONT)
    while True:
        reap()
        left = _living(cookie, session)
        if not left:
            return []
        elapsed = time.monotonic() - started
        if elapsed > limit:
            return left
        if elapsed > grace:
            _signal_all(left, signal.SIGKILL)
        time.sleep(0.02 if elapsed < 0.5 else 0.1)


def _living(cookie: str, session: Optional[int]) -> List[Process]:
    # A zombie that its owner is about to wait for is no reason to go on killing.
    return [p for p in members(cookie, session) if not (p.state == "Z" and p.pid in KEEP)]
