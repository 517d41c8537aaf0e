"""One night as it is compared: what is known of each case, operator and target."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from orchestrator.records import Failure, Record, Status
from orchestrator.suites import mcoplib

OK = "OK"

Job = tuple[str, str]  # target, operator
Case = tuple[str, str, str | None]  # target, operator (empty: the target itself), case_id


@dataclass(frozen=True)
class Night:
    """What a night left: its records, and what became of its targets (unknown after a crash).

    Of ``undecided`` operators it says too little: they were not run, or not to their end. ``why``
    says it of targets, ``since`` names the first night of what was wrong before already.
    """

    run: str
    cases: Mapping[Case, Record]
    targets: Mapping[str, str]
    undecided: frozenset[Job]
    why: Mapping[str, str] = field(default_factory=dict)
    since: Mapping[Case, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        run: str,
        records: Iterable[Record],
        targets: Mapping[str, str],
        whole: bool,
        *,
        left_out: Mapping[str, str] | None = None,
        since: Mapping[Case, str] | None = None,
    ) -> Night:
        """``whole`` says that the night came to its own end: what was not run then has a reason.

        ``left_out`` are operators that were run nowhere, and why.
        """
        cases: dict[Case, Record] = {}
        undecided: set[Job] = set()
        why: dict[str, str] = {}
        records = [*records, *_left_out(run, targets, left_out or {})]
        for record in sorted(records, key=lambda record: record.attempt or 0):
            target = record.target or ""
            if record.status is Status.NOT_RUN and (not whole or targets.get(target) != OK):
                undecided.add((target, record.op))
                if record.error is not None:
                    why[target] = record.error.message
            else:
                cases[target, record.op, record.case_id] = record
        return cls(run, cases, targets, frozenset(undecided), why, since or {})

    @cached_property
    def jobs(self) -> Mapping[Job, Mapping[Case, Record]]:
        """The operators of which there is anything, target by target."""
        return by_job(self.cases)

    def places(self) -> set[str]:
        """The targets of which there is anything."""
        return {target for target, _ in self.jobs}


def _left_out(run: str, targets: Iterable[str], left_out: Mapping[str, str]) -> Iterator[Record]:
    """What stands for operators whose files are wrong, on every target."""
    for target in targets:
        for op, reason in left_out.items():
            yield Record(
                schema="mxfleet-result/1",
                record_id=f"left out {target} {op}",
                suite=mcoplib.NAME,
                op=op,
                status=Status.NOT_RUN,
                error=Failure(type=Status.NOT_RUN.value, message=f"left out: {reason}"),
            ).model_copy(update={"run": run, "target": target})


def by_job(cases: Mapping[Case, Record]) -> dict[Job, dict[Case, Record]]:
    found: dict[Job, dict[Case, Record]] = {}
    for case, record in cases.items():
        found.setdefault(case[:2], {})[case] = record
    return found
