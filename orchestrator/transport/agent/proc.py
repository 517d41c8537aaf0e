"""The process tree of a job: nothing that it starts may outlive it.

A job's first process leads its own session, the agent is the subreaper of all that it starts, and
every process inherits a cookie in its environment, and a tag. Processes are found by session, by
descent, by cookie and by tag, so that one that daemonises, re-parents, starts its own session or
throws its environment away is found as well, also by an agent that comes when the first is dead.

The tag is the job's number for RLIMIT_LOCKS. Linux has had no use for that limit since 2.4.25, but
inherits it through every fork and exec, and shows it to everybody, of zombies too.
"""

import ctypes
import errno
import os
import resource
import signal
import subprocess
import threading
import time
import zlib
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Set, Tuple

COOKIE = "MXFLEET_JOB_COOKIE"
HUNTS = 30
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_RLIMIT_LOCKS = 10  # Python has no name for it
_LIMIT_LINE = b"\nMax file locks "


try:
    # Looked up once: after a fork only calls that take no locks are safe.
    _LIBC_PRCTL: Any = ctypes.CDLL(None, use_errno=True).prctl
except (OSError, AttributeError):
    _LIBC_PRCTL = None  # not Linux: the cookie and the session still hold


def _prctl(option: int, value: int) -> None:
    if _LIBC_PRCTL is not None:
        _LIBC_PRCTL(option, value, 0, 0, 0)


