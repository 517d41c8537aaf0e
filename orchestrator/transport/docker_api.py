"""What the Docker engine of a host says about its containers, through our own connection.

The Docker SDK speaks HTTP over a pipe to ``docker system dial-stdio`` on the host, so that the
engine, its permissions and its DOCKER_HOST are those that the login really has, and no port or
socket is forwarded. ``podman system dial-stdio`` answers in the same language.
"""

from __future__ import annotations

import contextlib
import difflib
import shlex
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import docker
import docker.errors
import requests
from docker.transport.basehttpadapter import BaseHTTPAdapter
from urllib3.connection import HTTPConnection
from urllib3.connectionpool import HTTPConnectionPool

from orchestrator.errors import MxfleetError, UnusableError
from orchestrator.transport.base import Connection, Pipe
from orchestrator.transport.container import docker_trouble

_TIMEOUT = 20  # seconds for one answer of the engine
_CHUNK = 1 << 16
_BASE_URL = "http://engine:2375"  # never resolved or dialled: every connection is a pipe


@dataclass(frozen=True)
class Mount:
    """A folder of the host (or a volume of the engine) inside a container."""

    source: str  # path on the host
    destination: str  # path in the container
    writable: bool

    def on_host(self, path: str) -> str:
        """Return where ``path`` of the container, which must be in the mount, lies on the host."""
        inside = PurePosixPath(path).relative_to(self.destination)
        return str(PurePosixPath(self.source) / inside)


@dataclass(frozen=True)
class ContainerView:
    """One container as the engine sees it."""

    name: str
    id: str
    running: bool
    status: str  # running, paused, restarting, exited, created, dead
    image: str
    user: str  # "" is root
    env: Mapping[str, str]
    mounts: tuple[Mount, ...]

    def holds(self, path: str) -> Mount | None:
        """Return the innermost mount that ``path`` of the container lies in, None when it lies in
        the container's own file system."""
        wanted = PurePosixPath(path)
        found = [mount for mount in self.mounts if wanted.is_relative_to(mount.destination)]
        return max(
            found, key=lambda mount: len(PurePosixPath(mount.destination).parts), default=None
        )


def look(
    connection: Connection, name: str, docker_command: Sequence[str] = ("docker",)
) -> ContainerView:
    """Return what the engine knows about the container ``name``.

    Raises UnusableError when it is missing (naming those that run), not running or paused, or when
    the engine cannot be asked.
    """
    command = shlex.join(docker_command)
    where = f"{connection.peer}:{name}"
    with _engine(connection, docker_command, name) as client:
        try:
            view = _view(client.inspect_container(name))
        except docker.errors.NotFound:
            running = [_name(row) for row in client.containers()]
            raise _missing(where, name, running, command) from None
    if not view.running:
        raise UnusableError(
            f"container {name} is not running ({view.status})",
            where=where,
            hint=f"start it with: {command} start {name}",
        )
    if view.status == "paused":
        raise UnusableError(
            f"container {name} is paused",
            where=where,
            hint=f"wake it with: {command} unpause {name}",
        )
    return view


def who_holds(
    connection: Connection, workdir: str, docker_command: Sequence[str] = ("docker",)
) -> list[str]:
    """Return the names of the running containers in which the folder ``workdir`` exists, mounted
    or their own. Raises UnusableError when the engine cannot be asked."""
    with _engine(connection, docker_command, "") as client:
        return [
            _name(row) for row in client.containers() if _has_path(client, str(row["Id"]), workdir)
        ]


def _missing(where: str, name: str, running: Sequence[str], command: str) -> UnusableError:
    near = difflib.get_close_matches(name, running, n=3, cutoff=0.5)
    if near:
        hint = f"did you mean {' or '.join(near)}?"
    elif running:
        hint = f"running there: {', '.join(sorted(running)[:8])}"
    else:
        hint = f"no container runs there; list all with: {command} ps -a"
    return UnusableError(f"there is no container {name}", where=where, hint=hint)


def _has_path(client: _Client, container: str, path: str) -> bool:
    """Ask the engine, not a command in the container, which may have none."""
    url = f"{client.base_url}/v{client.api_version}/containers/{container}/archive"
    return bool(client.head(url, params={"path": path}, timeout=_TIMEOUT).ok)


def _view(found: Mapping[str, Any]) -> ContainerView:
    config, state = found["Config"], found["State"]
    pairs = (entry.partition("=") for entry in config.get("Env") or ())
    return ContainerView(
        name=str(found["Name"]).lstrip("/"),
        id=str(found["Id"]),
        running=bool(state["Running"]),
        status=str(state.get("Status") or ("running" if state["Running"] else "exited")),
        image=str(config.get("Image") or ""),
        user=str(config.get("User") or ""),
        env={name: value for name, _, value in pairs},
        mounts=tuple(
            Mount(str(row.get("Source", "")), str(row["Destination"]), bool(row.get("RW", True)))
            for row in found.get("Mounts") or ()
        ),
    )


