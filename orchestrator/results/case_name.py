"""What people call a case: the parameters that tell it from its operator's other cases."""

from __future__ import annotations

from collections.abc import Iterable

from orchestrator.records import Record


def case_names(records: Iterable[Record]) -> dict[str, str]:
    """By ``record_id`` the parameters in which the cases of an operator differ: ``rows=8 bits=4``.

    Empty where an operator has one case only, or where the case of a record is unknown (its
    parameters are then those of the whole sweep).
    """
    by_op: dict[str, list[Record]] = {}
    for record in records:
        if record.case_id is not None:
            by_op.setdefault(record.op, []).append(record)
    names: dict[str, str] = {}
    for cases in by_op.values():
        # In the order in which they are first seen; one that is missing somewhere differs too.
        keys = dict.fromkeys(key for record in cases for key in record.parameters)
        swept = [key for key in keys if len({_value(record, key) for record in cases}) > 1]
        for record in cases:
            known = [key for key in swept if key in record.parameters]
            names[record.record_id] = " ".join(f"{key}={record.parameters[key]}" for key in known)
    return names


def _value(record: Record, key: str) -> str | None:
    return repr(record.parameters[key]) if key in record.parameters else None
