"""What a script says of itself in its output: ``[VERIFY] … -> FAIL``, ``[FATAL]``, tracebacks.

Each stream is scanned for itself, line by line as it comes: two streams in one log may cut each
other's lines in two. What is kept is bounded, whatever a script prints.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

_VERIFY = "[VERIFY]"
_FATAL = "[FATAL]"
_VERDICT = re.compile(r"->\s{0,20}(PASS|FAIL)")
_DISTANCE = re.compile(r"1-CosSim:\s{0,20}([^)\s]{1,40})")
_TRACEBACK = "Traceback (most recent call last)"
_EXCEPTION = re.compile(r"([A-Za-z_][\w.]{0,200}(?:Error|Exception|Interrupt|Exit))(?::\s*(.*))?\Z")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
# What an exception says when the operator is not there, as a pattern.
ABSENT = r"No module named '(?:mcoplib|cuda)\b|'_OpNamespace' '\w+' object has no attr"
_LONGEST_KEPT = 2000  # characters of a line
_LONGEST_TRACEBACK = 200  # lines


@dataclass
class Markers:
    """What output says, marker by marker; of several of a kind the last."""

    failure: str | None = None
    verifications_failed: int = 0
    failed_distance: str | None = None
    exception: tuple[str, str] | None = None
    traceback: list[str] = field(default_factory=list)


class MarkerScanner:
    """Scans one stream; lines of ``longest`` characters are taken for pieces of a longer one."""

    def __init__(self, longest: int | None = None) -> None:
        self.found = Markers()
        self._longest = longest
        self._carried = ""
        self._inside = False

    def feed(self, line: str) -> None:
        """Take the next line, without its end."""
        text = _COLOUR.sub("", line) if "\x1b" in line else line
        self._failure(self._carried + text if self._carried else text, len(line))
        self._exception(text)

    def _failure(self, text: str, length: int) -> None:
        self._carried = ""
        found, failed = self.found, False
        verify, fatal = text.find(_VERIFY), text.find(_FATAL)
        if verify >= 0:
            verdict = next((m for m in _VERDICT.finditer(text, verify) if m[1] == "FAIL"), None)
            if verdict is not None:
                failed = True
                found.failure = text[verify:][:_LONGEST_KEPT].strip()
                found.verifications_failed += 1
                distance = _DISTANCE.search(text, verdict.end())
                found.failed_distance = distance[1] if distance else None
        if fatal >= 0 and not failed:
            failed = True
            found.failure = text[fatal:][:_LONGEST_KEPT].strip()
        if length == self._longest and not failed:
            # A marker may lie across the pieces of a line.
            self._carried = (f"{_VERIFY} " if verify >= 0 else "") + text[-_LONGEST_KEPT:]

    def _exception(self, text: str) -> None:
        if text.startswith(_TRACEBACK):
            self._inside, self.found.traceback = True, [text]
        elif self._inside:
            exception = _EXCEPTION.match(text)
            if exception is not None or len(self.found.traceback) < _LONGEST_TRACEBACK:
                self.found.traceback.append(text[:_LONGEST_KEPT])
            if exception is not None:
                self._inside = False
                self.found.exception = (exception[1], (exception[2] or "")[:_LONGEST_KEPT])


def scan(lines: Iterable[str]) -> Markers:
    """The markers in the lines of one stream."""
    scanner = MarkerScanner()
    for line in lines:
        scanner.feed(line)
    return scanner.found


def together(streams: Iterable[Markers]) -> Markers:
    """The markers of several streams; of what several have, the last one's."""
    whole = Markers()
    for one in streams:
        whole.verifications_failed += one.verifications_failed
        whole.failure = one.failure or whole.failure
        whole.failed_distance = one.failed_distance or whole.failed_distance
        if one.traceback:
            whole.exception, whole.traceback = one.exception or whole.exception, one.traceback
    return whole
