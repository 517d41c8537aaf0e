"""Two network namespaces with a delay between them: a distant host on this machine.

netem does the delay where the kernel has it; elsewhere a pair of TUN devices does, joined by a
program that holds every packet back (``delay.py``). Both delay IP packets, so that TCP behaves as
over a long wire.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from common import delay
from common.errors import Skip

CLIENT_ADDRESS, SERVER_ADDRESS = "10.231.7.1", "10.231.7.2"
_PATIENCE = 5.0  # seconds


@dataclass(frozen=True)
class Network:
    """Names of the namespaces and what delays the packets between them."""

    client: str
    server: str
    device: str  # the client's network device
    delayed_by: str

    @staticmethod
    def inside(namespace: str, argv: Sequence[str]) -> list[str]:
        """``argv`` as a command that runs in ``namespace`` under the same process id."""
        return ["ip", "netns", "exec", namespace, *argv]


@contextmanager
def delayed_network(one_way: float) -> Iterator[Network]:
    """Two joined namespaces, ``one_way`` seconds apart; processes left in them are ended.

    Raises Skip where namespaces or both ways of delaying are not to be had.
    """
    tag = f"mxb{os.getpid()}"
    client, server = f"{tag}-client", f"{tag}-server"
    with ExitStack() as stack:
        for namespace in (client, server):
            _ip("netns", "add", namespace)
            stack.callback(_remove, namespace)
        device = f"{tag}a"
        delayed_by = "netem"
        if not _join_with_netem(client, server, tag, one_way):
            stack.enter_context(_joined_with_tun(client, server, tag, one_way))
            delayed_by = "a pair of TUN devices (this kernel has no netem)"
        for namespace, end, address in (
            (client, f"{tag}a", CLIENT_ADDRESS),
            (server, f"{tag}b", SERVER_ADDRESS),
        ):
            _ip("-n", namespace, "address", "add", f"{address}/30", "dev", end)
            _ip("-n", namespace, "link", "set", "lo", "up")
            _ip("-n", namespace, "link", "set", end, "up")
        yield Network(client, server, device, delayed_by)


def _join_with_netem(client: str, server: str, tag: str, one_way: float) -> bool:
    _ip(
        *("link", "add", f"{tag}a", "netns", client, "type", "veth"),
        *("peer", "name", f"{tag}b", "netns", server),
    )
    for namespace, end in ((client, f"{tag}a"), (server, f"{tag}b")):
        milliseconds = f"{one_way * 1000:g}ms"
        rule = ["qdisc", "add", "dev", end, "root", "netem", "delay", milliseconds]
        done = subprocess.run(
            ["tc", "-n", namespace, *rule, "limit", "100000"], capture_output=True, check=False
        )
        if done.returncode:
            _ip("-n", client, "link", "delete", f"{tag}a")
            return False
    return True


@contextmanager
def _joined_with_tun(client: str, server: str, tag: str, one_way: float) -> Iterator[None]:
    if not Path(delay.DEVICE).exists():
        raise Skip(f"no delay is to be had: the kernel has neither netem nor {delay.DEVICE}")
    program = [sys.executable, delay.__file__, f"{tag}a", f"{tag}b", f"{one_way}"]
    wire = subprocess.Popen(
        program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    assert wire.stdin is not None and wire.stdout is not None
    try:
        if wire.stdout.readline() != b"ready\n":
            raise Skip("no delay is to be had: the TUN devices cannot be made")
        _ip("link", "set", f"{tag}a", "netns", client)
        _ip("link", "set", f"{tag}b", "netns", server)
        for namespace, end in ((client, f"{tag}a"), (server, f"{tag}b")):
            _ip("-n", namespace, "link", "set", end, "txqueuelen", "100000")
        yield
    finally:
        wire.stdin.close()
        wire.wait(_PATIENCE)


def _remove(namespace: str) -> None:
    """End what still runs in the namespace, then delete it."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + _PATIENCE
        left = _processes(namespace)
        for process in left:
            try:
                os.kill(process, number)
            except ProcessLookupError:
                continue
        while left and time.monotonic() < deadline:
            time.sleep(0.05)
            left = _processes(namespace)
    subprocess.run(["ip", "netns", "delete", namespace], capture_output=True, check=False)


def _processes(namespace: str) -> list[int]:
    done = subprocess.run(
        ["ip", "netns", "pids", namespace], capture_output=True, text=True, check=False
    )
    return [int(word) for word in done.stdout.split()]


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        said = " ".join(done.stderr.split())
        raise Skip(f"`ip {' '.join(words)}` failed: {said}")
