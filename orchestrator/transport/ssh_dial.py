"""From an address to a byte stream that an SSH server may be behind: TCP or a proxy command.

Also here: the one deadline of a connect, and the pacing of handshakes.
"""

from __future__ import annotations

import contextlib
import errno
import random
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from typing import Any, Protocol

from orchestrator.errors import TransientError, UnreachableError
from orchestrator.transport.ssh_resolve import SshSettings

# sshd drops connections at random beyond ten that have not logged in yet (MaxStartups 10:30:100).
HANDSHAKES_AT_A_TIME = 8
TRIES = 8  # for a server that drops connections when many come at once
_FIRST_PAUSE, _LONGEST_PAUSE = 0.15, 2.0  # seconds between them
_JITTER = 0.05  # seconds
_Address = tuple[int, int, int, str, tuple[Any, ...]]  # as socket.getaddrinfo has it
_HEAD = 512  # bytes of a server's first words to keep for messages
_QUICK_ACK: int = getattr(socket, "TCP_QUICKACK", 0)  # 0: not on this system


def pauses(tries: int) -> Iterator[float | None]:
    """Yield how long to wait after each of ``tries`` attempts, None after the last, in seconds.

    For servers that drop connections when many come at once.
    """
    pause = _FIRST_PAUSE
    for _ in range(tries - 1):
        yield pause * random.uniform(0.5, 1.5)
        pause = min(pause * 2, _LONGEST_PAUSE)
    yield None


class Deadline:
    """A point in time that all steps of one connect share."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._at = time.monotonic() + seconds

    def left(self) -> float:
        """Return the seconds left, a little more than zero when there are none."""
        return max(self._at - time.monotonic(), 0.001)

    def over(self) -> bool:
        """Return whether the time is up."""
        return time.monotonic() >= self._at


class Stream(Protocol):
    """What an SSH session runs on: a socket, or a channel through a jump host."""

    def send(self, data: bytes, /) -> int:
        """Send some of ``data`` and return how much."""

    def recv(self, size: int, /) -> bytes:
        """Return up to ``size`` bytes, ``b""`` at end of file."""

    def settimeout(self, seconds: float | None, /) -> None:
        """Limit each of the two calls."""

    def close(self) -> None:
        """End the stream."""


class Tap:
    """A stream that remembers the server's first words: they tell a dropped connection, a server
    that does not speak SSH and a real failure apart.

    It also acknowledges what arrives at once: sshd sends its small messages by Nagle's rule, each
    waits for the acknowledgement of the one before, and ours would come 40 ms late.
    """

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._closed = False  # read by paramiko
        self.head = b""
        self.settimeout = stream.settimeout
        self.send = stream.send
        self._tcp = _over_tcp(stream)

    def recv(self, size: int) -> bytes:
        """Read from the stream."""
        data = self._stream.recv(size)
        if self._tcp is not None:
            with contextlib.suppress(OSError):
                # Every time: the kernel goes back to its own judgement after a while.
                self._tcp.setsockopt(socket.IPPROTO_TCP, _QUICK_ACK, 1)
        if len(self.head) < _HEAD:
            self.head += data[: _HEAD - len(self.head)]
        return data

    def close(self) -> None:
        """Close the stream."""
        self._closed = True
        self._stream.close()


def _over_tcp(stream: Stream) -> socket.socket | None:
    """``stream`` when it is a TCP connection whose acknowledgements can be hurried."""
    if not _QUICK_ACK or not isinstance(stream, socket.socket):
        return None
    return stream if stream.family in (socket.AF_INET, socket.AF_INET6) else None


class _Pacer:
    """Lets at most ``HANDSHAKES_AT_A_TIME`` handshakes with one server be under way."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._gates: dict[str, threading.BoundedSemaphore] = {}

    @contextlib.contextmanager
    def turn(self, server: str) -> Iterator[None]:
        with self._lock:
            gate = self._gates.setdefault(server, threading.BoundedSemaphore(HANDSHAKES_AT_A_TIME))
        if not gate.acquire(blocking=False):
            gate.acquire()
            time.sleep(random.uniform(0, _JITTER))  # not all that waited at the same moment
        try:
            yield
        finally:
            gate.release()


PACER = _Pacer()


def dial(settings: SshSettings, deadline: Deadline) -> socket.socket:
    """Return a connected stream to the server of ``settings``. Raises UnreachableError."""
    if settings.proxy_command:
        return _proxy(settings.proxy_command)
    return _tcp(settings, deadline)


def _tcp(settings: SshSettings, deadline: Deadline) -> socket.socket:
    addresses = _look_up(settings, deadline)
    failure: OSError = OSError(errno.EHOSTUNREACH, "no address")
    for position, (family, kind, protocol, _, address) in enumerate(addresses):
        link = socket.socket(family, kind, protocol)
        try:
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if settings.bind_address:
                link.bind((settings.bind_address, 0))
            # An address that swallows everything must not use up the time of the next one.
            link.settimeout(deadline.left() / (len(addresses) - position))
            link.connect(address)
            return link
        except OSError as error:
            link.close()
            failure = error
    raise _no_link(settings, failure, deadline) from failure


def _look_up(settings: SshSettings, deadline: Deadline) -> list[_Address]:
    """Return the addresses of the host; the resolver itself knows no deadline."""
    answer: list[_Address] = []
    problem: list[OSError] = []

    def ask() -> None:
        try:
            answer.extend(
                socket.getaddrinfo(
                    settings.hostname, settings.port, settings.family, socket.SOCK_STREAM
                )
            )
        except OSError as error:
            problem.append(error)
        except UnicodeError:
            problem.append(socket.gaierror(socket.EAI_NONAME, "not a valid host name"))

    thread = threading.Thread(target=ask, name=f"resolve {settings.hostname}", daemon=True)
    thread.start()
    thread.join(deadline.left())
    if answer:
        return answer
    why = (problem[0].strerror or str(problem[0])) if problem else "no answer in time"
    raise TransientError(
        f"the name {settings.hostname} does not resolve ({why})",
        where=settings.name,
        hint="correct the name, set address: for this host, or add it to ~/.ssh/config",
    )


def _no_link(settings: SshSettings, error: OSError, deadline: Deadline) -> UnreachableError:
    place = f"{settings.hostname} port {settings.port}"
    if isinstance(error, TimeoutError):
        text = f"{place} does not answer within {deadline.seconds:g} s"
        hint = "is the machine up, and does a firewall let us through? else raise connect_timeout"
    elif error.errno == errno.ECONNREFUSED:
        text, hint = f"{place} refuses the connection", "is sshd running there, on this port?"
    elif error.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH):
        text = f"there is no route to {place}"
        hint = "check the network or the VPN, or name a jump host (ProxyJump) in ~/.ssh/config"
    else:
        text = f"cannot connect to {place}: {error.strerror or error}"
        hint = f"try: ssh {settings.name}"
    return TransientError(text, where=settings.name, hint=hint)


def _proxy(command: str) -> socket.socket:
    """Return a socket whose other end is the proxy command, run as OpenSSH runs it."""
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            ["/bin/sh", "-c", f"exec {command}"],
            stdin=theirs.fileno(),
            stdout=theirs.fileno(),
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    threading.Thread(target=process.wait, name="proxy command", daemon=True).start()
    return ours
