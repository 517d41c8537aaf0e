"""Transport ``ssh``: one Paramiko session a host, one channel a command, jump hosts shared."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable, Sequence

import paramiko

from orchestrator.errors import LinkLostError, MxfleetError, UnreachableError
from orchestrator.transport.base import Pipe
from orchestrator.transport.endpoint import Endpoint
from orchestrator.transport.process import STDERR_GRACE, StderrTail
from orchestrator.transport.quote import quote
from orchestrator.transport.ssh_dial import PACER, Deadline, Stream, dial
from orchestrator.transport.ssh_resolve import SshSettings, resolve
from orchestrator.transport.ssh_session import DroppedError, start

_CHUNK = 1 << 15  # what fits into one SSH packet
_TRIES = 8  # for a server that drops connections when many come at once
_PROXY_TRIES = 3  # a proxy command that ends at once is more often wrong than unlucky
_FIRST_PAUSE, _LONGEST_PAUSE = 0.15, 2.0  # seconds between them
_MAX_JUMPS = 8  # further ones can only be a configuration that refers to itself


class SshPipe:
    """A ``Pipe`` on one session channel."""

    def __init__(self, channel: paramiko.Channel, peer: str) -> None:
        self._channel = channel
        self._peer = peer
        self._closed = False
        self._tail = StderrTail()
        self._drainer = threading.Thread(target=self._drain, name=f"stderr {peer}", daemon=True)
        self._drainer.start()

    def read(self, size: int) -> bytes:
        """Return 1 to ``size`` bytes, ``b""`` at end of file or after ``close``."""
        data = self._channel.recv(size)
        if not data and not self._closed and not self._ended():
            raise LinkLostError("the SSH connection broke", where=self._peer)
        return data

    def write(self, data: bytes) -> None:
        """Write all of ``data``; waits for the server's window."""
        for offset in range(0, len(data), _CHUNK):
            chunk = data[offset : offset + _CHUNK]
            while chunk:
                try:
                    sent = self._channel.send(chunk)
                except (OSError, EOFError, paramiko.SSHException) as error:
                    raise self._lost() from error
                if not sent:
                    raise self._lost()
                chunk = chunk[sent:]

    def close_write(self) -> None:
        """Signal end of file to the command."""
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
            self._channel.shutdown_write()

    def wait(self, timeout: float | None) -> int | None:
        """Return the exit status; None when unknown (killed by a signal) or not there in time."""
        self._channel.status_event.wait(timeout)
        status = self._channel.exit_status
        if status > 0:
            self._drainer.join(STDERR_GRACE)  # who asks for a bad status wants to know why
        return None if status < 0 else status

    def stderr_tail(self) -> bytes:
        """Return the end of what the command wrote to standard error."""
        return self._tail.value()

    def close(self) -> None:
        """Give the pipe up. The farewell may have to wait for a full or dead link: not here."""
        self._closed = True
        _in_background(self._channel.close)

    def _ended(self) -> bool:
        """Return whether the command's end, not the link's, is why there is no more data."""
        return bool(self._channel.eof_received) or self._channel.exit_status >= 0

    def _lost(self) -> LinkLostError:
        if self._closed:
            message = "the pipe is closed"
        elif self._ended():
            message = "the command on the other side ended and no longer reads"
        else:
            message = "the SSH connection broke"
        return LinkLostError(message, where=self._peer)

    def _drain(self) -> None:
        while data := self._channel.recv_stderr(_CHUNK):
            self._tail.add(data)


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
            _in_background(channel.close)
            raise LinkLostError(
                f"the server did not start the command ({error})", where=self.peer
            ) from error
        finally:
            guard.cancel()
        return SshPipe(channel, self.peer)

    def tunnel(self, address: tuple[str, int], deadline: Deadline) -> Stream:
        """Return a stream to ``address`` as seen from this host. Raises UnreachableError."""
        try:
            channel = self.transport.open_channel(
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
                f"jump host {self.peer} cannot reach {address[0]} port {address[1]} ({reason})",
                where=self.peer,
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
        _in_background(self.transport.close).join(1.0)
        self._release()

    def _channel(self) -> paramiko.Channel:
        try:
            return self.transport.open_session(timeout=self._timeout)
        except (paramiko.SSHException, EOFError, OSError) as error:
            if not self.transport.is_active():
                raise LinkLostError("the SSH connection broke", where=self.peer) from error
            raise UnreachableError(
                f"the server refuses another session on this connection ({error})",
                where=self.peer,
                hint="raise MaxSessions in its sshd_config, or run fewer targets of this host",
            ) from error


def connect_ssh(endpoint: Endpoint) -> SshConnection:
    """Return a session to ``endpoint``, each hop within ``connect_timeout``.

    Raises UnreachableError.
    """
    return _connect(endpoint, 0)


def _connect(endpoint: Endpoint, depth: int) -> SshConnection:
    if depth > _MAX_JUMPS:
        raise UnreachableError(
            f"more than {_MAX_JUMPS} jump hosts one after another",
            where=endpoint.name,
            hint="look for a ProxyJump that leads back to itself in the SSH configuration",
        )
    settings = resolve(endpoint)
    if not settings.proxy_jump:
        with PACER.turn(f"{settings.hostname}:{settings.port}"):
            return _shake_hands(settings, endpoint.connect_timeout, None)
    through = _jump_endpoint(endpoint, settings)
    try:
        jump = JUMPS.acquire(through, depth + 1)
    except UnreachableError as error:
        place = f"jump host {error.where or through.name}: "
        message = error.message if error.message.startswith("jump host") else place + error.message
        raise UnreachableError(message, where=endpoint.name, hint=error.hint) from error
    try:
        # The jump host's forwardings come in waves too.
        with PACER.turn(f"through {jump.peer}"):
            return _shake_hands(settings, endpoint.connect_timeout, (jump, through))
    except BaseException:
        JUMPS.release(through)
        raise


def _shake_hands(
    settings: SshSettings, timeout: float, via: tuple[SshConnection, Endpoint] | None
) -> SshConnection:
    deadline = Deadline(timeout)
    pause = _FIRST_PAUSE
    tries = _PROXY_TRIES if settings.proxy_command else _TRIES
    for attempt in range(1, tries + 1):
        try:
            stream: Stream
            if via:
                stream = via[0].tunnel((settings.hostname, settings.port), deadline)
            else:
                stream = dial(settings, deadline)
            transport = start(stream, settings, deadline)
            release = (lambda: JUMPS.release(via[1])) if via else (lambda: None)
            return SshConnection(transport, settings, timeout, release)
        except DroppedError as error:
            wait = pause * random.uniform(0.5, 1.5)
            if attempt == tries or wait >= deadline.left():
                raise _dropped(settings, attempt, str(error)) from error
            time.sleep(wait)
            pause = min(pause * 2, _LONGEST_PAUSE)
    raise AssertionError("the last try returns or raises")


def _dropped(settings: SshSettings, attempts: int, said: str) -> UnreachableError:
    words = f" (it says {said!r})" if said else ""
    if settings.proxy_command:
        return UnreachableError(
            f"the proxy command ended before a server answered: {settings.proxy_command}",
            where=settings.name,
            hint="run it by hand",
        )
    return UnreachableError(
        f"{settings.hostname} port {settings.port} closes connections at once, {attempts} times in"
        f" a row{words}",
        where=settings.name,
        hint="raise MaxStartups in its sshd_config, or see whether it locks this address out",
    )


def _jump_endpoint(endpoint: Endpoint, settings: SshSettings) -> Endpoint:
    """Return the last jump host; the ones before it are its own jump hosts, as ssh -J has it."""
    *before, last = settings.proxy_jump
    last = last.removeprefix("ssh://")
    user, at, place = last.rpartition("@")
    host, colon, port = place.rpartition(":")
    if not colon or place.endswith("]") or (":" in host and not host.startswith("[")):
        host, port = place, ""
    return Endpoint(
        name=host.strip("[]"),
        port=int(port) if port else None,
        user=user if at else None,
        ssh_config=endpoint.ssh_config,
        host_keys=endpoint.host_keys,
        connect_timeout=endpoint.connect_timeout,
        options={"ProxyJump": ",".join(before)} if before else {},
    )


class _Jump:
    """A jump host that several connections share."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.users = 0
        self.connection: SshConnection | None = None
        self.failure: MxfleetError | None = None


class _Jumps:
    """The jump hosts of this process, each connected once as long as somebody needs it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jumps: dict[str, _Jump] = {}

    def acquire(self, endpoint: Endpoint, depth: int) -> SshConnection:
        """Return the connection to a jump host, which ``release`` gives back."""
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
                    jump.connection = self._connect(jump, endpoint, depth)
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
    def _connect(jump: _Jump, endpoint: Endpoint, depth: int) -> SshConnection:
        try:
            return _connect(endpoint, depth)
        except MxfleetError as error:
            jump.failure = error
            raise


JUMPS = _Jumps()


def _in_background(action: Callable[[], None]) -> threading.Thread:
    def quietly() -> None:
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
            action()

    thread = threading.Thread(target=quietly, name="ssh farewell", daemon=True)
    thread.start()
    return thread
