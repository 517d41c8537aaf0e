"""Output bytes to lines, as they come, with bounded memory."""

from __future__ import annotations

import codecs
from collections.abc import Iterator

# A longer line is passed on in pieces: a program that prints no line end must not fill memory.
LONGEST_LINE = 64 * 1024


class LineSplitter:
    """Cuts one stream into decoded lines without their ends.

    Bytes that are not UTF-8 become U+FFFD; a character split over two pieces stays whole. A
    carriage return within a line (a progress bar) ends it as well.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""
        self._after_return = False

    def feed(self, data: bytes, final: bool = False) -> Iterator[str]:
        """Yield the lines that ``data`` completes; with ``final`` also an unfinished last one."""
        text = self._decoder.decode(data, final)
        if self._after_return and text:
            text = text.removeprefix("\n")
            self._after_return = False
        if text.endswith("\r") and not final:
            self._after_return = True
        self._rest += text.replace("\r\n", "\n").replace("\r", "\n")
        *lines, self._rest = self._rest.split("\n")
        for line in lines:
            yield from _pieces(line)
        while len(self._rest) > LONGEST_LINE:
            yield self._rest[:LONGEST_LINE]
            self._rest = self._rest[LONGEST_LINE:]
        if final and self._rest:
            yield self._rest
            self._rest = ""


def _pieces(line: str) -> Iterator[str]:
    if len(line) <= LONGEST_LINE:
        yield line
        return
    for start in range(0, len(line), LONGEST_LINE):
        yield line[start : start + LONGEST_LINE]
