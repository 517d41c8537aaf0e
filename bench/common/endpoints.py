"""Many SSH endpoints on this machine: one sshd behind as many loopback addresses."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from common.errors import Skip
from common.sshd import daemon_command, write_files

NETWORK = "127.77.0"
_PATIENCE = 10.0  # seconds
# Bound to all addresses, because sshd binds to at most 16: nobody else may come in.
# One key exchange for all clients: some prefer sntrup761, which costs ssh 80 ms of CPU, and
# some do not have it.
_OPTIONS = (
    "MaxStartups 10000\nAllowUsers root@127.*\n"
    "KexAlgorithms curve25519-sha256,curve25519-sha256@libssh.org\n"
)


def addresses(count: int) -> list[str]:
    """``count`` loopback addresses; Linux answers on all of 127.0.0.0/8."""
    return [f"{NETWORK}.{number}" for number in range(1, count + 1)]


@contextmanager
def endpoints(count: int, folder: Path) -> Iterator[Path]:
    """Run an sshd that ``count`` addresses lead to; gives an ssh_config that has them all (root).

    It takes every login that comes, however many at once: what the server would refuse is not
    measured. Raises Skip when it does not start.
    """
    port = _free_port()
    config = write_files(folder, f"Host {NETWORK}.*", port, addresses(count), {}, _OPTIONS)
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # sshd insists on it
    with (folder / "sshd.log").open("wb") as log:
        daemon = subprocess.Popen(
            daemon_command(folder),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        if not _answers(daemon, addresses(count)[-1:], port):
            said = (folder / "sshd.log").read_text(errors="replace").strip().splitlines()
            raise Skip(f"sshd does not answer: {said[-1] if said else 'it says nothing'}")
        yield config
    finally:
        daemon.terminate()
        daemon.wait(_PATIENCE)


def _answers(daemon: subprocess.Popen[bytes], names: Sequence[str], port: int) -> bool:
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline and daemon.poll() is None:
        try:
            for name in names:
                with socket.create_connection((name, port), 2) as link:
                    link.recv(1)  # let it greet, or it logs a scanner
            return True
        except OSError:
            time.sleep(0.05)
    return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        port: int = probe.getsockname()[1]
        return port
