"""The State that runners see: declarations are kept here, whatever engine is behind it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness.errors import NotRunError


class CaseState:
    """Collects what a runner declares; an engine derives from it and implements the rest."""

    def __init__(self, dev_id: int) -> None:
        self._dev_id = dev_id
        self.summaries: dict[str, Any] = {}
        self.elements: int | None = None
        self.bytes_read: int | None = None
        self.bytes_written: int | None = None

    def get_device(self) -> int:
        """Index of the device."""
        return self._dev_id

    def get_stream(self) -> Any:
        """The engine's stream; None on the CPU."""
        raise NotImplementedError

    def show_verdict(self, acc_pass: str, cos_dist: str) -> None:
        """Show the verification's columns in the engine's own table, where it prints one."""

    def add_summary(self, column_name: str, value: Any) -> None:
        """Declare a column; the order of the calls is the order of the columns."""
        self.summaries[column_name] = value

    def add_element_count(self, count: int, column_name: str | None = None) -> None:
        """Declare elements processed by one call (adds up)."""
        self.elements = (self.elements or 0) + int(count)

    def add_global_memory_reads(self, nbytes: int, column_name: str = "") -> None:
        """Declare bytes read by one call (adds up)."""
        self.bytes_read = (self.bytes_read or 0) + int(nbytes)

    def add_global_memory_writes(self, nbytes: int, column_name: str = "") -> None:
        """Declare bytes written by one call (adds up)."""
        self.bytes_written = (self.bytes_written or 0) + int(nbytes)

    def skip(self, reason: str) -> None:
        """Give the case up with a reason; it counts as not run, never as a success."""
        raise NotRunError(f"the runner skips this case: {reason}")

    def exec(
        self, launcher: Callable[[Any], None], *, batched: bool | None = None, sync: bool = False
    ) -> None:
        """Measure ``launcher``."""
        raise NotImplementedError


class Launch:
    """What a launcher is called with outside nvbench's own loop (warm-up, CPU)."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def get_stream(self) -> Any:
        """The stream to launch on; None on the CPU."""
        return self._stream
