"""Sessions to targets: one connection a host and run, shared by the targets on it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, wait
from functools import partial
from types import TracebackType

from orchestrator.errors import InterruptedRun, MxfleetError, OwnFault, UnusableError
from orchestrator.inventory.model import Host, Target
from orchestrator.transport.base import Connection
from orchestrator.transport.connect import connect
from orchestrator.transport.container import ContainerConnection
from orchestrator.transport.endpoint import Endpoint
from orchestrator.transport.session import AgentSession
from orchestrator.workflows.activity import Activity
from orchestrator.workflows.fault import own_fault

PARALLEL_HOSTS = 1024  # at work side by side, each in a thread that mostly waits
OPENING_HOSTS = 64  # that are connected to at the same time
LOOK_SECONDS = 0.2  # between two looks at whether somebody still reads
LAST_WORDS_SECONDS = 5.0  # for what an interrupted worker has to put away


def endpoint_of(host: Host) -> Endpoint:
    """What a transport has to know of a host."""
    return Endpoint(
        name=host.name,
        transport=host.transport,
        address=host.address,
        port=host.port,
        user=host.user,
        identity_file=host.identity_file,
        ssh_config=host.ssh_config,
        host_keys=host.host_keys,
        connect_timeout=host.connect_timeout,
        options=host.options,
    )


class Fleet:
    """Opens connections and agents when they are asked for and closes them at the end.

    A host that is done can be let go before: its agents look after nothing any more, and cost both
    sides heartbeats.
    """

    def __init__(self) -> None:
        self._connections: dict[str, Connection] = {}
        self._locks: dict[str, threading.Lock] = {}
        self._sessions: dict[str, AgentSession] = {}
        self._hosts: dict[str, AgentSession | UnusableError] = {}
        self._opening = threading.BoundedSemaphore(OPENING_HOSTS)
        self._over: dict[str, list[AgentSession]] = {}  # by host: over its present connection
        self._lock = threading.Lock()

    def __enter__(self) -> Fleet:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def connection(self, target: Target) -> Connection:
        """The connection to the target's host: opened on first use, and anew when it is lost."""
        host = target.host
        with self._lock_of(host.name):
            found = self._connections.get(host.name)
            if found is not None and self._is_lost(host.name):
                found.close()
                found = None
            if found is None:
                with self._opening:
                    found = self._connections[host.name] = connect(endpoint_of(host))
                with self._lock:
                    self._over[host.name] = []
            return found

    def _lock_of(self, name: str) -> threading.Lock:
        with self._lock:
            return self._locks.setdefault(name, threading.Lock())

    def _is_lost(self, host: str) -> bool:
        """Whether every agent that the connection to a host was used for is gone."""
        with self._lock:
            over = list(self._over.get(host, ()))
        return bool(over) and all(session.lost for session in over)

    def session(self, target: Target) -> AgentSession:
        """An agent in the target: started on first use, and anew when its link is lost.

        Raises what prevents it.
        """
        with self._lock_of(f"target {target.name}"):
            known = self._sessions.get(target.name)
            if known is not None and not known.lost:
                return known
            session = self._start(target)
            with self._lock:
                self._sessions[target.name] = session
            return session

    def _start(self, target: Target) -> AgentSession:
        inner = self.connection(target)
        local = target.host.transport == "local" and target.container is None
        pythons = [target.python, *target.host.python]
        if local:
            pythons.insert(0, sys.executable)
        if target.container is None:
            connection, explain = inner, None
        else:
            inside = ContainerConnection(
                inner, target.container, target.docker_command, target.docker_user
            )
            connection, explain = inside, inside.explain
        with self._opening:
            session = AgentSession.start(
                connection,
                name=target.name,
                pythons=pythons,
                in_container=target.container is not None,
                dead_link=target.timeouts.dead_link,
                start_timeout=max(target.host.connect_timeout, 20.0),
                explain=explain,
            )
        self._count(target.host.name, session)
        return session

    def _count(self, host: str, session: AgentSession) -> None:
        with self._lock:
            self._over.setdefault(host, []).append(session)

    def host_session(self, target: Target) -> AgentSession:
        """An agent on the target's host itself, outside its containers. Raises what prevents it."""
        host = target.host
        with self._lock_of(f"{host.name} itself"):
            found = self._hosts.get(host.name)
            if isinstance(found, UnusableError):
                raise found
            if found is None or found.lost:
                try:
                    found = AgentSession.start(
                        self.connection(target),
                        name=host.name,
                        pythons=[*([sys.executable] * (host.transport == "local")), *host.python],
                        in_container=False,
                        dead_link=target.timeouts.dead_link,
                        start_timeout=max(host.connect_timeout, 20.0),
                    )
                except UnusableError as error:
                    self._hosts[host.name] = error  # asked for with every job
                    raise
                self._hosts[host.name] = found
                self._count(host.name, found)
            return found

    def sessions(self) -> Mapping[str, AgentSession]:
        """The agents that were started so far, by target."""
        with self._lock:
            return dict(self._sessions)

    def let_go(self, host: Host) -> None:
        """End what is on a host; whoever needs it again opens it anew."""
        with self._lock_of(host.name):
            with self._lock:
                over = self._over.pop(host.name, [])
                for sessions in (self._sessions, self._hosts):
                    for name in [name for name, session in sessions.items() if session in over]:
                        del sessions[name]
                connection = self._connections.pop(host.name, None)
            for session in over:
                session.close()
            if connection is not None:
                connection.close()

    def close(self) -> None:
        """End all agents (and with them what still runs there), then the connections."""
        for session in self.sessions().values():
            session.close()
        for found in self._hosts.values():
            if isinstance(found, AgentSession):
                found.close()
        for connection in list(self._connections.values()):
            connection.close()


