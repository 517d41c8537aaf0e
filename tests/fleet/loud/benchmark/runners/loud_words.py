"""What the loud operator says, computed by itself and by the tests that check what arrived.

In a flood standard output has only even bytes and standard error only odd ones, so that either can
be found again in a log that holds both. All 256 bytes occur.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

EVEN = bytes(range(0, 256, 2))
ODD = bytes(range(1, 256, 2))
MEGABYTE = 1 << 20
SHORT_LINES = 100  # after each line of a megabyte
BAR = b"\x1b[31m57%\xe5\x8d\xb5\x1b[m\r"  # odd bytes
LINE = b"thx \xe4\xb8\xac \xe2\x80\xa6\n"  # even bytes
# Titles, clearing, other pages, text that runs backwards, half a sequence.
ESCAPES = ("\x1b]0;title\x07", "\x1b[2J\x1b[H", "\x9b31m", "\u202eright to left", "\x1b[?1049h\x1b")


def flood(stream: int, megabytes: int) -> Iterator[bytes]:
    """The parts of a stream's flood: a line of random bytes, then short ones, and so on."""
    block = random.Random(stream).randbytes(MEGABYTE - 1)
    if stream == 1:
        block, end, short = bytes(b & 0xFE for b in block).replace(b"\n", b"\f"), b"\n", LINE
    else:
        block, end, short = bytes(b | 1 for b in block).replace(b"\r", b"\v"), b"\r", BAR
    for number in range(megabytes):
        turn = number * 7919 % len(block)
        yield block[turn:] + block[:turn] + end + short * SHORT_LINES


def text(stream: int, megabytes: int) -> str:
    """Text in which nearly every byte is part of a longer character; it has no line end."""
    letters = "中文字…é𝔘̈" if stream == 1 else "卵𝄞ß"
    return f"{stream}" + letters * (megabytes * MEGABYTE // len(letters.encode()))


def bars(stream: int) -> bytes:
    """A progress bar and lines that would act on a terminal, with every kind of line end."""
    steps = "".join(f"{stream}: {percent:3}%\r" for percent in range(0, 101, 5))
    lines = "".join(f"{stream}: {escape}{end}" for escape in ESCAPES for end in ("\n", "\r\n"))
    return (steps + "\n" + lines).encode() + b"\xff\xfe\xc3(\xe4\xb8\n\xf0\x9f"
