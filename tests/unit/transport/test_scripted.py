"""The scripted transport does to a link what its faults say, and nothing else."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import BinaryIO

import pytest

from orchestrator.errors import LinkLostError, UnreachableError
from orchestrator.transport.base import Pipe
from orchestrator.transport.scripted import Faults, ScriptedConnection


def shout(argv: Sequence[str], stdin: BinaryIO, stdout: BinaryIO) -> int:
    for line in stdin:
        stdout.write(line.upper())
    return len(argv)


def read_until_end(pipe: Pipe) -> tuple[bytes, str]:
    out = b""
    try:
        while data := pipe.read(4):
            out += data
    except LinkLostError as error:
        return out, error.message
    return out, ""


@pytest.mark.parametrize("script", [None, shout])
@pytest.mark.parametrize(
    ("faults", "expected", "ended"),
    [
        (Faults(), b"ABCDEF\n", ""),
        (Faults(noise=b"Welcome!\n"), b"Welcome!\nABCDEF\n", ""),
        (Faults(delay=0.01), b"ABCDEF\n", ""),
        (Faults(cut_read_after=0), b"", "the scripted link broke"),
        (Faults(cut_read_after=3), b"ABC", "the scripted link broke"),
        (Faults(noise=b"hey", cut_read_after=3), b"heyABC", "the scripted link broke"),
        (Faults(cut_read_after=700), b"ABCDEF\n", ""),
    ],
)
def test_reading(script: object, faults: Faults, expected: bytes, ended: str) -> None:
    connection = ScriptedConnection(script=script, faults=faults)  # type: ignore[arg-type]
    pipe = connection.open(["tr", "a-z", "A-Z"])
    if faults.cut_read_after != 0:
        pipe.write(b"abcdef\n")
        pipe.close_write()
    assert read_until_end(pipe) == (expected, ended)
    connection.close()


def test_status_of_a_function() -> None:
    pipe = ScriptedConnection(script=shout).open(["a", "b", "c"])
    pipe.close_write()
    assert pipe.read(1) == b""
    assert pipe.wait(5) == 3


def test_write_is_cut_in_the_middle() -> None:
    seen: list[bytes] = []

    def listen(argv: Sequence[str], stdin: BinaryIO, stdout: BinaryIO) -> int:
        seen.append(stdin.read())
        return 0

    pipe = ScriptedConnection(script=listen, faults=Faults(cut_write_after=5)).open(["x"])
    pipe.write(b"abc")
    with pytest.raises(LinkLostError):
        pipe.write(b"defgh")
    with pytest.raises(LinkLostError):
        pipe.read(1)
    for _ in range(100):
        if seen:
            break
        threading.Event().wait(0.02)
    assert seen == [b"abcde"]


@pytest.mark.parametrize("later", [False, True], ids=["by count", "on command"])
def test_black_hole(later: bool) -> None:
    connection = ScriptedConnection(faults=Faults() if later else Faults(silent_after=3))
    pipe = connection.open(["cat"])
    pipe.write(b"abcdef")
    assert pipe.read(3) == b"abc"
    if later:
        connection.silence()
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read(100)))
    reader.start()
    reader.join(0.1)
    assert reader.is_alive()  # no end of file, no error
    pipe.write(b"swallowed")
    assert pipe.wait(0.01) is None
    pipe.close()
    reader.join(5)
    assert got == [b""]


def test_cut_on_command_wakes_the_reader() -> None:
    connection = ScriptedConnection()
    pipe = connection.open(["sleep", "30"])
    ended: list[str] = []
    reader = threading.Thread(target=lambda: ended.append(read_until_end(pipe)[1]))
    reader.start()
    reader.join(0.1)
    assert reader.is_alive()
    connection.cut()
    reader.join(5)
    assert ended == ["the scripted link broke"]


def test_refused() -> None:
    connection = ScriptedConnection("c500-01", faults=Faults(refuse="no way in"))
    with pytest.raises(UnreachableError, match="c500-01: no way in"):
        connection.open(["true"])
    assert connection.opened == [["true"]]
