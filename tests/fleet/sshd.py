"""A private sshd for tests of the transport: own keys, own configuration, a free port."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from orchestrator.transport.endpoint import Endpoint


def find_sshd() -> str:
    """Return the path of sshd; skips, or fails where the fleet tests must run."""
    found = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    if found and shutil.which("ssh-keygen"):
        return found
    if os.environ.get("MXFLEET_REQUIRE_FLEET") == "1":
        pytest.fail("sshd is missing: apt-get install openssh-server openssh-client")
    pytest.skip("needs sshd: apt-get install openssh-server openssh-client")


def keygen(path: Path, kind: str = "ed25519", passphrase: str = "") -> Path:
    """Make a key pair and return the private key's path."""
    bits = ["-b", "2048"] if kind == "rsa" else []  # the default takes a second
    subprocess.run(
        ["ssh-keygen", "-q", "-t", kind, *bits, "-N", passphrase, "-C", path.name, "-f", path],
        check=True,
    )
    return path


def free_port() -> int:
    """Return a port that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Sshd:
    """A running sshd, ended by ``stop``; ``config`` writes client configurations for it."""

    def __init__(self, folder: Path, options: Mapping[str, str] | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.port = free_port()
        self.user = os.environ.get("USER") or "root"
        self.client_key = keygen(folder / "client")
        self.known_hosts = folder / "known_hosts"
        self.log = folder / "log"
        for kind in ("ed25519", "ecdsa", "rsa"):
            keygen(folder / f"host_{kind}", kind)
        authorized = folder / "authorized"
        authorized.write_text((folder / "client.pub").read_text())
        settings = {
            "ListenAddress": f"127.0.0.1:{self.port}",
            "AuthorizedKeysFile": str(authorized),
            "PidFile": "none",
            "StrictModes": "no",
            "UsePAM": "no",
            "PasswordAuthentication": "no",
            "PermitRootLogin": "yes",
            "LogLevel": "VERBOSE",
            **(options or {}),
        }
        lines = [f"HostKey {folder}/host_{kind}" for kind in ("rsa", "ecdsa", "ed25519")]
        lines += [f"{key} {value}" for key, value in settings.items()]
        self._config = folder / "sshd_config"
        self._config.write_text("\n".join(lines) + "\n")
        self.start()

    def start(self) -> None:
        """Start it and wait until it listens."""
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)
        argv = [find_sshd(), "-D", "-f", str(self._config), "-E", str(self.log)]
        self._process = subprocess.Popen(argv, start_new_session=True)
        for _ in range(200):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
                return
            time.sleep(0.02)
        raise AssertionError(f"sshd does not start: {self.log.read_text()}")

    def stop(self) -> None:
        """End it and every session on it."""
        for pid in [*descendants(self._process.pid), self._process.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()

    @property
    def listener(self) -> int:
        """Return the process that takes new connections."""
        return self._process.pid

    def sessions(self) -> list[int]:
        """Return the processes that serve connections."""
        return descendants(self._process.pid)

    def public(self, kind: str) -> str:
        """Return type and key of a host key, as known_hosts has them."""
        return " ".join((self.folder / f"host_{kind}.pub").read_text().split()[:2])

    @property
    def known_as(self) -> str:
        """The name under which the host key is known."""
        return f"[127.0.0.1]:{self.port}"

    def endpoint(
        self,
        transport: str = "ssh",
        *,
        name: str = "c500-01",
        extra: str = "",
        key: Path | None = None,
        host_keys: str = "accept-new",
        timeout: float = 20.0,
    ) -> Endpoint:
        """Return the way here, through an SSH configuration of its own; ``extra`` comes first."""
        path = self.folder / f"client_{name}_{abs(hash(extra))}"
        path.write_text(f"{extra}\n{self.host_block(name, key)}")
        return Endpoint(
            name,
            transport=transport,  # type: ignore[arg-type]
            ssh_config=path,
            host_keys=host_keys,  # type: ignore[arg-type]
            connect_timeout=timeout,
        )

    def host_block(self, name: str, key: Path | None = None) -> str:
        """Return the lines of an SSH configuration for ``name``."""
        return (
            f"Host {name}\n HostName 127.0.0.1\n Port {self.port}\n User {self.user}\n"
            f" IdentityFile {key or self.client_key}\n IdentitiesOnly yes\n IdentityAgent none\n"
            f" UserKnownHostsFile {self.known_hosts}\n GlobalKnownHostsFile none\n"
            " HashKnownHosts no\n"
        )


def descendants(pid: int) -> list[int]:
    """Return the children of a process and theirs, the youngest last."""
    done = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True)
    parents = {int(row.split()[0]): int(row.split()[1]) for row in done.stdout.splitlines()}
    found = [child for child, parent in parents.items() if parent == pid]
    return [*found, *(deeper for child in found for deeper in descendants(child))]