def become_subreaper() -> None:
    """Make orphans of our jobs our children instead of init's."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def signal_at_parents_end(number: int) -> None:
    """Get a signal when the parent dies. Undone by nobody but a set-user-id program."""
    _prctl(_PR_SET_PDEATHSIG, number)


def tag_of(cookie: str) -> int:
    """The number that the processes of a job carry as a limit: never one that is a limit."""
    data = cookie.encode("utf-8", "surrogateescape")
    return 1 << 61 | zlib.crc32(data) << 29 ^ zlib.crc32(data[::-1])


def _begin_child(tag: int) -> None:
    """In the child, before its program: only calls that take no locks."""
    signal_at_parents_end(signal.SIGKILL)
    try:
        resource.setrlimit(_RLIMIT_LOCKS, (tag, resource.getrlimit(_RLIMIT_LOCKS)[1]))
    except (ValueError, OSError):
        pass  # an older tag that is lower is the hard limit, or this is not Linux


def _has_tag(pid: int, needle: bytes) -> bool:
    try:
        with open("/proc/%d/limits" % pid, "rb") as stream:
            found = stream.read()
    except OSError:
        return False
    start = found.find(_LIMIT_LINE)
    return start >= 0 and found[start + len(_LIMIT_LINE) :].split(None, 1)[:1] == [needle]


class Process(NamedTuple):
    """A line of /proc: state is R, S, D, Z, ... ``start`` makes the pid unique."""

    pid: int
    parent: int
    session: int
    state: str
    start: int


def process(pid: int) -> Optional[Process]:
    """One process, None when there is none of that number."""
    try:
        with open("/proc/%d/stat" % pid, "rb") as stream:
            # The command name is in parentheses and may hold anything, also parentheses.
            fields = stream.read().rpartition(b")")[2].split()
        return Process(
            pid, int(fields[1]), int(fields[3]), fields[0].decode("ascii"), int(fields[19])
        )
    except (OSError, IndexError):
        return None


def processes() -> Dict[int, Process]:
    """All processes that we can see."""
    found: Dict[int, Process] = {}
    try:
        names = os.listdir("/proc")
    except OSError:
        return found
    for name in names:
        there = process(int(name)) if name.isdigit() else None
        if there is not None:
            found[there.pid] = there
    return found


def _has_cookie(pid: int, needle: bytes) -> bool:
    found = _environment("/proc/%d/environ" % pid)
    if found == b"":
        # A first thread that has ended shows none, while others go on, or hang in a driver.
        try:
            threads = os.listdir("/proc/%d/task" % pid)
        except OSError:
            return False
        for thread in threads if len(threads) > 1 else ():
            found = found or _environment("/proc/%d/task/%s/environ" % (pid, thread))
    return found is not None and needle in b"\0" + found + b"\0"


def _environment(path: str) -> Optional[bytes]:
    """What a process started with; b"" when it has none any more, None when we may not look."""
    try:
        with open(path, "rb") as stream:
            return stream.read()
    except OSError as error:
        return b"" if error.errno == errno.ESRCH else None


# Children that ``subprocess`` waits for itself; a foreign wait would lose their exit status.
KEEP: Set[int] = set()
# Cookies of the trees that were started here and are not proven gone.
_RUNNING: Set[str] = set()
_SPAWN = threading.Lock()


def members(cookies: Tuple[str, ...], session: int) -> List[Process]:
    """The processes of a job that are not gone: by cookie, by session, and all their descendants.

    ``cookies``: the one of its first process, and others that some of them have instead. What is
    older than we are carries none, and is not asked: a host has many processes. While no other tree
    runs here, orphans that became our children are of this one, whatever they did to their
    environment. Zombies count: they hold their pid until someone reaps them.
    """
    me = os.getpid()
    with _SPAWN:  # a child that is just being started is not in KEEP yet
        everything = processes()
        alone = _RUNNING.issubset(cookies)
        ours = {
            p.pid
            for p in everything.values()
            if p.session == session or (alone and p.parent == me and p.pid not in KEEP)
        }
    us = everything.get(me)
    young = {pid: p for pid, p in everything.items() if us is None or p.start >= us.start}
    return _with_descendants(everything, ours.union(*(_carrying(young, c) for c in cookies)))


def carriers(cookie: str) -> List[Process]:
    """The processes that carry a cookie or its tag, and all their descendants: of a dead agent."""
    everything = processes()
    return _with_descendants(everything, _carrying(everything, cookie))


def _carrying(everything: Dict[int, Process], cookie: str) -> Set[int]:
    needle = ("\0%s=%s\0" % (COOKIE, cookie)).encode("utf-8", "surrogateescape")
    tag = b"%d" % tag_of(cookie)
    return {pid for pid in everything if _has_cookie(pid, needle) or _has_tag(pid, tag)}


def _with_descendants(everything: Dict[int, Process], ours: Set[int]) -> List[Process]:
    me = os.getpid()
    ours.discard(me)
    grown = True
    while grown:
        more = {p.pid for p in everything.values() if p.parent in ours and p.pid not in ours}
        more.discard(me)
        grown = bool(more)
        ours |= more
    return [everything[pid] for pid in sorted(ours)]


def spawn(argv: List[str], cookie: str, **options: Any) -> "subprocess.Popen[bytes]":
    """Start a child in its own session that ``reap`` leaves alone and that dies with the agent.

    ``env`` of the options carries the cookie. Call it from a thread that lives as long as the
    child (the kernel ties the two together), and ``release`` the child at the end.
    """
    tag = tag_of(cookie)
    with _SPAWN:
        child = subprocess.Popen(
            argv,
            start_new_session=True,
            preexec_fn=lambda: _begin_child(tag),
            close_fds=True,
            **options,
        )
        KEEP.add(child.pid)
        _RUNNING.add(cookie)
    return child


def ask(words: List[str], seconds: float, stderr: int) -> Tuple[int, bytes]:
    """Run a program of our own; its exit status and what it said.

    It is no job's orphan, and nobody else waits for it. Raises ``subprocess.TimeoutExpired``
    and ``OSError``.
    """
    with _SPAWN:
        child = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr
        )
        KEEP.add(child.pid)
    try:
        with child:
            try:
                said = child.communicate(timeout=seconds)[0]
            except BaseException:
                child.kill()
                raise
        return child.returncode, said
    finally:
        KEEP.discard(child.pid)


def release(child: "subprocess.Popen[bytes]", cookie: str) -> None:
    """Forget a child whose tree was ended; what is left of it is for ``reap``."""
    child.poll()
    KEEP.discard(child.pid)
    _RUNNING.discard(cookie)


def reap() -> None:
    """Collect orphans that became our children and have ended."""
    with _SPAWN:
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                if ended is None or ended.si_pid in KEEP:
                    return  # whoever keeps it is about to wait for it
                os.waitpid(ended.si_pid, os.WNOHANG)
            except OSError:
                return


def signal_all(found: List[Process], number: int) -> None:
    """Send a signal to processes that are still the ones that were found."""
    for known in found:
        now = process(known.pid)
        if now is not None and now.start == known.start:
            try:
                os.kill(known.pid, number)
            except OSError:
                pass


def _children() -> Set[int]:
    """Our children, the orphans among them; faster than a search of all of /proc."""
    found: Set[int] = set()
    try:
        for thread in os.listdir("/proc/self/task"):
            with open("/proc/self/task/%s/children" % thread) as stream:
                found.update(int(word) for word in stream.read().split())
    except OSError:
        pass  # a kernel without it, or a thread that has just ended
    return found


def _hunt(cookies: Tuple[str, ...]) -> None:
    """Kill orphans of what forks and exits faster than it can be searched for."""
    with _SPAWN:  # as long as nobody reaps them, their numbers are theirs
        for _ in range(HUNTS if _RUNNING.issubset(cookies) else 0):
            for pid in _children() - KEEP:
                try:
                    os.kill(pid, signal.SIGKILL)
                except OSError:
                    pass


def end_tree(
    cookies: Tuple[str, ...],
    child: Any,
    grace: float,
    limit: float,
    meanwhile: Callable[[], None] = lambda: None,
) -> List[Process]:
    """TERM, then KILL after ``grace`` seconds, until nothing is left or ``limit`` has passed.

    ``child`` is the tree's first process, or stands for it; ``meanwhile`` runs again and again.
    Returns what is still there: processes in uninterruptible sleep, or not ours to kill.
    """
    began = time.monotonic()

    def find() -> List[Process]:
        if time.monotonic() - began > grace:
            _hunt(cookies)
        child.poll()  # as a zombie it would hide the others from ``reap``
        reap()
        meanwhile()
        return members(cookies, child.pid)

    return end_found(find, grace, limit)


def end_found(find: Callable[[], List[Process]], grace: float, limit: float) -> List[Process]:
    """The same for the processes that ``find`` gives, which is asked again and again."""
    started = time.monotonic()
    known: Set[int] = set()
    signal_all(find(), signal.SIGTERM)
    # A stopped process acts on TERM only once it is continued.
    signal_all(find(), signal.SIGCONT)
    while True:
        left = find()
        if not left:
            return []
        elapsed = time.monotonic() - started
        if elapsed > limit:
            return left
        if elapsed > grace:
            signal_all(left, signal.SIGKILL)
            fresh = {p.pid for p in left} - known
            known |= fresh
            if fresh:
                continue  # something forks all the time: be faster than it
        time.sleep(0.02 if elapsed < 0.5 else 0.1)
