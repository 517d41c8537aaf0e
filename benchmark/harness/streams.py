"""Standard streams that no measurement fails for: closed ones, a pager that quit, a full disk.

Results go into tables and records; what is printed tells of them. ``mend`` gives a process the
three standard descriptors and lets its Python print into nothing where printing is impossible.
"""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class _Forgiving(io.FileIO):
    """A descriptor that is written to as far as it can be."""

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data) or 0
        except OSError:
            return memoryview(data).nbytes


def mend() -> None:
    """Make sure that descriptors 0 to 2 are open and that printing to 1 and 2 never raises.

    A stream that somebody has put in place of Python's own stays. Lines come out one by one.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            # The lowest that is free, hence this one.
            os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(descriptor, True)
    if sys.stdout is sys.__stdout__:
        sys.stdout = _stream(1)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _stream(2)


def _stream(descriptor: int) -> io.TextIOWrapper:
    raw = _Forgiving(descriptor, "wb", closefd=False)
    former = sys.stdout if descriptor == 1 else sys.stderr
    if former is not None:
        former.flush()
    encoding = getattr(former, "encoding", None) or "utf-8"
    return io.TextIOWrapper(
        io.BufferedWriter(raw), encoding=encoding, errors="backslashreplace", line_buffering=True
    )
