"""JSON lines for scripts and agents: each event one line, the summary the last of them."""

from __future__ import annotations

import json
import math
import re
import threading
from typing import Any, TextIO

from orchestrator.events import Event, Summary
from orchestrator.show.stream import LineStream

_SURROGATE = re.compile("[\ud800-\udfff]")


class JsonRenderer:
    """A sink that writes each event's ``as_dict`` as one line of valid JSON in UTF-8.

    A lone surrogate becomes U+FFFD and a number that is not finite null: JSON has neither.
    Nothing follows the summary; an event that comes after it is dropped.
    """

    def __init__(self, stream: TextIO) -> None:
        # A locale without UTF-8 gets \u escapes, which are the same JSON.
        encoding = (getattr(stream, "encoding", None) or "utf-8").lower().replace("-", "")
        self._ascii = encoding != "utf8"
        self._out = LineStream(stream)
        self._lock = threading.Lock()
        self._ended = False

    def __call__(self, event: Event) -> None:
        """Write ``event``; raises ``InterruptedRun`` once when nobody reads any more."""
        line = json.dumps(
            _valid(event.as_dict()), ensure_ascii=self._ascii, allow_nan=False, default=str
        )
        with self._lock:
            if not self._ended:
                self._ended = isinstance(event, Summary)
                self._out.write(line)


def _valid(value: Any) -> Any:
    if isinstance(value, str):
        return _SURROGATE.sub("\ufffd", value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {_valid(key): _valid(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_valid(item) for item in value]
    return value