def for_each_host(
    activity: Activity,
    targets: Iterable[Target],
    work: Callable[[Target], None],
    on_error: Callable[[Target, MxfleetError], None],
    on_interrupt: Callable[[], None] | None = None,
    when_done: Callable[[Host], None] = lambda host: None,
) -> None:
    """Do ``work`` for every target: hosts side by side, the targets of one host in turn.

    Targets of one host share its GPUs: measured together they would measure each other.
    ``on_error`` hears what went wrong with a target; our own faults too, so that one of them does
    not take the other targets' results along. ``when_done`` is called with every host whose targets
    are done. Ctrl-C, and output that nobody reads any more, raise ``KeyboardInterrupt`` or
    ``InterruptedRun`` after ``on_interrupt`` had its say.
    """
    by_host: dict[str, list[Target]] = {}
    for target in targets:
        by_host.setdefault(target.host.name, []).append(target)

    def do_host(group: list[Target]) -> None:
        for target in group:
            try:
                work(target)
            except MxfleetError as error:
                on_error(target, error)
            except Exception as error:  # noqa: BLE001 - told, reported and counted as our own
                on_error(target, OwnFault(own_fault(error), where=target.name))
        when_done(group[0].host)

    futures = _in_parallel([partial(do_host, group) for group in by_host.values()])
    try:
        while wait(futures, timeout=LOOK_SECONDS).not_done:
            if activity.unheard is not None:
                raise activity.unheard
        for future in futures:
            future.result()
        if activity.unheard is not None:
            raise activity.unheard
    except (KeyboardInterrupt, InterruptedRun):
        for future in futures:
            future.cancel()
        if on_interrupt is not None:
            on_interrupt()
        wait(futures, timeout=LAST_WORDS_SECONDS)
        raise
    finally:
        for future in futures:
            future.cancel()


def _in_parallel(calls: Sequence[Callable[[], None]]) -> list[Future[None]]:
    """Start ``calls``, at most ``PARALLEL_HOSTS`` at a time.

    The threads are daemons, unlike those of an executor: after Ctrl-C one that waits for a host
    that never answers must not hold up the exit.
    """
    futures: list[Future[None]] = [Future() for _ in calls]
    waiting = zip(futures, calls, strict=True)
    lock = threading.Lock()

    def work() -> None:
        while True:
            with lock:
                future, call = next(waiting, (None, None))
            if future is None or call is None:
                return
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(call())
                except BaseException as error:  # noqa: BLE001 - whoever asks for the result gets it
                    future.set_exception(error)

    for number in range(min(len(calls), PARALLEL_HOSTS)):
        threading.Thread(target=work, name=f"mxfleet-host-{number}", daemon=True).start()
    return futures
