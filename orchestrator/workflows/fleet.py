"""Sessions to targets: one connection a host and run, shared by the targets on it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, wait
from functools import partial
from types import TracebackType
from typing import TypeVar

from orchestrator.errors import InterruptedRun, MxfleetError
from orchestrator.inventory.model import Host, Target
from orchestrator.transport.base import Connection
from orchestrator.transport.connect import connect
from orchestrator.transport.container import ContainerConnection
from orchestrator.transport.endpoint import Endpoint
from orchestrator.transport.session import AgentSession

PARALLEL_HOSTS = 64
LAST_WORDS_SECONDS = 5.0  # for what an interrupted worker has to put away
_T = TypeVar("_T")


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
    """Opens connections and agents when they are asked for and closes them all at the end."""

    def __init__(self) -> None:
        self._connections: dict[str, Connection] = {}
        self._locks: dict[str, threading.Lock] = {}
        self._sessions: dict[str, AgentSession] = {}
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
        """The connection to the target's host, opened on first use."""
        host = target.host
        with self._lock:
            lock = self._locks.setdefault(host.name, threading.Lock())
        with lock:
            found = self._connections.get(host.name)
            if found is None:
                found = self._connections[host.name] = connect(endpoint_of(host))
            return found

    def session(self, target: Target) -> AgentSession:
        """An agent in the target, started on first use. Raises what prevents it."""
        known = self._sessions.get(target.name)
        if known is not None:
            return known
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
        session = AgentSession.start(
            connection,
            name=target.name,
            pythons=pythons,
            in_container=target.container is not None,
            dead_link=target.timeouts.dead_link,
            start_timeout=max(target.host.connect_timeout, 20.0),
            explain=explain,
        )
        with self._lock:
            self._sessions[target.name] = session
        return session

    def sessions(self) -> Mapping[str, AgentSession]:
        """The agents that were started so far, by target."""
        with self._lock:
            return dict(self._sessions)

    def close(self) -> None:
        """End all agents (and with them what still runs there), then the connections."""
        for session in self.sessions().values():
            session.close()
        for connection in list(self._connections.values()):
            connection.close()


def for_each_host(
    targets: Iterable[Target],
    work: Callable[[Target], _T],
    on_error: Callable[[Target, MxfleetError], None],
    on_interrupt: Callable[[], None] | None = None,
) -> dict[str, _T]:
    """Do ``work`` for every target: hosts side by side, the targets of one host in turn.

    Targets of one host share its GPUs: measured together they would measure each other.
    Returns the results by target name; ``on_error`` hears of the others.
    """
    by_host: dict[str, list[Target]] = {}
    for target in targets:
        by_host.setdefault(target.host.name, []).append(target)
    results: dict[str, _T] = {}

    def do_host(group: list[Target]) -> None:
        for target in group:
            try:
                results[target.name] = work(target)
            except InterruptedRun:
                raise  # nobody reads the output any more: not a target's fault
            except MxfleetError as error:
                on_error(target, error)

    futures = _in_parallel([partial(do_host, group) for group in by_host.values()])
    try:
        for future in futures:
            future.result()
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
    return results


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
