"""How many bytes one call moves, counted from the tensors themselves.

Read is what is passed and not only filled, written what is changed or returned. Of some tensors a
call touches a part: blocks that a table names, rows that indices pick, slots of a cache that new
tokens go to. Which part is concluded from the names that such arguments usually have.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from orchestrator.author.emit.material import Given, Material

_CACHE = re.compile(r".*(kv|key|value|k|v|src|dst)_?caches?")
# A copy of blocks from one to the other; without a mapping they are tensors like any other.
_COPIED = re.compile(r"src|dst|.*_?caches?")
_MAPPINGS = re.compile(r"block_mapping|block_map|mapping")
_ANGLES = re.compile(r"cos_sin_cache|cos_cache|sin_cache|cos|sin|freqs.*")
_TABLES = re.compile(r"block_tables?|page_tables?")
_LENGTHS = re.compile(r"(seq|context|kv)_?lens?")
_SLOTS = re.compile(r"slot_mapping|slots?|out_cache_loc|loc")
_POSITIONS = re.compile(r"positions?|pos_ids|position_ids")
_BLOCKS = "blocks"
_SOURCES = re.compile(r"keys?|values?|k|v|kv_c|k_pe|kv")


@dataclass(frozen=True)
class Traffic:
    """Expressions of what a call reads and writes: tensors, or numbers of bytes.

    ``why``: what was concluded of parts; ``elements``: the tensor whose elements are counted;
    ``maybe``: tensors that may be None; ``before``: statements that the numbers need.
    """

    read: tuple[str, ...]
    written: tuple[str, ...]
    elements: str
    why: tuple[str, ...] = ()
    maybe: frozenset[str] = frozenset()
    before: tuple[str, ...] = ()


def traffic(material: Material, attribute: Callable[[str], str]) -> Traffic:
    """What one call of the material moves; ``attribute`` spells a tensor of the timed call."""
    by_argument = {one.argument.name: one for one in material.passed}
    read: list[str] = []
    written: list[str] = []
    why: list[str] = []
    for one in material.passed:
        assert one.name is not None
        held = attribute(one.name)
        part = _part(one, by_argument, attribute, material)
        if part is not None:
            why.append(part[1])
        moved = part[0] if part is not None else held
        if one.name in material.outputs:
            written.append(moved)
            continue
        scattered = part is not None and one.name in material.overwritten
        if not scattered:
            read.append(moved)
        if one.name in material.overwritten:
            written.append(moved)
    written += [f"self.{name}" for name in material.results]
    before = _filled_blocks(by_argument, attribute, material) if _named(written + read) else ()
    maybe = frozenset(attribute(name) for name in material.maybe_none)
    counted = _counted(material, attribute)
    return Traffic(tuple(read), tuple(written), counted, tuple(why), maybe, before)


def _named(moved: Sequence[str]) -> bool:
    return any(one.startswith(f"{_BLOCKS} ") for one in moved)


def _filled_blocks(
    others: dict[str, Given], attribute: Callable[[str], str], material: Material
) -> tuple[str, ...]:
    """The statement that counts the blocks which sequences of these lengths fill."""
    lengths, size = _first(others, _LENGTHS), _block_size(material)
    assert lengths is not None and size is not None
    return (f"{_BLOCKS} = int((({attribute(lengths)} + {size} - 1) // {size}).sum())",)


def _counted(material: Material, attribute: Callable[[str], str]) -> str:
    """The tensor that stands for how much the operator does: an output, else an input."""
    # A cache is as large as it is, whatever is done with it.
    mapped = any(_MAPPINGS.fullmatch(one.argument.name) for one in material.passed)
    large = _COPIED if mapped else _CACHE
    fills = [n for n in material.outputs if not large.fullmatch(n)]
    if fills:
        return attribute(fills[0])
    if material.results:
        return f"self.{material.results[0]}"
    names = [one.name for one in material.passed if one.name is not None]
    plain = [name for name in names if not large.fullmatch(name)]
    changed = [name for name in material.overwritten if name in plain]
    return attribute(next(iter([*changed, *plain, *names]), ""))


def _part(
    one: Given,
    others: dict[str, Given],
    attribute: Callable[[str], str],
    material: Material,
) -> tuple[str, str] | None:
    """The bytes of the part of a tensor that a call touches, and how that is concluded."""
    name = one.argument.name
    assert one.name is not None
    held = attribute(one.name)
    if _ANGLES.fullmatch(name):
        index = _first(others, _POSITIONS)
        if index is not None:
            rows = f"{attribute(index)}.unique().numel()"
            return f"{rows} * {held}[0].numel() * {held}.element_size()", (
                f"of {name} the rows that {index} names"
            )
    mapping = _first(others, _MAPPINGS)
    if mapping is not None and _COPIED.fullmatch(name):
        blocks = f"{attribute(mapping)}.shape[0]"
        return f"{blocks} * {held}[0].numel() * {held}.element_size()", (
            f"of {name} the blocks that {mapping} names"
        )
    if not _CACHE.fullmatch(name):
        return None
    slots, tables = _first(others, _SLOTS), _first(others, _TABLES)
    if slots is not None and one.argument.mutated:
        source = _source(name, others)
        if source is not None:
            moved = attribute(source)
            return f"{moved}.numel() * {held}.element_size()", (
                f"of {name} the slots that {source} fills"
            )
    if tables is not None:
        lengths = _first(others, _LENGTHS)
        block_size = _block_size(material)
        if lengths is not None and block_size is not None:
            return f"{_BLOCKS} * {held}[0].numel() * {held}.element_size()", (
                f"of {name} the blocks that {lengths} fill"
            )
        return f"{attribute(tables)}.numel() * {held}[0].numel() * {held}.element_size()", (
            f"of {name} the blocks that {tables} names"
        )
    return None


def _first(others: dict[str, Given], pattern: re.Pattern[str]) -> str | None:
    return next((o.name for n, o in others.items() if pattern.fullmatch(n) and o.name), None)


def _source(cache: str, others: dict[str, Given]) -> str | None:
    """The tensor whose tokens go into ``cache``: ``key`` for ``key_cache``."""
    stem = cache.removesuffix("_cache").removesuffix("cache").strip("_")
    alike = [n for n in others if n in (stem, f"{stem}s", stem[:1])]
    any_source = [n for n in others if _SOURCES.fullmatch(n)]
    found = next(iter([*alike, *any_source]), None)
    return others[found].name if found is not None else None


def _block_size(material: Material) -> str | None:
    """The expression of the call's block size, as the runner spells it."""
    for one in material.given:
        if one.argument.name in ("block_size", "page_size"):
            spelled = material.spelled.get(one.code, one.code)
            return spelled if spelled.startswith("self.") or spelled.isdigit() else None
    return None
