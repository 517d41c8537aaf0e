"""Transport ``local``: this machine, no SSH."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Sequence

from orchestrator.errors import UnusableError
from orchestrator.transport.base import Pipe
from orchestrator.transport.process import ProcessPipe


class LocalConnection:
    """Starts commands on this machine."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._pipes: weakref.WeakSet[ProcessPipe] = weakref.WeakSet()

    @property
    def peer(self) -> str:
        """The name of the host."""
        return self._name

    def open(self, argv: Sequence[str]) -> Pipe:
        """Start ``argv``. Raises UnusableError when there is no such command."""
        try:
            pipe = ProcessPipe(argv, peer=self._name)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise UnusableError(
                f"cannot start {argv[0]}: {reason}",
                where=self._name,
                hint="install it or name another one in the inventory",
            ) from error
        with self._lock:
            self._pipes.add(pipe)
        return pipe

    def close(self) -> None:
        """Close every pipe that is still open."""
        with self._lock:
            pipes = list(self._pipes)
        for pipe in pipes:
            with contextlib.suppress(OSError):
                pipe.close()
