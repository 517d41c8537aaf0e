"""Signs of life: when nothing else was said for a while, say what is being waited for.

Connecting to a host that drops packets, a push over a slow line, an operator that computes: all of
it is silent, and with many targets one line has to do for all.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType

from orchestrator.errors import InterruptedRun
from orchestrator.events import Event, Note, Sink

SILENCE = 8.0  # seconds without any event after which one is due
_NAMED = 3  # targets that are named, the others are counted


class Activity:
    """A sink in front of another, as a context manager: speaks up when all else is silent."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._lock = threading.Lock()
        self._doing: dict[int, tuple[str, str, float]] = {}
        self._next = 0
        self._last = time.monotonic()
        self._ended = threading.Event()
        self.unheard: InterruptedRun | None = None  # why nothing of what is said arrives

    def __call__(self, event: Event) -> None:
        """Pass an event on. That nobody reads any more is kept, not raised: see ``unheard``."""
        self._last = time.monotonic()
        try:
            self._sink(event)
        except InterruptedRun as error:
            # Raised in whatever thread had something to say, it would look like a target's fault.
            self.unheard = error

    def __enter__(self) -> Activity:
        threading.Thread(target=self._watch, name="mxfleet-activity", daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()

    @contextmanager
    def doing(self, what: str, target: str) -> Iterator[None]:
        """While the block runs, ``what`` is what is being done on ``target``."""
        with self._lock:
            key, self._next = self._next, self._next + 1
            self._doing[key] = (what, target, time.monotonic())
        try:
            yield
        finally:
            with self._lock:
                del self._doing[key]

    def _watch(self) -> None:
        while not self._ended.wait(0.5):
            if time.monotonic() - self._last < SILENCE:
                continue
            for text in self._sentences():
                self(Note(text))

    def _sentences(self) -> list[str]:
        with self._lock:
            doing = list(self._doing.values())
        now = time.monotonic()
        by_what: dict[str, list[tuple[str, float]]] = {}
        for what, target, since in doing:
            by_what.setdefault(what, []).append((target, now - since))
        return [
            f"{what} on {_some([name for name, _ in there])}, "
            f"{max(seconds for _, seconds in there):.0f} s so far"
            for what, there in by_what.items()
        ]


def _some(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    shown = ", ".join(names[:_NAMED])
    return f"{shown} and {more} more" if more > 0 else shown
