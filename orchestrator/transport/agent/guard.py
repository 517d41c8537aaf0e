"""The guardian: the agent's parent, so that jobs end even when the agent is killed outright.

The agent ends its jobs itself whenever it can. A SIGKILL (the out-of-memory killer, an operator)
leaves it no chance; then the kernel hands all that it had started to the guardian, which is a
subreaper as well, and the guardian ends it. Killed the other way round, the agent gets a SIGTERM.
"""

import os
import signal
import sys
import time
from typing import Dict, List, Set

from .proc import (
    Process,
    become_subreaper,
    processes,
    signal_all,
    signal_at_parents_end,
)

GRACE_SECONDS = 2.0
LIMIT_SECONDS = 30.0


def guard() -> None:
    """Fork: return in the child, the agent to be; the parent watches it and never returns.

    Call it before the first thread.
    """
    guardian = os.getpid()
    become_subreaper()
    agent = os.fork()
    if agent == 0:
        signal_at_parents_end(signal.SIGTERM)
        if os.getppid() != guardian:
            os._exit(1)  # it was killed before the line above
        return
    code = 1
    try:
        code = _watch(agent)
    finally:
        os._exit(code)


def _watch(agent: int) -> int:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: os.kill(agent, signal.SIGTERM))
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    # The pipe is the agent's alone: its end has to be seen on both sides.
    silence = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1):
        os.dup2(silence, stream)
    status = os.waitpid(agent, 0)[1]
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    _end_orphans()
    if os.WIFSIGNALED(status):
        sys.stderr.write("mxfleet-agent: killed by signal %d\n" % os.WTERMSIG(status))
        sys.stderr.flush()
        return 128 + os.WTERMSIG(status)
    return os.WEXITSTATUS(status)


def _end_orphans() -> None:
    """End all that the agent left: every process below us, since nothing else was started here."""
    began = time.monotonic()
    told: Set[int] = set()
    while time.monotonic() - began < LIMIT_SECONDS:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        left = _descendants()
        if time.monotonic() - began < GRACE_SECONDS:
            fresh = [p for p in left if p.pid not in told]
            told |= {p.pid for p in fresh}
            signal_all(fresh, signal.SIGTERM)
            signal_all(fresh, signal.SIGCONT)
        else:
            signal_all(left, signal.SIGKILL)
        time.sleep(0.05)


def _descendants() -> List[Process]:
    everything = processes()
    children: Dict[int, List[Process]] = {}
    for found in everything.values():
        children.setdefault(found.parent, []).append(found)
    below: List[Process] = []
    waiting = [os.getpid()]
    while waiting:
        for child in children.get(waiting.pop(), ()):
            below.append(child)
            waiting.append(child.pid)
    return below
