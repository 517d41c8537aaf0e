"""Frames survive any cut of the stream; what is not a frame is refused."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.transport.agent import wire

FRAMES = st.lists(
    st.tuples(st.sampled_from("JDEH"), st.integers(0, 2**32 - 1), st.binary(max_size=300)),
    max_size=8,
)


def reader(data: bytes, cuts: Callable[[], int]) -> Callable[[int], bytes]:
    at = 0

    def read(size: int) -> bytes:
        nonlocal at
        part = data[at : at + min(size, cuts())]
        at += len(part)
        return part

    return read


@given(FRAMES, st.data())
def test_any_frames_through_any_cuts(
    frames: list[tuple[str, int, bytes]], data: st.DataObject
) -> None:
    stream = bytearray()
    writer = wire.FrameWriter(stream.extend)
    for frame in frames:
        writer.frame(*frame)
    read = reader(bytes(stream), lambda: data.draw(st.integers(1, 50)))
    assert [tuple(frame) for frame in iter(lambda: wire.read_frame(read), None)] == frames


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"X" + bytes(8), "not a frame"),
        (b"Welcome to this machine\n", "not a frame"),
        (wire.HEADER.pack(b"D", 1, wire.MAX_PAYLOAD + 1), "not a frame"),
        (wire.HEADER.pack(b"D", 1, 5) + b"abc", "in the middle"),
        (wire.HEADER.pack(b"D", 1, 5), "in the middle"),
        (wire.HEADER.pack(b"D", 1, 5)[:4], "in the middle"),
    ],
)
def test_what_is_not_a_frame(data: bytes, message: str) -> None:
    with pytest.raises(wire.WireError, match=message):
        wire.read_frame(reader(data, lambda: 3))


@pytest.mark.parametrize("payload", [b"", b"{", b"[1]", b"\xff", b"null"])
def test_control_frames_are_objects(payload: bytes) -> None:
    with pytest.raises(wire.WireError):
        wire.Frame("J", 1, payload).json()


def test_a_message_that_would_be_refused_is_not_sent() -> None:
    sent = bytearray()
    writer = wire.FrameWriter(sent.extend)
    with pytest.raises(wire.WireError, match="too large"):
        writer.json(1, {"x": "y" * wire.MAX_PAYLOAD})
    assert not sent


def test_names_that_are_not_utf8_survive() -> None:
    sent = bytearray()
    wire.FrameWriter(sent.extend).json(
        1, {"name": b"\xff\xc3\xa4".decode("utf-8", "surrogateescape")}
    )
    frame = wire.read_frame(reader(bytes(sent), lambda: 99))
    assert frame is not None
    assert frame.json()["name"].encode("utf-8", "surrogateescape") == b"\xff\xc3\xa4"


def test_an_inbox_holds_its_filler_until_it_is_read() -> None:
    inbox = wire.Inbox(limit=2)
    waited = threading.Event()
    frames = [wire.Frame("D", 1, bytes([n])) for n in range(5)]

    def fill() -> None:
        for frame in frames:
            inbox.put(frame, waited.set)
        inbox.close()

    thread = threading.Thread(target=fill)
    thread.start()
    assert waited.wait(10)  # full: the filler does what it has to do meanwhile
    assert list(iter(inbox.get, None)) == frames
    thread.join(10)
    assert not thread.is_alive()


def test_a_closed_inbox_lets_its_filler_go() -> None:
    inbox = wire.Inbox(limit=1)
    inbox.put(wire.Frame("D", 1, b"a"), lambda: None)
    thread = threading.Thread(target=inbox.put, args=(wire.Frame("D", 1, b"b"), lambda: None))
    thread.start()
    inbox.close()
    thread.join(10)
    assert not thread.is_alive()
    assert inbox.get() == wire.Frame("D", 1, b"a")
    assert inbox.get() is None


def test_an_inbox_can_be_asked_with_patience() -> None:
    with pytest.raises(TimeoutError):
        wire.Inbox().get(0.01)


@pytest.mark.parametrize(("lease", "expected"), [(15.0, 2.0), (1.0, 0.2)])
def test_several_heartbeats_fit_into_a_lease(lease: float, expected: float) -> None:
    assert wire.beat(lease) == expected
