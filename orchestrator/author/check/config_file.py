"""``config/<op>.json`` with the place of every key, strict: what Python's JSON lets pass is told.

Keys of the top level are what a runner reads; each is kept with the characters of its name and of
its value, so that a finding has a line and an edit a place.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from orchestrator.author.check.finding import At, Edit
from orchestrator.author.check.reading import UnreadableError, read
from orchestrator.inventory.spelling import short

_SPACE = re.compile(r"[ \t\n\r]*")
# Lists under these names are one value, never a sweep.
NEVER_SWEPT = frozenset({"device_id", "device_name", "samples", "batch_size_list"})
# Read by the harness and by scripts around it, whatever the runner does.
HARNESS_KEYS = NEVER_SWEPT | {"dtype"}


@dataclass(frozen=True)
class Entry:
    """One key of the top level: offsets of its name and of its value in the text."""

    value: Any
    key_start: int
    start: int
    end: int


@dataclass
class ConfigFile:
    """A config as read; ``problem`` is what prevents reading it, with its place."""

    path: Path
    shown: str
    text: str = ""
    entries: dict[str, Entry] = field(default_factory=dict)
    problem: UnreadableError | None = None
    missing: bool = False

    def __contains__(self, key: object) -> bool:
        return key in self.entries

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def get(self, key: str, default: Any = None) -> Any:
        """The value of ``key``."""
        entry = self.entries.get(key)
        return default if entry is None else entry.value

    def values(self, key: str) -> list[Any]:
        """The values that cases have under ``key``: those of a sweep, else the one."""
        if key not in self.entries:
            return []
        value = self.entries[key].value
        return list(value) if isinstance(value, list) and key not in NEVER_SWEPT else [value]

    def at(self, key: str | None = None) -> At:
        """Where ``key`` stands; the beginning of the file without one."""
        entry = self.entries.get(key) if key is not None else None
        return self.place(entry.key_start) if entry else At(self.shown)

    def place(self, offset: int) -> At:
        """Line and column of a character."""
        line = bisect_right(self._starts, offset)
        return At(self.shown, line, offset - self._starts[line - 1] + 1)

    @cached_property
    def _starts(self) -> list[int]:
        """Where lines begin; asked for when the text is there."""
        return [0, *(match.end() for match in re.finditer("\n", self.text))]

    def replacing(self, key: str, value: Any) -> Edit:
        """The edit that gives ``key`` another value."""
        entry = self.entries[key]
        old = self.text[entry.start : entry.end]
        return Edit(self.path, entry.start, entry.end, old, json.dumps(value, ensure_ascii=False))


def read_config(path: Path, shown: str) -> ConfigFile:
    """Read a config; what is wrong with it is its ``problem``."""
    found = ConfigFile(path, shown)
    if not path.is_symlink() and not path.exists():
        found.missing = True
        return found
    try:
        found.text = read(path, shown)
        found.entries = _parse(found)
    except UnreadableError as error:
        found.problem = error
    return found


class _NotStrictError(ValueError):
    """What Python's JSON lets pass."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key, value in pairs:
        if key in made:
            raise _NotStrictError(
                f'"{short(key)}" stands twice', "only one value can hold, remove the other"
            )
        made[key] = value
    return made


def _no_number(word: str) -> Any:
    raise _NotStrictError(f"{word} is no JSON number", "write a number, or leave the key out")


_DECODER = json.JSONDecoder(object_pairs_hook=_pairs, parse_constant=_no_number)


def _parse(config: ConfigFile) -> dict[str, Entry]:
    """The entries of a text; raises ``UnreadableError`` with the line of the first fault."""
    position = 0
    try:
        position = _skip(config.text, 0)
        if config.text[position : position + 1] != "{":
            raise _fault(config, position, *_no_object(config.text, position))
        return _entries(config, position + 1)
    except json.JSONDecodeError as error:
        raise _fault(config, error.pos, f"broken JSON: {_reason(error)}", "fix it") from None


def _no_object(text: str, position: int) -> tuple[str, str]:
    if not text.strip():
        return "the config is empty", "write a JSON object, see benchmark/README.md"
    if text.startswith("\ufeff"):
        return "begins with a byte order mark", "save it as UTF-8 without one"
    return "the config is not a JSON object", "use {...}"


def _entries(config: ConfigFile, position: int) -> dict[str, Entry]:
    text, found = config.text, dict[str, Entry]()
    position = _skip(text, position)
    if text[position : position + 1] == "}":
        _ends(config, position + 1)
        return found
    while True:
        key_start = position
        if text[position : position + 1] != '"':
            raise json.JSONDecodeError("Expecting property name in double quotes", text, position)
        key, position = _value(config, position)
        position = _skip(text, position)
        if text[position : position + 1] != ":":
            raise json.JSONDecodeError("Expecting ':'", text, position)
        start = _skip(text, position + 1)
        value, position = _value(config, start)
        if key in found:
            first = config.place(found[key].key_start).line
            message = f'"{short(key)}" stands twice, first in line {first}'
            raise _fault(config, key_start, message, "only one value can hold, remove the other")
        found[key] = Entry(value, key_start, start, position)
        position = _skip(text, position)
        if text[position : position + 1] == "}":
            _ends(config, position + 1)
            return found
        if text[position : position + 1] != ",":
            raise json.JSONDecodeError("Expecting ',' or '}'", text, position)
        comma, position = position, _skip(text, position + 1)
        if text[position : position + 1] == "}":
            raise json.JSONDecodeError("a comma before the closing brace", text, comma)


def _value(config: ConfigFile, start: int) -> tuple[Any, int]:
    try:
        value, end = _DECODER.raw_decode(config.text, start)
    except json.JSONDecodeError:
        raise
    except _NotStrictError as error:
        raise _fault(config, start, str(error), error.hint) from None
    except RecursionError:
        raise _fault(config, start, "nested too deeply", "use plain values and lists") from None
    except ValueError as error:  # a number of more digits than Python reads
        raise _fault(config, start, f"beyond what Python reads: {error}", "shorten it") from None
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        raise _fault(config, start, "a number too large for a float", "shorten it")
    return value, end


def _ends(config: ConfigFile, position: int) -> None:
    position = _skip(config.text, position)
    if position < len(config.text):
        raise json.JSONDecodeError("text behind the object", config.text, position)


def _skip(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return match.end() if match else position


def _reason(error: json.JSONDecodeError) -> str:
    words = error.msg.removesuffix(" at").removesuffix(" starting")
    return words[:1].lower() + words[1:]


def _fault(config: ConfigFile, position: int, message: str, hint: str) -> UnreadableError:
    at = config.place(min(position, len(config.text)))
    return UnreadableError(at, message, hint)
