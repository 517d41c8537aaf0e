"""``known_failures.json``: failures that are known, each with a reason and a day it is known until.

A known failure stays what it is: its status, no row in a table. It only stops counting for the exit
code, until the day after ``expires``; then it counts again. The file is a list of objects::

    {"op": "awq_gemm", "status": "FAILED", "reason": "wrong for group 32; mended in 2.1",
     "expires": "2027-03-31", "device": "C5*", "case": {"group_size": 32}}

``device`` (a device model, or a glob of models) and ``case`` (parameters with their values) narrow
an entry down; without them it holds for every device and case of the operator.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from harness import markers
from harness.errors import TreeError
from harness.loader import runner_path

FILE = "known_failures.json"
STATUSES = ("FAILED", "ERROR", "TIMEOUT", "UNAVAILABLE")
_REQUIRED = ("op", "status", "reason", "expires")
_KEYS = (*_REQUIRED, "case", "device")
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}\Z", re.ASCII)


@dataclass(frozen=True)
class Entry:
    """One known failure; ``expires`` is the last day on which it is excused."""

    op: str
    status: str
    reason: str
    expires: date
    case: Mapping[str, Any] = field(default_factory=dict)
    device: str = "*"

    def concerns(self, op: str, parameters: Mapping[str, Any], device_model: str) -> bool:
        """Whether the entry is about this case on this device model."""
        return (
            op == self.op
            and fnmatchcase(device_model, self.device)
            and all(
                key in parameters and _json(parameters[key]) == _json(value)
                for key, value in self.case.items()
            )
        )


@dataclass(frozen=True)
class Known:
    """All entries of a tree, in the order of the file."""

    entries: tuple[Entry, ...] = ()

    def match(
        self, op: str, parameters: Mapping[str, Any], device_model: str, status: str, today: date
    ) -> dict[str, Any] | None:
        """The record's ``known_failure`` of a case with ``status``; None when it is not known.

        ``expired`` says that it counts again. Of several entries one that has not expired holds.
        """
        found = [
            entry
            for entry in self.entries
            if entry.status == status and entry.concerns(op, parameters, device_model)
        ]
        if not found:
            return None
        entry = max(found, key=lambda each: each.expires)
        return {
            "reason": entry.reason,
            "expires": entry.expires.isoformat(),
            "expired": today > entry.expires,
        }

    def honour(
        self, op: str, parameters: Mapping[str, Any], device_model: str, status: str, today: date
    ) -> dict[str, Any] | None:
        """``match``, and print what the file says of the case, also of one that passes now."""
        if status == "PASSED":
            if any(entry.concerns(op, parameters, device_model) for entry in self.entries):
                markers.say(f"[KNOWN] {op} passes now; remove it from {FILE}")
            return None
        found = self.match(op, parameters, device_model, status, today)
        if found is not None:
            day = found["expires"]
            until = f"expired {day}, it counts again" if found["expired"] else f"until {day}"
            markers.say(f"[KNOWN] {op} {status}: {' '.join(found['reason'].split())} ({until})")
        return found


def load(root: Path) -> Known:
    """Read the known failures of the tree ``root``; a tree without the file has none.

    Raises ``TreeError`` with path and line for anything that is not as the module describes it.
    """
    try:
        text = (root / FILE).read_text(encoding="utf-8")
    except FileNotFoundError:
        return Known()
    except UnicodeDecodeError as error:
        raise TreeError(f"{FILE}: not UTF-8 text ({error.reason} at byte {error.start})") from None
    except OSError as error:
        raise TreeError(f"{FILE}: cannot be read: {error.strerror}") from None
    try:
        values = json.loads(text, object_pairs_hook=_Pairs)
    except json.JSONDecodeError as error:
        raise TreeError(f"{FILE}:{error.lineno}: not JSON: {error.msg}") from None
    except (ValueError, RecursionError) as error:
        raise TreeError(f"{FILE}: beyond what Python reads as JSON: {error}") from None
    if not isinstance(values, list) or isinstance(values, _Pairs):
        raise TreeError(f"{FILE}:1: holds no list; write [] or a list of objects")
    places = [f"{FILE}:{line}" for line in _lines(text)]
    entries = tuple(map(_entry, values, places))
    for entry, place in zip(entries, places, strict=True):
        _check_operator(root, entry.op, place)
    return Known(entries)


def _check_operator(root: Path, op: str, place: str) -> None:
    """Raise ``TreeError`` for an operator that the tree has not: it would excuse nothing."""
    folder = root / "runners"
    if not folder.is_dir() or runner_path(root, op).exists():
        return
    names = [path.stem for path in (root / "config").glob("*.json")]
    close = difflib.get_close_matches(op, names, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    raise TreeError(f"{place}: the tree has no operator {op!r}{hint}")


class _Pairs(list[tuple[str, Any]]):
    """A JSON object as it is written, names that stand twice included."""


def _lines(text: str) -> list[int]:
    """The line on which each element of the JSON list in ``text`` begins."""
    decoder = json.JSONDecoder()
    lines: list[int] = []
    at = text.index("[") + 1
    while True:
        while text[at] in " \t\r\n,":
            at += 1
        if text[at] == "]":
            return lines
        lines.append(text.count("\n", 0, at) + 1)
        _, at = decoder.raw_decode(text, at)


def _entry(value: Any, place: str) -> Entry:
    given = _object(value, place)
    for key in given:
        if key not in _KEYS:
            close = difflib.get_close_matches(key, _KEYS, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(_KEYS)}"
            raise TreeError(f"{place}: unknown key {key!r}; {hint}")
    for key in _REQUIRED:
        if key not in given:
            raise TreeError(f"{place}: a known failure needs {key!r}")
    for key in (*_REQUIRED, "device"):
        text = given.get(key, "-")
        if not isinstance(text, str) or not text.strip():
            raise TreeError(f"{place}: {key!r} is {_json(text)}; write a text")
    if given["status"] not in STATUSES:
        raise TreeError(f"{place}: status {given['status']!r} is none of {', '.join(STATUSES)}")
    return Entry(
        given["op"],
        given["status"],
        given["reason"].strip(),
        _day(given["expires"], place),
        _plain(_object(given["case"], f"{place}: 'case'")) if "case" in given else {},
        given.get("device", "*"),
    )


def _object(value: Any, place: str) -> dict[str, Any]:
    if not isinstance(value, _Pairs):
        raise TreeError(f"{place}: {_json(_plain(value))[:60]} is no object; write {{...}}")
    names = [name for name, _ in value]
    for name in names:
        if names.count(name) > 1:
            raise TreeError(f"{place}: {name!r} stands twice; only one value can hold")
    return dict(value)


def _plain(value: Any) -> Any:
    if isinstance(value, _Pairs):
        return {name: _plain(item) for name, item in value}
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(item) for item in value]
    return value


def _day(text: str, place: str) -> date:
    try:
        if not _DAY.match(text):
            raise ValueError("no YYYY-MM-DD")
        return date.fromisoformat(text)
    except ValueError:
        raise TreeError(f"{place}: expires {text!r} is no day; write YYYY-MM-DD") from None


def _json(value: Any) -> str:
    # As JSON 1, 1.0 and true are different values, as they are in a configuration.
    return json.dumps(value, sort_keys=True, default=str)
