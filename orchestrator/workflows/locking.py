"""Device locks, the controller's side: ask a host's agent for a lane, and say how its job ended.

The lock is held by the agent on the host itself, outside all containers, so that everybody who
uses the host's devices queues for the same one, and so that it outlives this process until the
job is proven dead.
"""

from __future__ import annotations

import getpass
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from orchestrator.errors import InterruptedRun, MxfleetError, RunTimeoutError, UnusableError
from orchestrator.events import Note, Sink
from orchestrator.inventory.model import Target
from orchestrator.plan.lanes import Lane, lanes_of
from orchestrator.transport.session import AgentSession, Request
from orchestrator.workflows.fleet import Fleet

WAIT_SECONDS = 3600.0  # for a lock, unless told otherwise
_LOOK_SECONDS = 0.3
PROOF_SECONDS = 12.0  # for the agent's word at the end, when it has to prove a death itself


class UnlockedError(UnusableError):
    """Nobody can lock the target's devices; jobs run all the same, and are marked UNLOCKED."""


def locker(
    fleet: Fleet, target: Target, session: AgentSession
) -> tuple[AgentSession, Mapping[str, Any]]:
    """The agent that locks for ``target``, whose own is ``session``, and what to tell it.

    Raises ``UnlockedError`` where there is none.
    """
    folder = {"folder": target.lock_folder}
    if target.container is None:
        return session, folder
    inside = {"container": target.container, "docker_command": list(target.docker_command)}
    try:
        return fleet.host_session(target), {**folder, **inside}
    except UnusableError as error:
        if target.lock_folder is not None:
            return session, {**folder, "mounted": True}
        raise UnlockedError(
            f"the devices cannot be locked, the host has no agent: {error.message}",
            where=target.name,
            hint="install python3 on the host, or set `lock_folder` to a folder of the host that "
            "is mounted in the container",
        ) from None


class Held:
    """A lane that is ours until the ``with`` block ends.

    ``locked`` is False where nobody could lock: then the results are UNLOCKED. ``lost`` is set when
    the lock's link breaks: the agent keeps the lock, and ends the job when nobody comes back to it
    in time.
    """

    def __init__(self, locked: bool, request: Request | None = None, name: str = "") -> None:
        self.locked = locked
        self.lost = threading.Event()
        self.ended: dict[str, Any] | None = None  # the agent's last word on the lock
        self.over = False  # the block has ended
        self._name = name
        self._request = request
        self._done = threading.Event()
        self._settled: dict[str, Any] = {"proven": False, "unkillable": []}
        self._calls: list[Callable[[], None]] = []
        self._lock = threading.Lock()
        if request is None:
            self._done.set()
        else:
            self._hear(request)

    def _hear(self, request: Request) -> None:
        threading.Thread(
            target=self._listen, args=(request,), name=f"mxfleet-lock-{self._name}", daemon=True
        ).start()

    def adopt(self, request: Request) -> None:
        """Go on with another request for the same job, after the link of the first was lost."""
        with self._lock:
            over = self.over
            if not over:
                self._request = request
                self.lost.clear()
                self._done.clear()
        if not over:
            self._hear(request)
            return
        # It came too late, but it is held: the next job of this very lane would wait for it.
        with suppress(MxfleetError):
            self._give_back(request)
        request.drop()

    def _give_back(self, request: Request) -> None:
        request.send(json.dumps(self._settled).encode())
        request.end()

    def settle(self, proven: bool, unkillable: Sequence[Any] = ()) -> None:
        """Say, before the block ends, that the job is proven dead, or what of it cannot be killed.

        Without it the agent finds out itself. ``unkillable`` are the agent's processes (``pid``).
        """
        self._settled = {"proven": proven, "unkillable": list(unkillable)}

    def when_lost(self, call: Callable[[], None]) -> None:
        """Call once, from another thread, when the lock's link is lost; at once if it is."""
        with self._lock:
            if not self.lost.is_set():
                self._calls.append(call)
                return
        call()

    def release(self) -> None:
        """Give the lock up with what ``settle`` said; wait for the agent's word, within limits."""
        with self._lock:
            request, self._request = self._request, None
            self.over = True
        if request is None:
            return
        with suppress(MxfleetError):
            self._give_back(request)
            self._done.wait(PROOF_SECONDS)
        request.drop()

    def _listen(self, request: Request) -> None:
        with suppress(MxfleetError):
            self.ended = request.result()
        with self._lock:
            lost = self._request is not None  # else we let go of it ourselves
            if lost:
                self.lost.set()
        self._done.set()
        for call in self._calls if lost else ():
            call()


