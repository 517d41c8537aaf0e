"""The list of targets: a table, and with a check what each one is or why it cannot be used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

from orchestrator.events import HostLine
from orchestrator.show.numbers import UNKNOWN, size
from orchestrator.show.table import Paint, no_paint
from orchestrator.show.text import display_width, fold, pad, safe

_NARROWEST = 10  # cells that a folded column keeps


def hosts_table(lines: Sequence[HostLine], width: int, paint: Paint = no_paint) -> list[str]:
    """The lines of the table of ``lines``, at most ``width`` (≥ 80) cells wide."""
    if not lines:
        return []
    checked = any(line.status for line in lines)
    rows = [_cells(line, checked) for line in lines]
    titles = ["target", *(["status"] if checked else []), "container", "workdir", "GPUs"]
    widths = [
        max(display_width(cell) for cell in column) for column in zip(titles, *rows, strict=True)
    ]
    _narrow(widths, titles, width - 2 * (len(titles) - 1))
    shown = [
        "  ".join(pad(title, w) for title, w in zip(titles, widths, strict=True)).rstrip(),
        "  ".join("-" * w for w in widths),
    ]
    for line, row in zip(lines, rows, strict=True):
        folded = [fold(cell, w) for cell, w in zip(row, widths, strict=True)]
        for cells in zip_longest(*folded, fillvalue=""):
            padded = [pad(cell, w) for cell, w in zip(cells, widths, strict=True)]
            if checked:
                padded[1] = paint(line.status or "", padded[1])
            shown.append("  ".join(padded).rstrip())
        shown += [f"  {piece}" for text in _remarks(line) for piece in fold(text, width - 2)]
    return shown


def _narrow(widths: list[int], titles: Sequence[str], room: int) -> None:
    foldable = [i for i, title in enumerate(titles) if title != "status"]
    while sum(widths) > room:
        widest = max(foldable, key=lambda i: widths[i])
        if widths[widest] <= _NARROWEST:
            return
        widths[widest] -= 1


def _cells(line: HostLine, checked: bool) -> list[str]:
    cells = [line.target]
    if checked:
        cells.append(line.status or UNKNOWN)
    container = line.container or f"none ({line.transport})"
    cells += [container, line.workdir or UNKNOWN, _gpus(line)]
    return [safe(cell) for cell in cells]


def _gpus(line: HostLine) -> str:
    if line.gpus:
        return ", ".join(line.gpus)
    devices = (line.facts or {}).get("devices")
    if devices is None:
        return "all"
    return str(len(devices)) if devices else "none"


def _remarks(line: HostLine) -> list[str]:
    remarks = [safe(line.message)] if line.message else []
    if line.facts:
        remarks.append(safe("; ".join(_facts(line.facts))))
    return remarks


def _facts(facts: Mapping[str, Any]) -> list[str]:
    python = facts.get("python") or {}
    torch = python.get("torch") or {}
    words = []
    for device in facts.get("devices") or ():
        uuid = f" {device['uuid']}" if device.get("uuid") else ""
        words.append(f"GPU {device['index']}: {device['name']}{uuid}")
    if python:
        words.append(f"python {python['version']}")
        words.append(f"torch {torch['version']}" if torch else "no torch")
        nvbench = [f"{n['package']} {n['version']}" for n in python.get("nvbench") or ()]
        words.append(", ".join(nvbench) or "no nvbench")
        libraries = [f"{k} {v or '?'}" for k, v in (python.get("libraries") or {}).items()]
        words.append(", ".join(libraries) or "no operator library")
    store = facts["store"]
    words.append(f"store {store['path']} ({size(store['disk']['free'])} free)")
    container = facts.get("container") or {}
    if container.get("workdir_on_host"):
        words.append(f"workdir is {container['workdir_on_host']} on the host")
    if "clock_skew" in facts:
        words.append(f"clock is {facts['clock_skew']:+.0f} s off")
    return words
