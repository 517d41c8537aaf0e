"""Where the loopback fleet keeps things: the state folder, and one host's part of it.

<state>/fleet.json  client_key  ssh_config  known_hosts  cache/  home/mxloop/
<state>/hosts/loop1/  host.json (its port)  processes.json  docker.sock  *.log  engine/  run/
                      home/ (HOME of its ssh sessions, so that hosts share no files by accident)
                      share/ (at /share in its container)  locks/ (of its devices)
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CONTAINER = "vllm-dsv4"
USER = "mxloop"
FIRST_PORT = 22201  # below the ephemeral ports, so that no outgoing connection takes it
LONGEST_SOCKET = 107  # bytes in sockaddr_un.sun_path, without the closing zero


class FleetError(Exception):
    """What is wrong and what to do, in one sentence."""


class UnfitError(FleetError):
    """This machine cannot carry a fleet: no root, a missing package, no Python with torch."""


def default_state() -> Path:
    return Path(os.environ.get("MXFLEET_LOOPBACK") or "/var/lib/mxfleet-loopback")


def absolute(path: Path) -> Path:
    """From the root, without `..`; links stay: an environment's Python is one."""
    return Path(os.path.normpath(path.absolute()))


def read_json(path: Path) -> dict[str, Any]:
    """The object in `path`; empty when there is none or a crash left half of it."""
    try:
        value = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def write_file(path: Path, text: str, mode: int = 0o644) -> None:
    """Replace `path` as a whole: whoever reads it meanwhile sees the old or the new text."""
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_text(text)
    fresh.chmod(mode)
    fresh.replace(path)


class State:
    """The state folder. Its path has no blanks (OpenSSH's files) and is short (sockets)."""

    def __init__(self, root: Path) -> None:
        self.root = absolute(root)
        self.ssh_config = self.root / "ssh_config"
        self.known_hosts = self.root / "known_hosts"
        self.client_key = self.root / "client_key"
        self.cache = self.root / "cache"
        self.user_home = self.root / "home" / USER
        self._fleet = self.root / "fleet.json"
        if any(c.isspace() or c in "\"'%#$\\:," for c in str(self.root)):
            raise FleetError(
                f"{self.root}: blanks and quotes do not work here; use another --state"
            )
        longest = Host(self, Host.MOST).run / "containerd.sock.ttrpc"
        if len(os.fsencode(longest)) > LONGEST_SOCKET:
            raise FleetError(f"{self.root}: too long for a Unix socket; choose a shorter --state")

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the fleet's lock, so that a second `up` or `down` waits."""
        while True:
            self.root.mkdir(mode=0o755, parents=True, exist_ok=True)
            self._check_passable()
            with (self.root / "lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                # `down --purge` may have removed the folder while this waited for its lock.
                try:
                    same = os.path.samestat(os.fstat(lock.fileno()), (self.root / "lock").stat())
                except FileNotFoundError:
                    same = False
                if same:
                    yield
                    return

    def _check_passable(self) -> None:
        for folder in (self.root, *self.root.parents):
            if not folder.stat().st_mode & 0o001:
                raise FleetError(
                    f"{folder} is closed to other users, so the ordinary login cannot use "
                    f"{self.root}: chmod o+x it or choose another --state"
                )

    def size(self) -> int:
        return int(read_json(self._fleet).get("size", 0))

    def python(self) -> str:
        return str(read_json(self._fleet).get("python", ""))

    def save(self, size: int, python: Path) -> None:
        write_file(self._fleet, json.dumps({"size": size, "python": str(python)}))

    def forget_size(self) -> None:
        self._fleet.unlink(missing_ok=True)

    def hosts(self) -> list[Host]:
        """The hosts that should run, loop1 first."""
        return [Host(self, number) for number in range(1, self.size() + 1)]

    def all_hosts(self) -> list[Host]:
        """Every host with a folder, also what an interrupted `up` left."""
        found = [Host(self, number) for number in range(1, Host.MOST + 1)]
        return [host for host in found if host.root.exists()]

    def remove(self) -> None:
        shutil.rmtree(self.root)


class Host:
    """One host's names, paths and port."""

    MOST = 99

    def __init__(self, state: State, number: int) -> None:
        self.state = state
        self.name = f"loop{number}"
        self.user = "root" if number % 2 else USER
        self.root = state.root / "hosts" / self.name
        self.share = self.root / "share"
        self.locks = self.root / "locks"
        self.engine = self.root / "engine"
        self.run = self.root / "run"
        self.docker_socket = self.root / "docker.sock"
        self.docker_url = f"unix://{self.docker_socket}"
        self.processes = self.root / "processes.json"

    def home(self, user: str) -> Path:
        return self.root / "home" / user

    def create_folders(self) -> None:
        for folder in (self.root, self.share, self.engine, self.run):
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(0o755)
        self.locks.mkdir(exist_ok=True)
        self.locks.chmod(0o1777)

    @property
    def port(self) -> int:
        """The port of its sshd, 0 before the first start."""
        return int(read_json(self.root / "host.json").get("port", 0))

    def choose_port(self) -> int:
        """A port nobody listens on: the remembered one, else the next free one, then remembered."""
        taken = {host.port for host in self.state.all_hosts() if host.name != self.name}
        candidates: list[int] = [self.port, *range(FIRST_PORT, FIRST_PORT + 2000)]
        for port in candidates:
            if port and port not in taken and _is_free(port):
                write_file(self.root / "host.json", json.dumps({"port": port}))
                return port
        raise FleetError(f"no free port on 127.0.0.1 from {FIRST_PORT} on: end what holds them")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
