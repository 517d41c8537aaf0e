"""A YAML file as plain data plus the line of everything in it.

YAML is read down to its node graph only; the plain data is built here, because an inventory needs
what a usual loader throws away: lines for errors, numbers as they were written (``1.10`` in an
environment variable is not ``1.1``), duplicate keys, and a bound on what aliases expand to.
"""

from __future__ import annotations

import stat
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from ruamel.yaml.reader import ReaderError

from orchestrator.errors import ConfigError

MAX_BYTES = 4 * 1024 * 1024
MAX_VALUES = 200_000  # after aliases are expanded
MAX_DEPTH = 40

Place = tuple[str | int, ...]

_TAG = "tag:yaml.org,2002:"
_AS_TEXT = frozenset({_TAG + "str", _TAG + "timestamp", _TAG + "value"})
_KINDS = {"int": "a number", "float": "a number", "bool": "a truth value", "null": "nothing"}


class WrittenInt(int):
    """An integer that remembers how it was written (``0x1f``, ``007``)."""

    text: str


class WrittenFloat(float):
    """A number that remembers how it was written (``1.10``, ``1e3``)."""

    text: str


@dataclass
class Document:
    """``data`` is plain Python; ``lines`` holds the line (from 1) of every key and list item."""

    path: Path
    data: Any = None
    lines: dict[Place, int] = field(default_factory=dict)

    def line(self, at: Place = ()) -> int:
        """The line of a place, or of the nearest thing around it that has a line."""
        while at and at not in self.lines:
            at = at[:-1]
        return self.lines.get(at, 1)

    def where(self, at: Place = ()) -> str:
        """``path:line`` of the place."""
        return f"{self.path}:{self.line(at)}"


def read_document(path: Path) -> Document:
    """Read one YAML mapping from a file.

    Raises ConfigError with ``path:line`` when the file cannot be read or is not a mapping.
    """
    text = _read_text(path)
    document = Document(path)
    node = _compose(text, path)
    if node is None:
        raise ConfigError(
            "the inventory is empty",
            where=f"{path}:1",
            hint="write at least `hosts:`, or let `mxfleet init` lay out an example elsewhere",
        )
    if not isinstance(node, MappingNode):
        raise ConfigError(
            "the inventory is not a mapping",
            where=f"{path}:{_line(node)}",
            hint="start it with `hosts:` and one indented line for each host",
        )
    document.data = _Builder(document).build(node, (), 0)
    return document


def _read_text(path: Path) -> str:
    where = str(path)
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise ConfigError(
                "the inventory is a directory", where=where, hint="name the file inside it"
            )
        if not stat.S_ISREG(mode):
            raise ConfigError("the inventory is not a regular file", where=where)
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError(
            "there is no inventory file here",
            where=where,
            hint="name one with --inventory or MXFLEET_INVENTORY, "
            "or lay out a working folder with `mxfleet init`",
        ) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"the inventory cannot be read: {reason}", where=where) from None
    if len(raw) > MAX_BYTES:
        raise ConfigError(f"the inventory is larger than {MAX_BYTES} bytes", where=where)
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ConfigError(
            "the inventory is not UTF-8 text", where=f"{path}:{line}", hint="save it as UTF-8"
        ) from None


def _compose(text: str, path: Path) -> Node | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an anchor may be reused; the latest counts
            node: Node | None = YAML(typ="safe", pure=True).compose(text)
            return node
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        problem = " ".join(str(part) for part in (error.context, error.problem) if part)
        hint = None
        if "'\\t'" in problem:
            hint = "indent with spaces, YAML allows no tabs there"
        raise ConfigError(
            f"this is not valid YAML: {problem}", where=f"{path}:{line}", hint=hint
        ) from None
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise ConfigError(
            "the inventory holds a control character", where=f"{path}:{line}", hint="remove it"
        ) from None
    except RecursionError:
        raise ConfigError("the inventory is nested too deeply", where=f"{path}:1") from None
    except (YAMLError, ValueError) as error:
        raise ConfigError(f"this is not valid YAML: {error}", where=f"{path}:1") from None


def _line(node: Node) -> int:
    return int(node.start_mark.line) + 1


class _Builder:
    """Turns the node graph into plain data, counting what aliases expand to."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.count = 0

    def build(self, node: Node, at: Place, depth: int) -> Any:
        self.count += 1
        if self.count > MAX_VALUES:
            raise self._error(node, f"the inventory expands to more than {MAX_VALUES} values")
        if depth > MAX_DEPTH:  # also where an alias holds itself
            raise self._error(node, "the inventory is nested too deeply")
        if isinstance(node, MappingNode):
            return self._mapping(node, at, depth)
        if isinstance(node, SequenceNode):
            items = []
            for index, item in enumerate(node.value):
                place = (*at, index)
                self.document.lines[place] = _line(item)
                items.append(self.build(item, place, depth + 1))
            return items
        return self._scalar(node)

    def _mapping(self, node: MappingNode, at: Place, depth: int) -> dict[str, Any]:
        merged: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if key_node.tag != _TAG + "merge":
                continue
            several = isinstance(value_node, SequenceNode)
            for source in value_node.value if several else [value_node]:
                if not isinstance(source, MappingNode):
                    raise self._error(source, "`<<` takes a mapping or a list of mappings")
                for name, value in self.build(source, at, depth + 1).items():
                    merged.setdefault(name, value)
        own: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if key_node.tag == _TAG + "merge":
                continue
            name = self._key(key_node)
            place = (*at, name)
            if name in own:
                raise self._error(
                    key_node,
                    f'the key "{name}" stands twice',
                    hint=f"it already stands in line {self.document.lines[place]}",
                )
            self.document.lines[place] = _line(key_node)
            own[name] = self.build(value_node, place, depth + 1)
        return {**merged, **own}

    def _key(self, node: Node) -> str:
        if isinstance(node, ScalarNode):
            if node.tag in _AS_TEXT:
                return str(node.value)
            kind = _KINDS.get(str(node.tag).removeprefix(_TAG))
            if kind is not None:
                shown = node.value or "~"
                raise self._error(
                    node,
                    f"the key {shown} is read as {kind}, not as a name",
                    hint=f'put it in quotes: "{shown}"',
                )
        raise self._error(node, "a key has to be a plain name")

    def _scalar(self, node: Node) -> Any:
        text = str(node.value)
        if node.tag in _AS_TEXT:
            return text
        if node.tag == _TAG + "null":
            return None
        if node.tag == _TAG + "bool":
            return text.lower() in ("true", "yes", "on")
        if node.tag in (_TAG + "int", _TAG + "float"):
            return _number(text)
        raise self._error(
            node,
            f"the tag {str(node.tag).replace(_TAG, '!!')} means nothing here",
            hint="remove it",
        )

    def _error(self, node: Node, message: str, *, hint: str | None = None) -> ConfigError:
        return ConfigError(message, where=f"{self.document.path}:{_line(node)}", hint=hint)


def _number(text: str) -> Any:
    """The number with its spelling, or the bare text where Python reads no number in it."""
    plain = text.replace("_", "")
    for base in (0, 10):  # 0x1f and 0o17, then 007
        try:
            whole = WrittenInt(plain, base)
        except ValueError:
            continue
        whole.text = text
        return whole
    try:
        broken = WrittenFloat(plain.replace(".inf", "inf").replace(".nan", "nan").lower())
    except ValueError:
        return text
    broken.text = text
    return broken
