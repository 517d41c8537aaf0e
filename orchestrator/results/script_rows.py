"""Which row of an established script is which case: each case of a config has exactly one."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.records import Failure, Record, Status
from orchestrator.results.case_id import NOT_PARAMETERS, case_parameters
from orchestrator.results.device_csv import WIDTH, Column, Line

_NEVER_SWEPT = NOT_PARAMETERS | {"batch_size_list"}
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")


def expand(config: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The parameters of each case: lists are swept, in the order of the keys."""
    parameters = case_parameters(config)
    swept = [
        key for key, value in config.items() if isinstance(value, list) and key not in _NEVER_SWEPT
    ]
    return [
        {**parameters, **dict(zip(swept, values, strict=True))}
        for values in itertools.product(*(config[key] for key in swept))
    ] or [parameters]


def match(lines: Sequence[Line], cases: Sequence[dict[str, Any]]) -> list[int | None]:
    """The case of each row by its place in ``cases``, None where it cannot be told.

    What a row that fits one case only takes, a row that fits several does not stand for.
    """
    if len(cases) == 1:
        return [0] * len(lines)
    swept = [key for key in cases[0] if any(case[key] != cases[0][key] for case in cases)]
    fits = [
        {at for at, case in enumerate(cases) if all(_shows(line, k, case[k]) for k in swept)}
        for line in lines
    ]
    owners: list[int | None] = [None] * len(lines)
    while True:
        found = {row: min(fit) for row, fit in enumerate(fits) if len(fit) == 1}
        if not found:
            return owners
        taken = set(found.values())
        for row, fit in enumerate(fits):
            owners[row] = found.get(row, owners[row])
            fit -= taken


def _shows(line: Line, key: str, value: Any) -> bool:
    dtype = line.cells[Column.DTYPE].removeprefix("torch.")
    if key == "dtype":
        return dtype == str(value).removeprefix("torch.")
    texts = [line.cells[Column.SHAPE], *line.cells[WIDTH:]]
    if isinstance(value, int | float) and not isinstance(value, bool):
        return any(str(value) in _NUMBER.findall(text) for text in texts)
    return any(str(value) in text.split() for text in texts)


def one_row_a_case(records: Sequence[Record], owners: Sequence[int | None]) -> list[Record]:
    """The records of rows; those are errors that are not the one row of their case."""
    held = []
    for record, owner in zip(records, owners, strict=True):
        why = None
        if owner is None:
            why = "dtype and shape do not say which case of the sweep this row is"
        elif owners.count(owner) > 1:
            why = f"its case has {owners.count(owner)} rows"
        if why is None or record.status is Status.FAILED:
            held.append(record)
        else:
            error = Failure(type="AmbiguousRow", message=why)
            held.append(record.model_copy(update={"status": Status.ERROR, "error": error}))
    return held
