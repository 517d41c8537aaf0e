"""Writing to a stream that many threads share and that may go away.

``mxfleet run | head`` closes the pipe while jobs run. The first write that finds it closed raises
``ReaderGone`` in the thread that emitted the event, so the run stops as it does on Ctrl-C; events
after that are dropped, so that stopping can still report without failing. The stream is pointed at
``/dev/null``, or Python's own flush at exit would complain.
"""

from __future__ import annotations

import errno
import os
import threading
from contextlib import suppress
from typing import TextIO

from orchestrator.errors import InterruptedRun

_CLOSED = {errno.EPIPE, errno.ECONNRESET, errno.EIO}  # EIO: the terminal was hung up


class ReaderGone(InterruptedRun):
    """Whoever read the output closed it: no fault of a command that only tells something."""


class LineStream:
    """Whole lines to a text stream, one writer at a time, on their way when ``write`` returns."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lock = threading.RLock()
        self._gone = False
        self._encoding = getattr(stream, "encoding", None) or "utf-8"

    def write(self, *lines: str) -> None:
        """Write ``lines`` without another thread's between them.

        What the stream's encoding lacks is written as ``\\u…``. Raises once: ``ReaderGone`` when
        the reader is, ``InterruptedRun`` when the stream cannot take more, on a full disk say.
        """
        self.send("".join(f"{line}\n" for line in lines))

    def send(self, text: str) -> None:
        """Write ``text`` as it is: what moves a terminal's cursor. As ``write`` otherwise."""
        text = text.encode(self._encoding, "backslashreplace").decode(self._encoding)
        with self._lock:
            if self._gone:
                return
            try:
                self._stream.write(text)
                self._stream.flush()
            except OSError as error:
                self._gone = True
                self._silence()
                if error.errno in _CLOSED:
                    raise ReaderGone(
                        f"nobody reads the output any more ({error.strerror}), the run stops"
                    ) from None
                raise InterruptedRun(
                    f"the output cannot be written: {error.strerror}",
                    hint="make room where it goes, or send it elsewhere",
                ) from None

    def _silence(self) -> None:
        with suppress(OSError, ValueError):  # no file behind it: nothing is flushed at exit
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self._stream.fileno())
            os.close(null)
