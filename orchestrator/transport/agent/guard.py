"""The guardian: the agent's parent, so that jobs end even when the agent is killed outright.

The agent ends its jobs itself whenever it can. A SIGKILL (the out-of-memory killer, an operator)
leaves it no chance; then the kernel hands all that it had started to the guardian, which is a
subreaper as well, and the guardian ends it. Killed the other way round, the agent gets a SIGTERM.
An agent that is stopped cannot end what its controller has long given up: it gives the guardian
signs of life, and without any for longer than the lease it is killed.
"""

import os
import select
import signal
import struct
import sys
import time
from typing import Callable, Dict, List, Optional, Set

from .proc import (
    Process,
    become_subreaper,
    processes,
    signal_all,
    signal_at_parents_end,
)

GRACE_SECONDS = 2.0
LIMIT_SECONDS = 30.0
TICK_SECONDS = 0.5
_BEAT = struct.Struct("d")  # the lease


def margin(lease: float) -> float:
    """Seconds beyond the lease that an agent may give no sign of life: a machine may be slow."""
    return 3.0 + lease / 2.0


def guard() -> Callable[[float], None]:
    """Fork: return in the child, the agent to be; the parent watches it and never returns.

    Call it before the first thread. What it returns gives a sign of life, with the lease in
    seconds; from the first one on the guardian expects more.
    """
    guardian = os.getpid()
    become_subreaper()
    beats, ours = os.pipe()
    agent = os.fork()
    if agent == 0:
        signal_at_parents_end(signal.SIGTERM)
        if os.getppid() != guardian:
            os._exit(1)  # it was killed before the line above
        os.close(beats)
        os.set_blocking(ours, False)
        return lambda lease: _reassure(ours, lease)
    code = 1
    try:
        os.close(ours)
        code = _watch(agent, beats)
    finally:
        os._exit(code)


def _reassure(handle: int, lease: float) -> None:
    try:
        os.write(handle, _BEAT.pack(lease))
    except OSError:
        pass  # the guardian is stopped, or gone: then the agent gets a signal


def _say(text: str) -> None:
    try:
        sys.stderr.write("mxfleet-agent: %s\n" % text)
        sys.stderr.flush()
    except OSError:
        pass  # nobody listens any more; what is left to do is done all the same


def _wait(agent: int, beats: int) -> int:
    """Wait for the agent's end, or end it when it gives no sign of life; return its status."""
    lease: Optional[float] = None
    silent = 0.0
    while True:
        if select.select([beats], [], [], TICK_SECONDS)[0]:
            data = os.read(beats, 512 * _BEAT.size)
            if not data:
                return os.waitpid(agent, 0)[1]
            lease, silent = _BEAT.unpack(data[-_BEAT.size :])[0], 0.0
        else:
            # Not by the clock: while the whole machine or container was frozen, so was the agent.
            silent += TICK_SECONDS
        ended, status = os.waitpid(agent, os.WNOHANG)
        if ended:
            return status
        if lease is not None and silent > lease + margin(lease):
            os.kill(agent, signal.SIGKILL)
            _say("no sign of life for %d s" % silent)
            return os.waitpid(agent, 0)[1]


def _watch(agent: int, beats: int) -> int:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: os.kill(agent, signal.SIGTERM))
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    # The pipe is the agent's alone: its end has to be seen on both sides.
    silence = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1):
        os.dup2(silence, stream)
    status = _wait(agent, beats)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    _end_orphans()
    if os.WIFSIGNALED(status):
        _say("killed by signal %d" % os.WTERMSIG(status))
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
