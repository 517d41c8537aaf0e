"""The configs that are already there: their values, and how they are written."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from orchestrator.author.halops.facts import Neighbour, NeighbourStyle

_MOST = 500  # files
_LARGEST = 1 << 20
_MARK = re.compile(r"#\s*inferred\b", re.IGNORECASE)
_COMMENT = re.compile(r"(?:^|\s)#", re.MULTILINE)
_DASH = re.compile(r"^( *)- ", re.MULTILINE)
_STRING = re.compile(r"^\s*[\w-]+:\s*([\"'])?[A-Za-z]", re.MULTILINE)


def read_neighbours(
    folder: Path, root: Path
) -> tuple[tuple[Neighbour, ...], NeighbourStyle, tuple[str, ...]]:
    """The configs of a folder, how they are written, and those that are no YAML mapping."""
    found: list[Neighbour] = []
    texts: list[str] = []
    bad: list[str] = []
    paths = sorted([*folder.glob("*.yaml"), *folder.glob("*.yml")])[:_MOST]
    for path in paths:
        shown = str(path.relative_to(root))
        try:
            text = "" if path.stat().st_size > _LARGEST else path.read_text(encoding="utf-8")
            values = YAML(typ="safe", pure=True).load(text)
        except (OSError, ValueError, YAMLError, RecursionError):
            values = None
            text = ""
        if not isinstance(values, Mapping):
            bad.append(shown)
            continue
        plain = {str(key): value for key, value in values.items()}
        found.append(Neighbour(path, shown, plain, bool(_MARK.search(text))))
        texts.append(text)
    return tuple(found), _style(found, texts), tuple(bad)


def _style(found: Sequence[Neighbour], texts: Sequence[str]) -> NeighbourStyle:
    if not found:
        return NeighbourStyle()
    joined = "\n".join(texts)
    lists = [
        (key, value, text)
        for each, text in zip(found, texts, strict=True)
        for key, value in each.values.items()
        if isinstance(value, list)
    ]
    flows = [bool(re.search(rf"^{re.escape(k)}:\s*\[", t, re.MULTILINE)) for k, _, t in lists]
    nested = [
        "[" in re.split(rf"^{re.escape(k)}:", t, maxsplit=1, flags=re.MULTILINE)[-1][:400]
        for k, v, t in lists
        if v and isinstance(v[0], list)
    ]
    dashes = Counter(len(each) for each in _DASH.findall(joined))
    quotes = Counter(_STRING.findall(joined))
    return NeighbourStyle(
        order=_order(found),
        flow=_mostly(flows),
        flow_inner=_mostly(nested),
        indent=dashes.most_common(1)[0][0] if dashes else 2,
        quotes=quotes.most_common(1)[0][0] if quotes else "",
        comments=bool(_COMMENT.search(joined)),
        marks=any(each.marks for each in found),
        document_start=_mostly([text.startswith("---") for text in texts]),
    )


def _mostly(values: Sequence[bool]) -> bool:
    return sum(values) * 2 >= len(values)


def _order(found: Sequence[Neighbour]) -> tuple[str, ...]:
    """All keys so that as many pairs as can stand as in the files, by their mean position."""
    positions: dict[str, list[float]] = {}
    for each in found:
        for index, key in enumerate(each.values):
            positions.setdefault(key, []).append(index / max(len(each.values) - 1, 1))
    mean: dict[str, Any] = {key: sum(at) / len(at) for key, at in positions.items()}
    return tuple(sorted(mean, key=lambda key: mean[key]))
