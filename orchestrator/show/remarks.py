"""What rows have to say beneath the table: messages, worst elements, what is not available."""

from __future__ import annotations

import re
from collections.abc import Sequence

from orchestrator.events import Row
from orchestrator.show.hostset import host_set
from orchestrator.show.legend import FLAGS
from orchestrator.show.numbers import counted
from orchestrator.show.text import fold, safe, truncate
from orchestrator.show.worst import worst_lines

_NAMED_CASES = 3  # about which the same is said, more are counted
_FEWEST_OPERATORS = 2  # that are told together
_LONGEST = 20  # lines of a remark
_LONGEST_CASE = 100  # cells of its parameters
_ANY_OPERATOR = re.compile(r"(torch\.ops\.\w+)\.\w+")
_FOLDERS = re.compile(r"folders searched: ([^;\n]+)")
# Operators that are named where one reason keeps many from being run: which ones are absent is
# news, of a lost target it is all that were to run there.
_NAMED = {"UNAVAILABLE": 40, "NOT_RUN": 3}


def remarks(rows: Sequence[Row], width: int) -> list[str]:
    """What rows have to say, the same of many hosts once."""
    alike: dict[tuple[str, ...], list[Row]] = {}
    absent, rows = _absent(rows)
    for row in rows:
        unknown = ", ".join(flag for flag in row.flags if flag not in FLAGS)
        message = brief(row.message or "")
        remark = "; ".join(text for text in (unknown, message, _known(row)) if text)
        worst = f"{row.case_id} {row.worst!r}" if row.status == "FAILED" and row.worst else ""
        if remark or worst:
            alike.setdefault((row.op, remark, worst), []).append(row)
    lines: list[str] = []
    told: list[Row] = []
    for (op, remark, worst), some in alike.items():
        for where in _wheres(some) if remark else ():
            lines += _folded(f"{op} on {where}: {remark}", width)
        if worst:
            lines += _worst(some[0], told, width)
    for text in absent:
        lines += _folded(text, width)
    return lines


def brief(message: str) -> str:
    """``message`` with the folders that were searched counted; the log names them."""
    return _FOLDERS.sub(_counted_folders, message)


def _counted_folders(match: re.Match[str]) -> str:
    return counted(len(match[1].split(", ")), "folders searched")


def _folded(text: str, width: int) -> list[str]:
    first, *rest = fold(safe(truncate(text, _LONGEST * width)), width - 2)
    return [first, *(f"  {piece}" for piece in rest)]


def _absent(rows: Sequence[Row]) -> tuple[list[str], list[Row]]:
    """What was not run for the same reason on the same hosts, in a sentence; the other rows.

    The names of a library's operators do not make reasons different.
    """
    reasons: dict[tuple[str, str], list[Row]] = {}
    left: list[Row] = []
    for row in rows:
        if row.status in _NAMED and row.message and not row.known_failure and not row.flags:
            reason = _ANY_OPERATOR.sub(r"\1.*", brief(row.message))
            reasons.setdefault((row.status, reason), []).append(row)
        else:
            left.append(row)
    told = []
    for (status, reason), some in reasons.items():
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
            f"{status} on {hosts}: {_ops(ops, _NAMED[status])}: {reason}"
            for hosts, ops in by_hosts.items()
        ]
    order = {id(row): number for number, row in enumerate(rows)}
    return told, sorted(left, key=lambda row: order[id(row)])


def _ops(ops: Sequence[str], most: int) -> str:
    return ", ".join(ops) if len(ops) <= most else counted(len(ops), "operators")


def _wheres(rows: Sequence[Row]) -> list[str]:
    """Hosts and cases of an operator's rows: ``c500-[01-40], rows=8``; many cases are counted."""
    by_case: dict[str, list[str]] = {}
    for row in rows:
        by_case.setdefault(_case(row), []).append(row.target)
    by_hosts: dict[str, list[str]] = {}
    for case, targets in by_case.items():
        by_hosts.setdefault(host_set(targets), []).append(case)
    found = []
    for hosts, cases in by_hosts.items():
        *others, last = [case for case in cases if case] or [""]
        names = f"{', '.join(others)} and {last}" if others else last
        if len(cases) > _NAMED_CASES:
            names = f"{len(cases)} cases"
        found.append(f"{hosts}, {names}" if names else hosts)
    return found


def _case(row: Row) -> str:
    """A case's name; of one that failed, and is its operator's only one, what it was given."""
    if row.case or row.status != "FAILED":
        return row.case or ""
    given = [
        f"{name}={value}" for name, value in row.parameters.items() if not isinstance(value, dict)
    ]
    return truncate(" ".join(given), _LONGEST_CASE)


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