class Locks:
    """Locks for one run.

    ``hold`` are the seconds that a job may go on after its link is lost, for somebody to attach to
    it: that long its lock is kept before the agent ends what is left of it.
    """

    def __init__(
        self,
        fleet: Fleet,
        sink: Sink,
        run: str,
        *,
        hold: float = 30.0,
        wait_limit: float = WAIT_SECONDS,
    ) -> None:
        self._fleet = fleet
        self._sink = sink
        self._run = run
        self._hold = hold
        self._wait_limit = wait_limit
        self._who = _who()
        self._given_up = threading.Event()
        self._told: set[str] = set()  # hosts that cannot lock

    @contextmanager
    def held(
        self,
        target: Target,
        session: AgentSession,
        lane: Lane,
        job: str,
        deadline: float | None = None,
    ) -> Iterator[Held]:
        """Hold ``lane`` of ``target`` for ``job``; ``session`` is the target's own agent.

        Waits as long as others hold it, and tells who. Raises ``RunTimeoutError`` at ``deadline``
        (monotonic clock), ``UnusableError`` when that takes too
        long, or what is left of somebody's job on the device cannot be killed; ``LinkLostError``
        when the link breaks meanwhile.
        """
        try:
            request = self._ask(target, session, lane, job)
        except UnlockedError as error:
            self._warn(target, error)
            yield Held(locked=False)
            return
        with request:
            try:
                self._wait(target, lane, request, deadline)
            except BaseException:
                with suppress(MxfleetError):
                    request.end()  # we no longer wait for it
                raise
            held = Held(True, request, f"{target.name}-{lane.name}")
            held.when_lost(lambda: self._renew(target, lane, job, held))
            try:
                yield held
            finally:
                held.release()
                self._tell_left(target, lane, held)

    def give_up(self) -> None:
        """Wait for no lock any longer: the run is interrupted."""
        self._given_up.set()

    def _ask(self, target: Target, session: AgentSession, lane: Lane, job: str) -> Request:
        """Ask whoever locks for ``target``; raises ``UnlockedError`` where nobody can."""
        agent, settings = locker(self._fleet, target, session)
        return agent.request(
            "lock",
            devices=list(lane.locks),
            job=job,
            run=self._run,
            who=self._who,
            hold=self._hold,
            wait_limit=self._wait_limit,
            **settings,
        )

    def _renew(self, target: Target, lane: Lane, job: str, held: Held) -> None:
        """After a lost link: say that the job has somebody again, before its lock's agent ends it.

        Whoever follows the job comes back to its target as well; this waits for that, until the
        block ends, and does not dial itself: two that do take each other's turns.
        """

        def work() -> None:
            while not held.over and not self._given_up.is_set():
                session = self._fleet.sessions().get(target.name)
                if session is not None and not session.lost:
                    with suppress(MxfleetError):
                        request = self._ask(target, session, lane, job)
                        self._wait(target, lane, request)
                        held.adopt(request)
                        return
                time.sleep(_LOOK_SECONDS)

        threading.Thread(target=work, name=f"mxfleet-relock-{target.name}", daemon=True).start()

    def _warn(self, target: Target, error: UnlockedError) -> None:
        if target.host.name not in self._told:
            self._told.add(target.host.name)
            text = f"results are UNLOCKED: {error.message}; {error.hint}"
            self._sink(Note(text, target=target.name, level="warning"))

    def _wait(
        self, target: Target, lane: Lane, request: Request, deadline: float | None = None
    ) -> None:
        told: object = None
        waiting = ""
        while True:
            item = request.next(_LOOK_SECONDS)
            if self._given_up.is_set():
                raise InterruptedRun("interrupted while waiting for its device")
            if deadline is not None and time.monotonic() > deadline:
                raise RunTimeoutError(
                    f"the run's limit of {target.timeouts.run:g} s is over{waiting}",
                    where=target.name,
                    hint=RunTimeoutError.way_out,
                )
            if not isinstance(item, dict):
                continue
            if item.get("type") == "held":
                return
            if item.get("type") == "waiting":
                holder = item.get("holder") or {}
                current = (item.get("device"), holder.get("job"), item.get("proving"))
                if current != told:
                    told = current
                    waiting = f", spent {_waiting(item)}"
                    self._sink(Note(_waiting(item), target=target.name))
            if item.get("type") == "result":
                raise UnusableError(
                    f"lane {lane.name} was given up before it was held", where=target.name
                )

    def _tell_left(self, target: Target, lane: Lane, held: Held) -> None:
        left = (held.ended or {}).get("left") or ()
        if left:
            pids = ", ".join(str(process.get("pid")) for process in left)
            text = (
                f"UNKILLABLE: process {pids} on the host; {lane.name} is left alone until it ends"
            )
            self._sink(Note(text, target=target.name, level="warning"))


