"""What the doctor found, target by target."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.events import Check
from orchestrator.show.table import Paint, no_paint
from orchestrator.show.text import display_width, fold, pad, safe

_STATUS_WIDTH = len("WARNING")


def doctor_lines(checks: Sequence[Check], width: int, paint: Paint = no_paint) -> list[str]:
    """The lines for ``checks``, at most ``width`` (≥ 80) cells wide; a hint below its check."""
    if not checks:
        return []
    longest = max(display_width(safe(check.name)) for check in checks)
    indent = 2 + _STATUS_WIDTH + 2 + longest + 2
    shown: list[str] = []
    for target in dict.fromkeys(check.target for check in checks):
        shown += [*([""] if shown else []), safe(target)]
        for check in checks:
            if check.target != target:
                continue
            status = paint(check.status, pad(check.status, _STATUS_WIDTH))
            first, *rest = fold(safe(check.message), width - indent) or [""]
            shown.append(f"  {status}  {pad(safe(check.name), longest)}  {first}".rstrip())
            hint = fold(safe(f"-> {check.hint}"), width - indent) if check.hint else []
            shown += [" " * indent + line for line in [*rest, *hint]]
    return shown
