"""Notice silent links: one thread for all sessions asks each of them again and again."""

from __future__ import annotations

import threading
import time
import weakref
from typing import Protocol


class Watched(Protocol):
    """What has a link that may fall silent."""

    def check_link(self) -> None:
        """Close the link if nothing was heard on it for too long."""


class _Watch:
    """Asks for as long as a session is used by somebody else."""

    def __init__(self) -> None:
        self._sessions: weakref.WeakSet[Watched] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._started = False

    def add(self, session: Watched) -> None:
        with self._lock:
            self._sessions.add(session)
            if not self._started:
                self._started = True
                threading.Thread(target=self._run, name="mxfleet-watch", daemon=True).start()

    def _run(self) -> None:
        while True:
            time.sleep(0.5)
            with self._lock:
                sessions = list(self._sessions)
            for session in sessions:
                session.check_link()


_WATCH = _Watch()


def watch_link(session: Watched) -> None:
    """Have ``session.check_link`` called twice a second from now on."""
    _WATCH.add(session)
