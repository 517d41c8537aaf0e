"""Transport ``ssh``: one Paramiko session a host, one channel a command, jump hosts shared."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

import paramiko

from orchestrator.errors import LinkLostError, TransientError, UnreachableError
from orchestrator.transport.base import Pipe
from orchestrator.transport.endpoint import Endpoint
from orchestrator.transport.quote import quote
from orchestrator.transport.ssh_dial import PACER, TRIES, Deadline, Stream, dial, pauses
from orchestrator.transport.ssh_pipe import SshPipe, in_background
from orchestrator.transport.ssh_resolve import SshSettings
from orchestrator.transport.ssh_route import Hop, at_jump_host, route
from orchestrator.transport.ssh_session import DroppedError, start

_PROXY_TRIES = 3  # a proxy command that ends at once is more often wrong than unlucky


class SshConnection:
    """An authenticated session to one host."""

    def __init__(
        self,
        transport: paramiko.Transport,
        settings: SshSettings,
        timeout: float,
        release: Callable[[], None],
    ) -> None:
        self.transport = transport
        self._settings = settings
        self._timeout = timeout
        self._release = release
        self._lock = threading.Lock()
        self._closed = False

    @property
    def peer(self) -> str:
        """The name of the host in the inventory."""
        return self._settings.name

    def open(self, argv: Sequence[str]) -> Pipe:
        """Start ``argv`` in a channel of its own. Raises UnreachableError, LinkLostError."""
        command = quote(argv).encode("utf-8", "surrogateescape")
        channel = self._channel()
        # Paramiko waits for the answer without a limit; a closed channel ends that.
        guard = threading.Timer(self._timeout, channel.close)
        guard.daemon = True
        guard.start()
        try:
            # SendEnv is left out on purpose: a foreign locale would translate what we parse.
            for name, value in self._settings.set_env:
                channel.set_environment_variable(name, value)
            channel.exec_command(command)
        except (paramiko.SSHException, EOFError, OSError) as error:
            in_background(channel.close)
            raise LinkLostError(
                f"the server did not start the command ({error})", where=self.peer
            ) from error
        finally:
            guard.cancel()
        return SshPipe(channel, self.peer)

    def tunnel(self, goal: SshSettings, deadline: Deadline) -> Stream:
        """Return a stream to the server of ``goal`` as seen from here. Raises UnreachableError."""
        address = (goal.hostname, goal.port)
        try:
            channel: Stream = self.transport.open_channel(
                "direct-tcpip", address, ("127.0.0.1", 0), timeout=deadline.left()
            )
        except (paramiko.SSHException, EOFError, OSError) as error:
            forbidden = isinstance(error, paramiko.ChannelException) and error.code == 1
            reason = "forwarding is forbidden there" if forbidden else str(error)
            hint = (
                "set AllowTcpForwarding yes in its sshd_config"
                if forbidden
                else "is the host up, and is it reached from the jump host under this address?"
            )
            raise UnreachableError(
                f"jump host {self.peer} cannot reach {goal.hostname} port {goal.port} ({reason})",
                where=goal.name,
                hint=hint,
            ) from error
        return channel

    def close(self) -> None:
        """End the session, every pipe on it, and the jump host when nobody else uses it."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        # Behind a jump host the end is a message, and a dead link must not hold us.
        in_background(self.transport.close).join(1.0)
        self._release()

    def _channel(self) -> paramiko.Channel:
        try:
            return self.transport.open_session(timeout=self._timeout)
        except (paramiko.SSHException, EOFError, OSError) as error:
            if not self.transport.is_active():
                raise LinkLostError("the SSH connection broke", where=self.peer) from error
            raise TransientError(
                f"the server refuses another session on this connection ({error})",
                where=self.peer,
                hint="raise MaxSessions in its sshd_config, or run fewer targets of this host",
            ) from error


def connect_ssh(endpoint: Endpoint) -> SshConnection:
    """Return a session to ``endpoint``, each hop within ``connect_timeout``.

    Raises UnreachableError.
    """
    return _connect(route(endpoint))


def _connect(hops: tuple[Hop, ...]) -> SshConnection:
    *before, (endpoint, settings) = hops
    if not before:
        with PACER.turn(f"{settings.hostname}:{settings.port}"):
            return _shake_hands(settings, endpoint.connect_timeout, None)
    gate = before[-1][0]
    try:
        jump = JUMPS.acquire(tuple(before))
    except UnreachableError as error:
        raise at_jump_host(error, gate.name, endpoint.name) from error
    try:
        # The jump host's forwardings come in waves too.
        with PACER.turn(f"through {jump.peer}"):
            return _shake_hands(settings, endpoint.connect_timeout, (jump, gate))
    except BaseException:
        JUMPS.release(gate)
        raise


def _shake_hands(
    settings: SshSettings, timeout: float, via: tuple[SshConnection, Endpoint] | None
) -> SshConnection:
    deadline = Deadline(timeout)
    tries = _PROXY_TRIES if settings.proxy_command else TRIES
    for attempt, pause in enumerate(pauses(tries), 1):
        try:
            stream = via[0].tunnel(settings, deadline) if via else dial(settings, deadline)
            transport = start(stream, settings, deadline)
            release = (lambda: JUMPS.release(via[1])) if via else (lambda: None)
            return SshConnection(transport, settings, timeout, release)
        except DroppedError as error:
            if pause is None or pause >= deadline.left():
                raise _dropped(settings, attempt, str(error)) from error
            time.sleep(pause)
    raise AssertionError("the last try returns or raises")


def _dropped(settings: SshSettings, attempts: int, said: str) -> UnreachableError:
    words = f" (it says {said!r})" if said else ""
    if settings.proxy_command:
        return TransientError(
            f"the proxy command ended before a server answered: {settings.proxy_command}",
            where=settings.name,
            hint="run it by hand",
        )
    return TransientError(
        f"{settings.hostname} port {settings.port} closes connections at once, {attempts} times in"
        f" a row{words}",
        where=settings.name,
        hint="raise MaxStartups in its sshd_config, or see whether it locks this address out",
    )


class _Jump:
    """A jump host that several connections share."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.users = 0
        self.connection: SshConnection | None = None
        self.failure: UnreachableError | None = None


class _Jumps:
    """The jump hosts of this process, each connected once as long as somebody needs it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jumps: dict[str, _Jump] = {}

    def acquire(self, hops: tuple[Hop, ...]) -> SshConnection:
        """Return the connection to the last of ``hops``, which ``release`` gives back."""
        endpoint = hops[-1][0]
        with self._lock:
            jump = self._jumps.setdefault(repr(endpoint), _Jump())
            jump.users += 1
        try:
            with jump.lock:
                if jump.failure:  # do not let a hundred hosts wait for it one after another
                    raise jump.failure
                if jump.connection is None or not jump.connection.transport.is_active():
                    if jump.connection:
                        jump.connection.close()
                    jump.connection = self._connect(jump, hops)
                return jump.connection
        except BaseException:
            self.release(endpoint)
            raise

    def release(self, endpoint: Endpoint) -> None:
        """Give a connection back; the last user closes it."""
        with self._lock:
            jump = self._jumps[repr(endpoint)]
            jump.users -= 1
            if jump.users:
                return
            del self._jumps[repr(endpoint)]
        if jump.connection:
            jump.connection.close()

    @staticmethod
    def _connect(jump: _Jump, hops: tuple[Hop, ...]) -> SshConnection:
        try:
            return _connect(hops)
        except UnreachableError as error:
            jump.failure = error
            raise


JUMPS = _Jumps()
