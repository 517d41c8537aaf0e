"""A terminal for tests: pyte's emulator as a text stream, with every redraw looked at."""

from __future__ import annotations

import io
import re

import pyte

# Between two writes nothing may be left switched off.
_SWITCHES = re.compile(r"\x1b\[\?(7|25)([hl])")


class Terminal(io.StringIO):
    """An 80×24 terminal (or another size) that remembers each frame it was asked to draw."""

    def __init__(self, columns: int = 80, rows: int = 24) -> None:
        super().__init__()
        self.size = (columns, rows)
        self.screen = pyte.HistoryScreen(columns, rows, history=100_000)
        self._feed = pyte.Stream(self.screen)
        self.frames: list[list[str]] = []
        self.raw: list[str] = []

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.raw.append(text)
        self._feed.feed(text.replace("\n", "\r\n"))
        state = dict(_SWITCHES.findall(text))
        assert all(value == "h" for value in state.values()), "the terminal is left changed"
        if state:
            self.frames.append(self.lines())
        return len(text)

    def resize(self, columns: int, rows: int) -> None:
        self.size = (columns, rows)
        self.screen.resize(rows, columns)

    def lines(self) -> list[str]:
        """What is on the screen, without the blank lines at its end."""
        lines = [line.rstrip() for line in self.screen.display]
        while lines and not lines[-1]:
            lines.pop()
        return lines

    def scrolled(self) -> list[str]:
        """What left the screen at its top."""
        return [
            "".join(line[column].data for column in range(self.size[0])).rstrip()
            for line in self.screen.history.top
        ]
