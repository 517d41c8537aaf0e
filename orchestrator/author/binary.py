"""Schemas of operators out of a built library's bytes, without loading it.

``TORCH_LIBRARY`` leaves each schema as a string in the file: ``silu_and_mul(Tensor! out, Tensor
input) -> ()``. The library need not be loadable here, and nothing of it runs.
"""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterator
from pathlib import Path

from orchestrator.author import schema
from orchestrator.author.schema import Schema, SchemaError
from orchestrator.errors import TreeError

_ARROW = b") -> "
_LONGEST = 8192  # bytes of a schema
# Printable bytes and the line breaks that a raw literal may have.
_BEFORE = re.compile(rb"[\t\n\x20-\x7e]*\Z")
_AFTER = re.compile(rb"[\t\n\x20-\x7e]*")
_NAME = re.compile(r"(?:\w+::)?\w+(?:\.\w+)?\s*\(")
_LIBRARY = re.compile(r"\.(?:so|pyd|dylib)(?:\.[\d.]+)?\Z")


def schemas(path: Path) -> dict[str, list[Schema]]:
    """All schemas in a shared object, by the namespace of ``torch.ops``, in the file's order.

    A schema that names no namespace gets that of the file's name: ``_C`` for ``_C.abi3.so``,
    ``sgl_kernel`` for what lies in that package. Which operators of a file are registered under
    another name (``_C_cache_ops``) its strings do not tell.

    Raises ``TreeError`` where the file cannot be read or is no shared object.
    """
    default = _namespace(path)
    found: dict[str, dict[tuple[str, str], Schema]] = {}
    for text in _texts(path):
        try:
            read = schema.parse(text)
        except SchemaError:
            continue  # a message or a signature of something else
        named = found.setdefault(read.namespace or default, {})
        named.setdefault((read.name, read.overload), read)
    return {namespace: list(by_name.values()) for namespace, by_name in found.items()}


def is_library(path: Path) -> bool:
    """Whether the file's name is that of a shared object."""
    return _LIBRARY.search(path.name) is not None


def _namespace(path: Path) -> str:
    for part in reversed(path.parts[:-1]):
        if part in ("sgl_kernel", "sgl-kernel"):
            return "sgl_kernel"
    return path.name.split(".")[0].removeprefix("lib")


def _texts(path: Path) -> Iterator[str]:
    try:
        with path.open("rb") as stream:
            head = stream.read(4)
            if head not in _MAGIC and head[:2] != b"MZ":
                raise TreeError(
                    "no shared object", where=str(path), hint="name the .so of the operator library"
                )
            with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
                yield from _strings(content)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise TreeError(f"cannot be read: {reason}", where=str(path)) from None


_MAGIC = frozenset(
    (b"\x7fELF", b"\xcf\xfa\xed\xfe", b"\xce\xfa\xed\xfe", b"\xca\xfe\xba\xbe", b"\xbe\xba\xfe\xca")
)


def _strings(content: mmap.mmap) -> Iterator[str]:
    """Strings of the file that hold an arrow after a parenthesis."""
    at = 0
    while True:
        arrow = content.find(_ARROW, at)
        if arrow < 0:
            return
        start = max(content.rfind(b"\0", max(0, arrow - _LONGEST), arrow) + 1, arrow - _LONGEST, 0)
        end = content.find(b"\0", arrow, arrow + _LONGEST)
        end = end if end >= 0 else min(len(content), arrow + _LONGEST)
        at = max(end, arrow + 1)
        before = _BEFORE.search(content[start:arrow])
        after = _AFTER.match(content[arrow:end])
        text = (before.group() if before else b"") + (after.group() if after else b"")
        # What lies before it in the same string is no part of it: raw literals begin with breaks.
        whole = text.decode("ascii").strip()
        if _NAME.match(whole):
            yield whole