def _who() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user without an entry
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


def holder_text(holder: Mapping[str, Any], now: float | None = None) -> str:
    """Who holds a lock, for people; ``now`` is the host's clock."""
    if not holder:
        return "somebody who left no note"
    since = holder.get("since")
    age = f", for {max(0.0, now - since):.0f} s" if since is not None and now is not None else ""
    where = f" in {holder['container']}" if holder.get("container") else ""
    return f"{holder.get('who')} (run {holder.get('run')}, job {holder.get('job')}{where}{age})"


def device_locks(
    fleet: Fleet, target: Target, session: AgentSession
) -> Iterator[tuple[str, str, str | None]]:
    """What the doctor tells of the devices' locks: status, message and hint of each."""
    try:
        agent, settings = locker(fleet, target, session)
        locks = [
            lock for lane in lanes_of(target, session.call("gpus")["gpus"]) for lock in lane.locks
        ]
        seen = agent.call("lock_holders", **settings)
    except UnusableError as error:
        yield "WARNING", error.message, error.hint
        return
    found = {lock["device"]: lock for lock in seen["locks"] if lock["device"] in locks}
    free = [device for device in locks if device not in found]
    if free:
        yield "OK", f"{', '.join(free)}: free", None
    for device, lock in found.items():
        who = holder_text(lock.get("holder") or {}, seen["clock"])
        left = (lock.get("holder") or {}).get("unkillable") or ()
        if lock.get("problem"):
            yield "FAILED", lock["problem"], "remove it after a look at who put it there"
        elif lock["held"]:
            yield "WARNING", f"{device} is held by {who}", "jobs wait for their turn"
        elif left:
            pids = ", ".join(str(process.get("pid")) for process in left)
            text = f"{device} is left alone: process {pids} of {who} could not be killed"
            yield "FAILED", text, "free the device; while that process is there no job starts on it"
        else:
            text = f"{device} was held by {who}, whose agent died"
            yield "WARNING", text, "the next job starts when that one is proven dead"


def _waiting(item: Mapping[str, Any]) -> str:
    who = holder_text(item.get("holder") or {}, item.get("clock"))
    if item.get("proving"):
        return f"waiting for {item['device']}: the agent of {who} died; is its job dead as well?"
    return f"waiting for {item['device']}, held by {who}"