def _name(row: Mapping[str, Any]) -> str:
    return str((row.get("Names") or [row["Id"][:12]])[0]).lstrip("/")


@contextlib.contextmanager
def _engine(
    connection: Connection, docker_command: Sequence[str], container: str
) -> Iterator[_Client]:
    """Give a client of the host's engine; everything that goes wrong becomes an UnusableError."""
    adapter = _Adapter(connection, docker_command)
    try:
        yield _Client(adapter)
    except MxfleetError:
        raise
    except (docker.errors.DockerException, requests.RequestException, OSError) as error:
        raise _trouble(adapter, connection, docker_command, container, error) from error
    finally:
        adapter.close()


def _trouble(
    adapter: _Adapter,
    connection: Connection,
    docker_command: Sequence[str],
    container: str,
    error: Exception,
) -> UnusableError:
    where = f"{connection.peer}:{container}" if container else connection.peer
    stderr = adapter.last_words()
    known = docker_trouble(stderr, container=container, docker_command=docker_command, where=where)
    if known:
        return known
    lines = stderr.decode("utf-8", "replace").strip().splitlines()
    reason = lines[-1].strip() if lines else str(error)
    return UnusableError(
        f"the Docker engine cannot be asked: {reason}",
        where=where,
        hint=f"try by hand: {shlex.join(docker_command)} ps",
    )


class _Client(docker.APIClient):
    """The SDK's client, whose every request goes through one adapter."""

    def __init__(self, adapter: _Adapter) -> None:
        self._adapter = adapter  # the constructor already asks the engine for its version
        super().__init__(base_url=_BASE_URL, version="auto", timeout=_TIMEOUT)
        # What HTTP_PROXY says is for the internet, not for a pipe.
        self.trust_env = False

    def get_adapter(self, url: str | bytes) -> BaseHTTPAdapter:
        """Return the adapter, whatever the URL."""
        return self._adapter


class _Adapter(BaseHTTPAdapter):
    """Carries requests over pipes to ``docker system dial-stdio``."""

    def __init__(self, connection: Connection, docker_command: Sequence[str]) -> None:
        super().__init__()
        self._pool = _Pool(connection, [*docker_command, "system", "dial-stdio"])

    def get_connection(self, url: str | bytes, proxies: Any = None) -> HTTPConnectionPool:
        """Return the one pool."""
        return self._pool

    def last_words(self) -> bytes:
        """Return what the command that was started last wrote to standard error."""
        if not self._pool.pipes:
            return b""
        self._pool.pipes[-1].wait(2.0)
        return self._pool.pipes[-1].stderr_tail()

    def close(self) -> None:
        """Close every pipe."""
        super().close()
        self._pool.close()
        for pipe in self._pool.pipes:
            pipe.close()


class _Pool(HTTPConnectionPool):
    def __init__(self, connection: Connection, argv: Sequence[str]) -> None:
        super().__init__("engine", maxsize=1)
        self._connection = connection
        self._argv = argv
        self.pipes: list[Pipe] = []

    def _new_conn(self) -> HTTPConnection:
        return _PipeHttp(self)

    def dial(self) -> socket.socket:
        """Return a socket that is bridged to a new pipe."""
        pipe = self._connection.open(self._argv)
        self.pipes.append(pipe)
        return _bridge(pipe)


class _PipeHttp(HTTPConnection):
    def __init__(self, pool: _Pool) -> None:
        super().__init__("engine", timeout=_TIMEOUT)
        self._pool = pool

    def connect(self) -> None:
        """Open a pipe in place of a TCP connection."""
        self.sock = self._pool.dial()
        self.sock.settimeout(_TIMEOUT)


def _bridge(pipe: Pipe) -> socket.socket:
    """Return a real socket for ``pipe``: HTTP libraries need timeouts and a descriptor."""
    ours, theirs = socket.socketpair()

    def inbound() -> None:
        with contextlib.suppress(OSError, MxfleetError):
            while data := pipe.read(_CHUNK):
                theirs.sendall(data)
        with contextlib.suppress(OSError):
            theirs.shutdown(socket.SHUT_RDWR)

    def outbound() -> None:
        with contextlib.suppress(OSError, MxfleetError):
            while data := theirs.recv(_CHUNK):
                pipe.write(data)
        pipe.close_write()  # its last words are still wanted; the adapter closes it
        reader.join()
        theirs.close()

    reader = threading.Thread(target=inbound, name="engine to us", daemon=True)
    reader.start()
    threading.Thread(target=outbound, name="us to engine", daemon=True).start()
    return ours
