"""What became slower or broke since the last night: this night's records held against earlier ones.

A case is held against the newest earlier night that decided it, its time against the newest that
measured it: a host that was away last night is no reason to miss what it lost since. Times are
compared only where timer, device, definition and library are the same; what changed is named. So is
what is wrong still, or in the first night, so that whatever fails a night is told by it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, islice

from orchestrator.events import NightChange
from orchestrator.records import Record, Status
from orchestrator.results.case_name import case_names
from orchestrator.workflows.nightly_night import OK, Case, Job, Night, by_job

LOOK_BACK = 7  # earlier nights that are read at most
MINIMUM_CHANGE = 0.05  # of the former time; more where the repeats spread more

_GOOD = frozenset({Status.PASSED, Status.UNVERIFIED})
_RANK = {Status.PASSED: 0, Status.UNVERIFIED: 1}  # all others are worse, none of them than another
_WRONG = frozenset({Status.FAILED, Status.ERROR, Status.TIMEOUT, Status.NOT_RUN})  # for a night
_KINDS = ("failed", "broken", "slower", "still", "changed", "repaired", "faster", "new", "gone")


@dataclass
class _Before:
    """What earlier nights knew, the newest first."""

    decided: dict[Case, Record] = field(default_factory=dict)
    since: dict[Case, str] = field(default_factory=dict)  # its first night as it was decided then
    timed: dict[Case, Record] = field(default_factory=dict)
    newest: dict[str, Night] = field(default_factory=dict)  # by target: the last that has results


def compare(night: Night, earlier: Iterable[Night]) -> list[NightChange]:
    """The changes of ``night``; ``earlier`` nights come newest first, and are read as needed.

    Every case and target that is wrong is in one of them.
    """
    nights = iter(earlier)
    last = next(nights, None)
    if last is None:
        return _in_order(_wrong(night, None, [], case_names(night.cases.values())))
    before = _look_back(night, last, nights)
    names = case_names([*last.cases.values(), *night.cases.values()])
    changes = [
        *_targets(night, last, before),
        *_gone(night, before, names),
        *_cases(night, before, names),
    ]
    return _in_order([*changes, *_wrong(night, before, changes, names)])


def _in_order(changes: Iterable[NightChange]) -> list[NightChange]:
    return sorted(
        changes,
        key=lambda one: (_KINDS.index(one.change), one.op or "", one.case or "", one.target),
    )


def _look_back(night: Night, last: Night, nights: Iterator[Night]) -> _Before:
    before = _Before()
    for former in chain([last], islice(nights, LOOK_BACK - 1)):
        for case, record in former.cases.items():
            if case not in before.decided:
                before.decided[case] = record
                before.since[case] = former.since.get(case, former.run)
            if record.status in _GOOD and record.headline is not None:
                before.timed.setdefault(case, record)
        for target in former.places():
            before.newest.setdefault(target, former)
        if (
            night.cases.keys() <= before.timed.keys()
            and night.targets.keys() <= before.newest.keys()
        ):
            break
    return before


def _targets(night: Night, last: Night, before: _Before) -> Iterator[NightChange]:
    for target, status in night.targets.items():
        before.since[target, "", None] = last.since.get((target, "", None), last.run)
        former = last.targets.get(target)
        if former is None and target in before.newest:
            former = OK
        if (status != OK and former in (OK, None)) or (status != OK and former != status):
            yield NightChange(
                "broken",
                target,
                status=status,
                former_status=former,
                since=last.run,
                message=night.why.get(target),
            )
        elif status == OK and former is None:
            yield NightChange("new", target, status=status, since=last.run)
        elif status == OK and former != OK:
            yield NightChange(
                "repaired", target, status=status, former_status=former, since=last.run
            )
    for target in {*last.targets, *last.places()} - night.targets.keys():
        yield NightChange(
            "gone", target, former_status=last.targets.get(target, OK), since=last.run
        )


def _gone(night: Night, before: _Before, names: Mapping[str, str]) -> Iterator[NightChange]:
    """Cases and whole operators that a target had last, and that nothing was heard of now."""
    for job, cases in _last_known(before):
        if night.targets.get(job[0]) != OK or job in night.undecided:
            continue  # told of the target as a whole, or nobody knows
        since = before.newest[job[0]].run
        now = night.jobs.get(job)
        if now is None:
            yield NightChange("gone", job[0], op=job[1], since=since)
        elif not any(_stands_for_all(case, record) for case, record in now.items()):
            # (A job that died early is told as broken.)
            for case, record in cases.items():
                if case not in now:
                    kind = "repaired" if _stands_for_all(case, record) else "gone"
                    yield _change(kind, case, None, record, since, names)


def _last_known(before: _Before) -> Iterator[tuple[Job, Mapping[Case, Record]]]:
    for night in {night.run: night for night in before.newest.values()}.values():
        for job, cases in night.jobs.items():
            if before.newest[job[0]] is night:
                yield job, cases


def _cases(night: Night, before: _Before, names: Mapping[str, str]) -> Iterator[NightChange]:
    known = by_job(before.decided)
    new: set[Job] = set()
    changed: set[tuple[Job, str]] = set()
    for case, record in night.cases.items():
        target, op, _ = case
        former = before.decided.get(case) or _in_the_place_of(case, record, known)
        if former is None:
            since = before.newest[target].run if target in before.newest else None
            if target not in before.newest and record.status in _GOOD:
                continue  # all of the target is new
            if (target, op) in known:
                if not any(_stands_for_all(c, r) for c, r in known[target, op].items()):
                    yield _change("new", case, record, None, since, names)
            elif record.status not in _GOOD:
                yield _change("new", case, record, None, since, names)
            elif (target, op) not in new:
                new.add((target, op))
                yield NightChange("new", target, op=op, status=record.status.value, since=since)
            continue
        if former.status is not record.status:
            worse = _RANK.get(record.status, 2) >= _RANK.get(former.status, 2)
            kind = "broken" if worse else "repaired"
            yield _change(kind, case, record, former, former.run, names)
        timed = before.timed.get(case)
        if timed is None or record.status not in _GOOD or record.headline is None:
            continue
        differing = list(_differing(record, timed))
        for text in differing:
            if ((target, op), text) not in changed:
                changed.add(((target, op), text))
                yield NightChange("changed", target, op=op, since=timed.run, message=text)
        if not differing and (found := _time_change(case, record, timed, names)):
            yield found


def _wrong(
    night: Night, before: _Before | None, told: Iterable[NightChange], names: Mapping[str, str]
) -> Iterator[NightChange]:
    """What is wrong and not ``told`` yet: as it was before, or there is no night before."""
    known = {(change.target, change.op or "", change.case_id, change.status) for change in told}
    kind = "failed" if before is None else "still"
    for target, status in night.targets.items():
        if status != OK and (target, "", None, status) not in known:
            since = before.since.get((target, "", None)) if before is not None else None
            yield NightChange(
                kind, target, status=status, since=since, message=night.why.get(target)
            )
    for case, record in night.cases.items():
        if record.status not in _WRONG or record.excused:
            continue
        if (*case, record.status.value) not in known:
            former = before.decided.get(case) if before is not None else None
            same = before is not None and former is not None and former.status is record.status
            since = before.since[case] if before is not None and same else None
            yield _change(kind, case, record, None, since, names)


def _stands_for_all(case: Case, record: Record) -> bool:
    """Whether a record without a case says that its job did not come to its end."""
    return case[2] is None and record.status not in _GOOD


def _in_the_place_of(
    case: Case, record: Record, known: Mapping[Job, Mapping[Case, Record]]
) -> Record | None:
    """What a job that died early is held against: the worst of what it had before."""
    if not _stands_for_all(case, record):
        return None
    former = known.get(case[:2], {}).values()
    return max(former, key=lambda one: _RANK.get(one.status, 2), default=None)


def _change(
    kind: str,
    case: Case,
    record: Record | None,
    former: Record | None,
    since: str | None,
    names: Mapping[str, str],
) -> NightChange:
    shown = record or former
    error = record.error if record is not None else None
    return NightChange(
        kind,
        case[0],
        op=case[1],
        case_id=case[2],
        case=(names.get(shown.record_id) or None) if shown is not None else None,
        status=record.status.value if record is not None else None,
        former_status=former.status.value if former is not None else None,
        flags=tuple(record.flags) if record is not None else (),
        since=since,
        message=error.message if error is not None else None,
    )


def _differing(record: Record, former: Record) -> Iterator[str]:
    """What makes two times incomparable, one sentence each."""
    if record.definition != former.definition:
        yield f"definition {_short(former.definition)} -> {_short(record.definition)}"
    if (now := _library(record)) != (then := _library(former)):
        yield f"library {_words(then)} -> {_words(now)}"
    pairs = [
        ("device", former.device and former.device.name, record.device and record.device.name),
        ("timer", former.headline and former.headline[0], record.headline and record.headline[0]),
    ]
    for what, then_value, now_value in pairs:
        if then_value != now_value:
            yield f"{what} {then_value} -> {now_value}"


def _library(record: Record) -> tuple[str | None, ...]:
    library = record.library or {}
    return tuple(library.get(key) for key in ("name", "version", "sha256"))


def _words(library: tuple[str | None, ...]) -> str:
    name, version, digest = library
    known = [name, version, f"({digest[:8]})" if digest else None]
    return " ".join(str(word) for word in known if word) or "none"


def _short(digest: str | None) -> str:
    return digest[:8] if digest else "unknown"


def _time_change(
    case: Case, record: Record, former: Record, names: Mapping[str, str]
) -> NightChange | None:
    """``slower`` or ``faster`` where the time moved by more than it may by itself."""
    now, then = _seconds(record), _seconds(former)
    if now is None or then is None:
        return None
    limit = max(MINIMUM_CHANGE, _moves(record), _moves(former))
    # A spread says as much about growing as about shrinking: 1.05 times, or a 1.05th.
    if then * (1 + limit) >= now >= then / (1 + limit):
        return None
    return NightChange(
        "slower" if now > then else "faster",
        case[0],
        op=case[1],
        case_id=case[2],
        case=names.get(record.record_id) or None,
        status=record.status.value,
        former_status=former.status.value,
        seconds=now,
        former_seconds=then,
        timer=record.headline[0] if record.headline else None,
        limit=limit,
        flags=tuple(record.flags),
        since=former.run,
    )


def _moves(record: Record) -> float:
    """By how much a time changes by itself, relative: from process to process, where that is known.

    Of a single process there is only the noise within it.
    """
    if record.repeat_spread is not None:
        return record.repeat_spread
    return (record.headline[1].noise if record.headline else None) or 0.0


def _seconds(record: Record) -> float | None:
    timer = record.headline[1] if record.headline else None
    return (timer.median or timer.mean) if timer is not None else None
