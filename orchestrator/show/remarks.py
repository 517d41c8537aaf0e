"""What rows have to say beneath the table: messages, worst elements, what is not available."""

from __future__ import annotations

import re
from collections.abc import Sequence

from orchestrator.events import Row
from orchestrator.show.hostset import host_set
from orchestrator.show.legend import FLAGS
from orchestrator.show.text import fold, safe, truncate
from orchestrator.show.worst import worst_lines

_NAMED_CASES = 3  # about which the same is said, more are counted
_FEWEST_OPERATORS = 2  # that are told together
_ANY_OPERATOR = re.compile(r"(torch\.ops\.\w+)\.\w+")


def remarks(rows: Sequence[Row], width: int) -> list[str]:
    """What rows have to say, the same of many hosts once."""
    alike: dict[tuple[str, ...], list[Row]] = {}
    absent, rows = _absent(rows)
    for row in rows:
        unknown = ", ".join(flag for flag in row.flags if flag not in FLAGS)
        remark = "; ".join(text for text in (unknown, row.message, _known(row)) if text)
        worst = f"{row.case_id} {row.worst!r}" if row.status == "FAILED" and row.worst else ""
        if remark or worst:
            alike.setdefault((row.op, remark, worst), []).append(row)
    lines: list[str] = []
    told: list[Row] = []
    for (op, remark, worst), some in alike.items():
        for where in _wheres(some) if remark else ():
            text = truncate(safe(f"{op} on {where}: {remark}"), 10 * width)
            first, *rest = fold(text, width - 2)
            lines += [first, *(f"  {piece}" for piece in rest)]
        if worst:
            lines += _worst(some[0], told, width)
    for text in absent:
        first, *rest = fold(safe(truncate(text, 10 * width)), width - 2)
        lines += [first, *(f"  {piece}" for piece in rest)]
    return lines


def _absent(rows: Sequence[Row]) -> tuple[list[str], list[Row]]:
    """What is UNAVAILABLE for the same reason on the same hosts, in a sentence; the other rows.

    The names of a library's operators do not make reasons different.
    """
    reasons: dict[str, list[Row]] = {}
    left: list[Row] = []
    for row in rows:
        if row.status == "UNAVAILABLE" and row.message and not row.known_failure and not row.flags:
            reasons.setdefault(_ANY_OPERATOR.sub(r"\1.*", row.message), []).append(row)
        else:
            left.append(row)
    told = []
    for reason, some in reasons.items():
        by_op: dict[str, list[str]] = {}
        for row in some:
            by_op.setdefault(row.op, []).append(row.target)
        if len(by_op) < _FEWEST_OPERATORS:
            left += some
            continue
        by_hosts: dict[str, list[str]] = {}
        for op, targets in by_op.items():
            by_hosts.setdefault(host_set(targets), []).append(op)
        told += [
            f"UNAVAILABLE on {hosts}: {', '.join(ops)}: {reason}" for hosts, ops in by_hosts.items()
        ]
    order = {id(row): number for number, row in enumerate(rows)}
    return told, sorted(left, key=lambda row: order[id(row)])


def _wheres(rows: Sequence[Row]) -> list[str]:
    """Hosts and cases of an operator's rows: ``c500-[01-40], rows=8``; many cases are counted."""
    by_case: dict[str | None, list[str]] = {}
    for row in rows:
        by_case.setdefault(row.case, []).append(row.target)
    by_hosts: dict[str, list[str | None]] = {}
    for case, targets in by_case.items():
        by_hosts.setdefault(host_set(targets), []).append(case)
    found = []
    for hosts, cases in by_hosts.items():
        if len(cases) > _NAMED_CASES:
            found.append(f"{hosts}, {len(cases)} cases")
        else:
            found += [f"{hosts}, {case}" if case else hosts for case in cases]
    return found


def _worst(row: Row, told: list[Row], width: int) -> list[str]:
    """The worst elements of a row; what ``told`` has of another target is not told again."""
    if not row.worst:
        return []
    for other in told:
        if (other.op, other.case_id, other.worst) == (row.op, row.case_id, row.worst):
            return fold(safe(f"  the same elements as on {other.target}"), width)
    told.append(row)
    return worst_lines(row.worst, width)


def _known(row: Row) -> str:
    known = row.known_failure
    if known is None:
        return ""
    until = f"expired {known['expires']}, it counts again"
    if not known["expired"]:
        until = f"until {known['expires']}"
    return f"known failure ({until}): {known['reason']}"
