"""Pipes to local processes: every byte, both ways, and no call that cannot be woken."""

from __future__ import annotations

import hashlib
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.errors import LinkLostError, UnusableError
from orchestrator.transport.base import STDERR_TAIL, Pipe
from orchestrator.transport.connect import connect
from orchestrator.transport.endpoint import Endpoint
from orchestrator.transport.local import LocalConnection


@pytest.fixture
def connection() -> Iterator[LocalConnection]:
    connection = connect(Endpoint("here", transport="local"))
    assert isinstance(connection, LocalConnection)
    yield connection
    connection.close()


def read_all(pipe: Pipe) -> bytes:
    out = bytearray()
    while data := pipe.read(1 << 16):
        out += data
    return bytes(out)


def run(connection: LocalConnection, program: str) -> tuple[bytes, int | None, bytes]:
    pipe = connection.open([sys.executable, "-S", "-c", program])
    out = read_all(pipe)
    status = pipe.wait(10)
    tail = pipe.stderr_tail()
    pipe.close()
    return out, status, tail


@pytest.mark.parametrize(
    ("program", "out", "status", "tail"),
    [
        ("print('hi')", b"hi\n", 0, b""),
        ("import sys; sys.exit('no')", b"", 1, b"no\n"),
        ("import os; os.write(1, bytes(range(256)))", bytes(range(256)), 0, b""),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", b"", 137, b""),
        # More on standard error than a pipe holds must not block the command.
        (
            "import sys; sys.stderr.write('x' * 3_000_000 + 'end'); print('done'); sys.exit(3)",
            b"done\n",
            3,
            b"x" * (STDERR_TAIL - 3) + b"end",
        ),
    ],
)
def test_end_of_a_command(
    connection: LocalConnection, program: str, out: bytes, status: int, tail: bytes
) -> None:
    assert run(connection, program) == (out, status, tail)


def test_fifty_megabytes_both_ways_at_once(connection: LocalConnection) -> None:
    data = os.urandom(1 << 20) * 50
    pipe = connection.open(["cat"])

    def feed() -> None:
        pipe.write(data)
        pipe.close_write()

    writer = threading.Thread(target=feed)
    writer.start()
    echoed = read_all(pipe)
    writer.join()
    assert hashlib.sha256(echoed).digest() == hashlib.sha256(data).digest()
    assert pipe.wait(10) == 0
    pipe.close()


@pytest.mark.parametrize(
    "program",
    [
        "import time; time.sleep(60)",
        # A grandchild that keeps standard output open outlives its parent.
        "import subprocess; subprocess.Popen(['sleep', '5'])",
    ],
)
def test_close_wakes_a_blocked_reader(connection: LocalConnection, program: str) -> None:
    pipe = connection.open([sys.executable, "-S", "-c", program])
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read(10)))
    reader.start()
    reader.join(0.2)
    assert reader.is_alive()
    pipe.close()
    pipe.close()
    reader.join(10)
    assert got == [b""]
    assert pipe.read(10) == b""


def test_close_wakes_a_blocked_writer(connection: LocalConnection) -> None:
    pipe = connection.open(["sleep", "5"])
    failures: list[Exception] = []

    def feed() -> None:
        try:
            pipe.write(b"x" * (8 << 20))
        except LinkLostError as error:
            failures.append(error)

    writer = threading.Thread(target=feed)
    writer.start()
    writer.join(0.2)
    assert writer.is_alive()
    pipe.close()
    writer.join(10)
    assert "closed" in str(failures[0])


def test_write_to_an_ended_command(connection: LocalConnection) -> None:
    pipe = connection.open(["true"])
    assert pipe.wait(10) == 0
    with pytest.raises(LinkLostError, match="no longer reads"):
        pipe.write(b"x" * (4 << 20))
    pipe.close()


def test_wait_has_a_limit(connection: LocalConnection) -> None:
    pipe = connection.open(["sleep", "30"])
    assert pipe.wait(0.01) is None
    pipe.close()


def test_missing_command(connection: LocalConnection) -> None:
    with pytest.raises(UnusableError, match=r"here: cannot start no-such-command: No such file"):
        connection.open(["no-such-command"])


def test_no_descriptor_is_left(connection: LocalConnection) -> None:
    descriptors = Path("/proc/self/fd")
    if not descriptors.is_dir():
        pytest.skip("counts descriptors in /proc")
    run(connection, "pass")
    before = len(list(descriptors.iterdir()))
    for _ in range(5):
        run(connection, "pass")
    for _ in range(500):  # the thread that drains standard error closes them
        if len(list(descriptors.iterdir())) <= before:
            return
        threading.Event().wait(0.02)
    pytest.fail(f"descriptors left: {sorted(path.name for path in descriptors.iterdir())}")


def test_own_session(connection: LocalConnection) -> None:
    """Ctrl-C at our terminal goes to our process group only."""
    out, _, _ = run(connection, "import os; print(os.getsid(0) == os.getpid())")
    assert out == b"True\n"
