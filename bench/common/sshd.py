"""A throwaway sshd with its own keys in a namespace, and the files a client needs."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from common.errors import Skip
from common.network import SERVER_ADDRESS, Network
from common.tools import find

PORT = 22
_PATIENCE = 10.0  # seconds


@contextmanager
def running_sshd(network: Network, folder: Path, environment: Mapping[str, str]) -> Iterator[Path]:
    """Run sshd in the server's namespace; gives an ssh_config with the host ``far`` (root).

    ``environment`` is set for every session. HOME is an empty folder: start-up files of this
    machine's root would be counted with every command. Raises Skip when sshd does not start.
    """
    config = write_files(
        folder, f"Host far\n  HostName {SERVER_ADDRESS}", PORT, [SERVER_ADDRESS], environment
    )
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # sshd insists on it
    command = daemon_command(folder)
    with (folder / "sshd.log").open("wb") as log:
        daemon = _start(network, command, log)
        try:
            yield config
        finally:
            daemon.terminate()
            daemon.wait(_PATIENCE)


def write_files(
    folder: Path,
    head: str,
    port: int,
    addresses: Sequence[str],
    environment: Mapping[str, str],
    options: str = "",
) -> Path:
    """Keys, sshd_config and known_hosts in ``folder``; returns the ssh_config, begun by ``head``.

    The server listens on the address, on all where there are several; ``options`` are further
    lines of its configuration.
    """
    home = folder / "home"
    home.mkdir()
    for name in ("host_key", "client_key"):
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(words, check=True)
    kind, key = (folder / "host_key.pub").read_text().split()[:2]
    names = [name if port == 22 else f"[{name}]:{port}" for name in addresses]
    (folder / "known_hosts").write_text("".join(f"{name} {kind} {key}\n" for name in names))
    (folder / "authorized_keys").write_text((folder / "client_key.pub").read_text())
    pairs = " ".join(f"{name}={value}" for name, value in {"HOME": home, **environment}.items())
    listen = addresses[0] if len(addresses) == 1 else "0.0.0.0"
    (folder / "sshd_config").write_text(
        f"ListenAddress {listen}\nPort {port}\nHostKey {folder}/host_key\n"
        f"AuthorizedKeysFile {folder}/authorized_keys\nStrictModes no\nPidFile none\n"
        "PermitRootLogin prohibit-password\nPasswordAuthentication no\nUsePAM no\n"
        f"Subsystem sftp internal-sftp\nSetEnv {pairs}\n{options}"
    )
    config = folder / "ssh_config"
    config.write_text(
        f"{head}\n  Port {port}\n  User root\n"
        f"  IdentityFile {folder}/client_key\n  IdentitiesOnly yes\n  BatchMode yes\n"
        f"  UserKnownHostsFile {folder}/known_hosts\n"
    )
    return config


def daemon_command(folder: Path) -> list[str]:
    """What starts the sshd of ``folder`` in the foreground."""
    return [find("sshd"), "-D", "-e", "-f", str(folder / "sshd_config")]


def _start(network: Network, command: list[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
    daemon = subprocess.Popen(
        network.inside(network.server, command),
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
    )
    probe = f"import socket; socket.create_connection(({SERVER_ADDRESS!r}, {PORT}), 2).recv(4)"
    for _ in range(50):
        if daemon.poll() is not None:
            break
        done = subprocess.run(
            network.inside(network.client, ["python3", "-c", probe]),
            capture_output=True,
            check=False,
        )
        if done.returncode == 0:
            return daemon
    daemon.terminate()
    said = Path(log.name).read_text(errors="replace").strip().splitlines()
    raise Skip(f"sshd does not answer in its namespace: {said[-1] if said else 'it says nothing'}")


def round_trip(samples: int = 20) -> list[float]:
    """Seconds that a TCP handshake with the sshd takes, from the client's namespace."""
    seconds = []
    for _ in range(samples):
        began = time.perf_counter()
        link = socket.create_connection((SERVER_ADDRESS, PORT), 5)
        seconds.append(time.perf_counter() - began)
        link.recv(1)  # let sshd greet before we hang up, or it logs a scanner
        link.close()
    return seconds
