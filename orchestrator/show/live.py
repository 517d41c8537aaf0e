"""The live view of many targets on a terminal: drawn in place, gone when the run ends.

A thread of its own draws at most ten times a second and spends little of a core on it, so that an
event costs next to nothing and a terminal that stands still (Ctrl-S) holds up no job. Between two
writes the terminal is as it was found: the cursor is shown and lines wrap, so nothing has to be
put right when the process is killed. What others write to stderr meanwhile goes above the view.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TextIO, cast

from orchestrator.errors import InterruptedRun
from orchestrator.events import Event, JobEnded, MatrixLine, Merged, Note, Outlier, Row, Summary
from orchestrator.show.frame import frame, said
from orchestrator.show.hostset import host_set
from orchestrator.show.plain import PlainRenderer, painted
from orchestrator.show.progress import Progress, shortened
from orchestrator.show.stream import LineStream
from orchestrator.show.table import no_paint

SHORTEST = 0.1  # seconds between two redraws
LONGEST = 1.0  # the clock goes on also when nothing happens
_SHARE = 0.2  # of the time that drawing may take
_MOST_UNSEEN = 2000  # events that wait for the next redraw
USUAL_SIZE = (80, 24)  # cells and lines of a terminal that does not say

_QUIET, _NORMAL = "\x1b[?25l\x1b[?7l", "\x1b[?7h\x1b[?25h"  # no cursor and no wrapping; both
_REST_OF_LINE, _REST_OF_SCREEN, _CLEAN = "\x1b[K", "\x1b[J", "\x1b[H\x1b[2J"

_RESULTS = (Row, Merged, MatrixLine, Outlier, Summary)  # jobs are done when these come

Size = Callable[[], tuple[int, int]]
Clock = Callable[[], float]


def terminal_size(stream: TextIO) -> tuple[int, int]:
    """Cells and lines; a terminal that says 0 (a serial line, some CI) says nothing."""
    try:
        columns, lines = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        columns, lines = 0, 0
    return columns or USUAL_SIZE[0], lines or USUAL_SIZE[1]


class Screen:
    """Draws a block of lines in place at the cursor, which stays in the line below it."""

    def __init__(self, stream: TextIO, size: Size) -> None:
        self._out = LineStream(stream)
        self._size = size
        self._drawn_in = (0, 0)
        self._height = 0
        encoding = (getattr(stream, "encoding", None) or "utf-8").lower().replace("-", "")
        self._foreign = None if encoding == "utf8" else encoding

    def draw(self, layout: Callable[[int, int], list[str]]) -> None:
        """Put lines in the place of the former ones; ``layout`` has cells and lines for them."""
        size = columns, rows = self._size()
        lines = layout(columns, rows - 1)
        text = "".join(f"{self._encodable(line)}{_REST_OF_LINE}\n" for line in lines)
        self._out.send(f"{_QUIET}{self._home(size)}{text}{_REST_OF_SCREEN}{_NORMAL}")
        self._height, self._drawn_in = len(lines), size

    def erase(self) -> None:
        """Take the lines away; what is written next begins where they were."""
        if self._height:
            self._out.send(f"{self._home(self._size())}{_REST_OF_SCREEN}")
            self._height = 0

    def _home(self, size: tuple[int, int]) -> str:
        if not self._height:
            return "\r"
        if size != self._drawn_in:
            # Terminals differ in what a new size does to lines: only a clean screen is sure.
            return _CLEAN
        return f"\r\x1b[{self._height}A"

    def _encodable(self, line: str) -> str:
        """``line`` no wider than it is also where the locale lacks some of it."""
        if self._foreign is None or line.isascii():
            return line
        return line.replace("…", "~").encode(self._foreign, "replace").decode(self._foreign)


class LiveRenderer:
    """A sink: the live view while jobs run, then what ``plain`` makes of the results.

    Lines of jobs are not shown, they are in the logs. With ``thread`` the view draws by itself from
    the first event on; otherwise ``tick`` has to be called.
    """

    def __init__(
        self,
        stream: TextIO,
        plain: PlainRenderer,
        *,
        color: bool,
        size: Size | None = None,
        clock: Clock = time.time,
        thread: bool = True,
    ) -> None:
        self._size = size or (lambda: terminal_size(stream))
        self._screen = Screen(stream, self._size)
        self._plain = plain
        self._paint = painted if color else no_paint
        self._clock = clock
        self._progress = Progress()
        self._unseen: deque[Event] = deque()
        self._seeing = threading.Lock()  # held for what is known; never while writing
        self._drawing = threading.RLock()  # held for the screen; taken before the other one
        self._last = self._next = 0.0
        self._unheard: InterruptedRun | None = None
        self._threaded = thread
        self._starting = threading.Lock()
        self._begun = False
        self._ended = threading.Event()
        self._stderr: TextIO | None = None

    def __call__(self, event: Event) -> None:
        """Take ``event`` in; raises ``InterruptedRun`` once when nobody watches any more."""
        if isinstance(event, _RESULTS):
            self.close()
        live = not self._ended.is_set() and self._progress.concerns(event)
        if live:
            self._unseen.append(shortened(event))
            if len(self._unseen) > _MOST_UNSEEN:  # the terminal stands still
                with self._seeing:
                    self._see()
            if not self._begun:
                self._begin()
        if isinstance(event, JobEnded):
            self._plain.keep(event)
        elif not live:
            with self._drawing:
                self._screen.erase()
                self._plain(event)
        unheard, self._unheard = self._unheard, None
        if unheard is not None:
            raise unheard

    def tick(self) -> bool:
        """Draw if it is time to; whether it was."""
        with self._drawing:
            now = self._clock()
            due = bool(self._unseen) or now - self._last >= LONGEST
            # A clock that was set back must not stop the view.
            if self._ended.is_set() or (now >= self._last and not (due and now >= self._next)):
                return False
            self._screen.draw(lambda columns, rows: self._frame(now, columns, rows))
            taken = self._clock() - now
            self._last, self._next = now, now + max(SHORTEST, taken / _SHARE)
            return True

    def above(self, text: str) -> None:
        """Write whole lines to stderr, above the view."""
        with self._drawing:
            self._screen.erase()
            stream = self._stderr or sys.stderr
            stream.write(text)
            stream.flush()

    def close(self) -> None:
        """Take the view off the screen, for good; say what was worth more than the moment."""
        with self._drawing:
            if self._ended.is_set():
                return
            stderr, self._stderr = self._stderr, None
            if stderr is not None:
                sys.stderr.flush()
                sys.stderr = stderr
            self._ended.set()
            with suppress(InterruptedRun):
                self._screen.erase()
            self._plain.resize(self._size()[0])
            self._farewell()
        atexit.unregister(self.close)

    def _begin(self) -> None:
        with self._starting:
            if self._begun or not self._threaded:
                return
            self._begun = True
            if sys.stderr.isatty():
                self._stderr = sys.stderr
                sys.stderr = cast(TextIO, _Above(self, sys.stderr))
            atexit.register(self.close)
            threading.Thread(target=self._draw_on, name="mxfleet-live", daemon=True).start()

    def _draw_on(self) -> None:
        while not self._ended.wait(SHORTEST / 2):
            try:
                self.tick()
            except InterruptedRun as error:
                # Raised here nobody would hear it: the thread of the next event is told.
                self._unheard = error
                return

    def _see(self) -> None:
        while self._unseen:
            self._progress.see(self._unseen.popleft())

    def _frame(self, now: float, columns: int, rows: int) -> list[str]:
        with self._seeing:
            self._see()
            return frame(self._progress, now, columns, rows, self._paint)

    def _farewell(self) -> None:
        """Each warning and lost target once, with whom it concerns."""
        with self._seeing:
            self._see()
            groups = [*self._progress.lost, *self._progress.notes]
        for group in groups:
            where = f" on {host_set(group.targets)}" if group.targets else ""
            self._plain(Note(f"{group.status}{where}: {said(group)}"))


class _Above:
    """In place of stderr: its lines go above the view, each when it is whole."""

    def __init__(self, view: LiveRenderer, stream: TextIO) -> None:
        self._view = view
        self._stream = stream
        self._lock = threading.RLock()
        self._line = ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        with self._lock:
            whole, newline, rest = text.rpartition("\n")
            if newline:
                whole, self._line = f"{self._line}{whole}\n", rest
                self._view.above(whole)
            else:
                self._line += text
        return len(text)

    def flush(self) -> None:
        """A line that is not whole waits for its end: the view would be drawn over it."""
