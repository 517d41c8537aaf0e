"""Faults of our own: a report file for us, one line for the user."""

from __future__ import annotations

import os
import sys
import tempfile
import traceback

from orchestrator import __version__


def own_fault(error: BaseException) -> str:
    """Write a report on ``error`` and return the sentence that names it and the file."""
    handle, path = tempfile.mkstemp(prefix="mxfleet-report-", suffix=".txt")
    with os.fdopen(handle, "w", encoding="utf-8", errors="replace") as stream:
        stream.write(f"mxfleet {__version__}, python {sys.version}\narguments: {sys.argv[1:]}\n\n")
        traceback.print_exception(error, file=stream)
    return f"a fault of mxfleet itself, {type(error).__name__}: {error}; report it with {path}"
