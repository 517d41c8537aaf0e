"""Lines come out the same however the bytes were cut, as soon as they are whole."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.execute import lines
from orchestrator.execute.lines import LONGEST_LINE, LineSplitter


def reference(data: bytes, longest: int = LONGEST_LINE) -> list[str]:
    """All at once, with nothing incremental about it."""
    text = data.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")
    whole = text.split("\n")
    if not whole[-1]:
        whole.pop()
    found = []
    for line in whole:
        found += [line[at : at + longest] for at in range(0, max(1, len(line)), longest)]
    return found


def cut(data: bytes, sizes: list[int]) -> list[bytes]:
    parts = []
    turn = 0
    while data:
        size = sizes[turn % len(sizes)]
        parts.append(data[:size])
        data = data[size:]
        turn += 1
    return parts


def split(parts: list[bytes]) -> list[str]:
    splitter = LineSplitter()
    found = [line for part in parts for line in splitter.feed(part)]
    return found + list(splitter.feed(b"", final=True))


BYTES = st.lists(
    st.one_of(
        st.sampled_from(
            [b"\n", b"\r", b"\r\n", b"\n\r", b"", b"\xe4", b"\xe4\xb8", b"\xff", b"\0"]
        ),
        st.text(max_size=8).map(str.encode),
        st.binary(max_size=8),
    ),
    max_size=30,
).map(b"".join)
SIZES = st.lists(st.integers(1, 9), min_size=1, max_size=6)


@given(BYTES, SIZES)
def test_any_bytes_in_any_pieces(data: bytes, sizes: list[int]) -> None:
    assert split(cut(data, sizes)) == reference(data)


@given(BYTES, SIZES)
def test_long_lines_in_any_pieces(data: bytes, sizes: list[int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "LONGEST_LINE", 5)
        assert split(cut(data, sizes)) == reference(data, 5)


@given(BYTES)
def test_a_line_is_not_held_back(data: bytes) -> None:
    splitter = LineSplitter()
    assert list(splitter.feed(data + b"\n"))[-1:] == reference(data + b"\n")[-1:]
    # What is left is at most an unfinished carriage return.
    assert list(splitter.feed(b"", final=True)) == []


def test_memory_stays_bounded() -> None:
    splitter = LineSplitter()
    count = 0
    for _ in range(100):
        count += sum(len(line) for line in splitter.feed(b"x" * LONGEST_LINE))
        assert len(splitter._rest) <= LONGEST_LINE
    assert count >= 99 * LONGEST_LINE
