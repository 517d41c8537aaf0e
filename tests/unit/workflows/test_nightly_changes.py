"""What a night names: one small story a case, told in records."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from orchestrator.events import NightChange
from orchestrator.records import Record
from orchestrator.show.nights import changes_lines
from orchestrator.workflows.nightly_changes import compare
from orchestrator.workflows.nightly_night import Night

_NUMBERS = itertools.count()
OK = {"a": "OK"}
KNOWN = {"reason": "a bug", "expires": "2099-01-01"}


def rec(
    seconds: float | None = 1.0,
    status: str = "PASSED",
    *,
    op: str = "gelu",
    case: str | None = "c1",
    target: str = "a",
    spread: float | None = 0.0,
    **more: Any,
) -> Record:
    values: dict[str, Any] = {
        "schema": "mxfleet-result/1",
        "record_id": f"{next(_NUMBERS):032x}",
        "suite": "mcoplib",
        "op": op,
        "case_id": case,
        "parameters": {"rows": case},
        "status": status,
        "verification": {"passed": True},
        "timers": {"cold_gpu": {"median": seconds}},
        "repeat_spread": spread,
        "device": {"kind": "cuda", "name": "G"},
        "definition": "d1",
        "library": {"name": "lib", "version": "1", "sha256": "aa"},
        "target": target,
    }
    return Record.model_validate(values | more)


def cut(status: str, op: str = "gelu", target: str = "a") -> Record:
    """What stands for a job that died: no case, no time."""
    nothing = {"timers": {}, "device": None, "verification": None}
    error = {"type": status, "message": "why"}
    return rec(None, status, op=op, case=None, target=target, error=error, **nothing)


@dataclass(frozen=True)
class Story:
    name: str
    nights: Sequence[Sequence[Record]]  # the oldest first, the last one is tonight
    told: Sequence[str] = ()
    targets: Sequence[dict[str, str]] = field(default=())  # of each night; all fine when left out
    whole: bool = True  # tonight came to its end


def cpu(seconds: float) -> Record:
    timers = {"cpu": {"median": seconds}}
    return rec(timers=timers, device={"kind": "cpu", "name": "G"})


STORIES = [
    Story("nothing before", [[rec()]]),
    Story("the same", [[rec()], [rec()]]),
    Story("within five percent", [[rec(1.0)], [rec(1.049)]]),
    Story("slower", [[rec(1.0)], [rec(1.06)]], ["slower a gelu c1 1.0->1.06"]),
    Story("faster", [[rec(1.06)], [rec(1.0)]], ["faster a gelu c1 1.06->1.0"]),
    Story("within the spread of now", [[rec(1.0)], [rec(1.3, spread=0.4)]]),
    Story("within the spread of then", [[rec(1.0, spread=0.4)], [rec(1.3)]]),
    Story(
        "one process: its noise",
        [[rec(1.0)], [rec(1.3, spread=None, timers={"cold_gpu": {"median": 1.3, "noise": 0.4}})]],
    ),
    Story("beyond the spread", [[rec(1.0, spread=0.4)], [rec(1.5)]], ["slower a gelu c1 1.0->1.5"]),
    Story(
        "another definition",
        [[rec(1.0)], [rec(2.0, definition="d2")]],
        ["changed a gelu definition d1 -> d2"],
    ),
    Story(
        "another library",
        [[rec(1.0)], [rec(2.0, library={"name": "lib", "version": "2"})]],
        ["changed a gelu library lib 1 (aa) -> lib 2"],
    ),
    Story(
        "another device",
        [[rec(1.0)], [rec(2.0, device={"kind": "cuda", "name": "H"})]],
        ["changed a gelu device G -> H"],
    ),
    Story(
        "another timer",
        [[rec(1.0, device={"kind": "cpu", "name": "G"})], [cpu(2.0)]],
        ["changed a gelu timer cold_gpu -> cpu"],
    ),
    Story(
        "one change of many cases is told once",
        [
            [rec(case="c1"), rec(case="c2")],
            [rec(case="c1", definition="d2"), rec(case="c2", definition="d2")],
        ],
        ["changed a gelu definition d1 -> d2"],
    ),
    Story(
        "broken",
        [[rec()], [rec(None, "FAILED", timers={})]],
        ["broken a gelu c1 FAILED was PASSED"],
    ),
    Story(
        "still broken",
        [[rec(status="FAILED")], [rec(status="FAILED")]],
        ["still a gelu c1 FAILED since n0"],
    ),
    Story(
        "still broken, a night with nothing about it in between",
        [[rec(), rec(op="silu", status="ERROR")], [rec()], [rec(), rec(op="silu", status="ERROR")]],
        ["still a silu c1 ERROR since n0"],
    ),
    Story("broken in the first night", [[rec(), cut("ERROR", "silu")]], ["failed a silu - ERROR"]),
    Story(
        "a host that is away in the first night",
        [[rec(), cut("NOT_RUN", target="b")]],
        ["failed b - - UNREACHABLE"],
        targets=[{"a": "OK", "b": "UNREACHABLE"}],
    ),
    Story(
        "a host that stays away",
        [[rec(), rec(target="b")], *[[rec(), cut("NOT_RUN", target="b")]] * 2],
        ["still b - - UNREACHABLE since n1"],
        targets=[{"a": "OK", "b": "OK"}, *[{"a": "OK", "b": "UNREACHABLE"}] * 2],
    ),
    Story(
        "it died, now one of its cases fails",
        [[cut("ERROR")], [rec(), rec(case="c2", status="FAILED")]],
        ["still a gelu c2 FAILED", "repaired a gelu - was ERROR"],
    ),
    Story("UNAVAILABLE counts for nothing", [[cut("UNAVAILABLE")], [cut("UNAVAILABLE")]]),
    Story(
        "a known failure counts for nothing",
        [[rec(status="FAILED", known_failure=KNOWN)], [rec(status="FAILED", known_failure=KNOWN)]],
    ),
    Story(
        "broken in another way",
        [[rec(status="FAILED")], [rec(status="ERROR")]],
        ["broken a gelu c1 ERROR was FAILED"],
    ),
    Story(
        "no longer verified",
        [[rec()], [rec(status="UNVERIFIED")]],
        ["broken a gelu c1 UNVERIFIED was PASSED"],
    ),
    Story(
        "repaired, and slower than before it broke",
        [[rec(1.0)], [rec(status="ERROR")], [rec(2.0)]],
        ["slower a gelu c1 1.0->2.0", "repaired a gelu c1 PASSED was ERROR"],
    ),
    Story(
        "died before any case",
        [[rec(), rec(case="c2")], [cut("ERROR")]],
        ["broken a gelu - ERROR was PASSED"],
    ),
    Story(
        "died again in the same way",
        [[rec()], [cut("ERROR")], [cut("ERROR")]],
        ["still a gelu - ERROR since n1"],
    ),
    Story(
        "died in the middle",
        [[rec(), rec(case="c2")], [rec(), cut("TIMEOUT")]],
        ["broken a gelu - TIMEOUT was PASSED"],
    ),
    Story("lives again", [[rec()], [cut("ERROR")], [rec()]], ["repaired a gelu - was ERROR"]),
    Story(
        "the tree's own mistake",
        [[rec()], [cut("NOT_RUN")]],
        ["broken a gelu - NOT_RUN was PASSED"],
    ),
    Story("interrupted tonight", [[rec()], [cut("NOT_RUN")]], whole=False),
    Story("a new case", [[rec()], [rec(), rec(case="c2")]], ["new a gelu c2 PASSED"]),
    Story(
        "a new operator is told once",
        [[rec()], [rec(), rec(op="silu"), rec(op="silu", case="c2")]],
        ["new a silu - PASSED"],
    ),
    Story(
        "a new operator that fails",
        [[rec()], [rec(), rec(op="silu", status="FAILED")]],
        ["new a silu c1 FAILED"],
    ),
    Story("a case is gone", [[rec(), rec(case="c2")], [rec()]], ["gone a gelu c2"]),
    Story(
        "an operator is gone",
        [[rec(), rec(op="silu"), rec(op="silu", case="c2")], [rec()]],
        ["gone a silu -"],
    ),
    Story(
        "a host is away",
        [[rec(), rec(target="b")], [rec(), cut("NOT_RUN", target="b")]],
        ["broken b - - UNREACHABLE was OK"],
        targets=[{"a": "OK", "b": "OK"}, {"a": "OK", "b": "UNREACHABLE"}],
    ),
    Story(
        "a host is away for another reason",
        [[rec()], [rec()]],
        ["broken b - - UNUSABLE was UNREACHABLE"],
        targets=[{"a": "OK", "b": "UNREACHABLE"}, {"a": "OK", "b": "UNUSABLE"}],
    ),
    Story(
        "a host is back, and slower than when it went",
        [[rec(), rec(1.0, target="b")], [rec()], [rec(), rec(2.0, target="b")]],
        ["slower b gelu c1 1.0->2.0", "repaired b - - OK was UNREACHABLE"],
        targets=[{"a": "OK", "b": "OK"}, {"a": "OK", "b": "UNREACHABLE"}, {"a": "OK", "b": "OK"}],
    ),
    Story(
        "a new host is told once",
        [[rec()], [rec(), rec(target="b")]],
        ["new b - - OK"],
        targets=[OK, {"a": "OK", "b": "OK"}],
    ),
    Story(
        "a host is gone",
        [[rec(), rec(target="b")], [rec()]],
        ["gone b - - was OK"],
        targets=[{"a": "OK", "b": "OK"}, OK],
    ),
    Story(
        "the second attempt counts",
        [[rec(1.0)], [rec(1.0, attempt=2), rec(None, "ERROR", timers={}, attempt=1)]],
    ),
]


def told(change: NightChange) -> str:
    words = [change.change, change.target, change.op or "-"]
    if change.message and change.change == "changed":
        return " ".join([*words, change.message])
    words.append(change.case_id or "-")
    if change.seconds is not None:
        return " ".join([*words, f"{change.former_seconds}->{change.seconds}"])
    words += [change.status] if change.status else []
    words += ["since", change.since] if change.change == "still" and change.since else []
    words += (
        [f"was {change.former_status}"]
        if change.former_status and (change.change != "gone" or change.op is None)
        else []
    )
    return " ".join(words).removesuffix(" -") if change.op is None else " ".join(words)


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
def test_a_night_names_what_changed(story: Story) -> None:
    targets = story.targets or [OK] * len(story.nights)
    last = len(story.nights) - 1
    nights = [
        Night.of(f"n{i}", records, targets[i], story.whole or i < last)
        for i, records in enumerate(story.nights)
    ]
    changes = compare(nights[-1], reversed(nights[:-1]))
    assert [told(change) for change in changes] == list(story.told)
    assert all(len(line) <= 80 for line in changes_lines(changes, 80))


def test_no_more_nights_are_read_than_needed() -> None:
    def earlier() -> Any:
        yield Night.of("n1", [rec(1.0, run="n1")], OK, True)
        raise AssertionError("another night was read")

    (change,) = compare(Night.of("n2", [rec(2.0)], OK, True), earlier())
    assert change.since == "n1"


def test_the_same_on_many_targets_is_one_line() -> None:
    names = [f"c500-{number:02}" for number in range(1, 9)]
    fine = dict.fromkeys(names, "OK")
    then = Night.of("n1", [rec(1e-5, target=name) for name in names], fine, True)
    now = Night.of(
        "n2", [rec(1e-5 * (2 + i), target=name) for i, name in enumerate(names)], fine, True
    )
    lines = changes_lines(compare(now, [then]), 80)
    assert lines == ["slower    gelu on c500-[01-08]: GPU time +100% to +800%"]


def test_one_changed_harness_is_one_line_for_all_operators() -> None:
    ops = [f"op{number}" for number in range(30)]
    then = Night.of("n1", [rec(op=op) for op in ops], OK, True)
    now = Night.of("n2", [rec(op=op, definition="d2") for op in ops], OK, True)
    (line,) = changes_lines(compare(now, [then]), 100)
    assert line == "changed   30 operators on a: definition d1 -> d2; times are not compared"


def test_an_operator_whose_files_are_wrong_is_broken_and_stays_so() -> None:
    def night(run: str, *ops: str, **left_out: str) -> Night:
        return Night.of(run, [rec(op=op, run=run) for op in ops], OK, True, left_out=left_out)

    then = night("n1", "gelu", "silu")
    now = night("n2", "gelu", silu="config/silu.json:3: broken JSON")
    (change,) = compare(now, [then])
    assert changes_lines([change], 100) == [
        "broken    silu on a: NOT_RUN, was PASSED: left out: config/silu.json:3: broken JSON"
    ]
    again = night("n3", "gelu", silu="config/silu.json:3: broken JSON")
    (change,) = compare(again, [now, then])
    (line,) = changes_lines([change], 100)
    assert line.startswith("still     NOT_RUN silu on a since n2: left out: config/silu.json:3:")
    repaired = compare(night("n4", "gelu", "silu"), [again, now, then])
    assert [told(change) for change in repaired] == ["repaired a silu - was NOT_RUN"]


def test_since_reaches_further_back_than_what_is_read() -> None:
    failing = [rec(status="FAILED")]
    case = ("a", "gelu", "c1")
    earlier = [
        Night.of(f"n{number}", failing, OK, True, since={case: "n1"})
        for number in range(20, 10, -1)
    ]
    (change,) = compare(Night.of("n21", failing, OK, True), earlier)
    assert (change.change, change.since) == ("still", "n1")


@pytest.mark.parametrize("kind", ["still", "failed"])
def test_what_stays_wrong_is_bounded_and_counted(kind: str) -> None:
    changes = [
        *(NightChange(kind, "a", op=f"op{number:02}", status="ERROR") for number in range(23)),
        NightChange("gone", "b", former_status="OK"),
    ]
    lines = changes_lines(changes, 80)
    assert len(lines) == 22 and lines[-1] == "gone      b"
    assert lines[20] == f"{kind:8}  and 3 more, see the log's table"


def test_reasons_that_differ_are_counted() -> None:
    changes = [
        NightChange("broken", f"h{number}", status="UNUSABLE", message=f"disk {number % 2}")
        for number in (1, 2, 3)
    ]
    assert changes_lines(changes, 80) == ["broken    h[1-3]: UNUSABLE: disk 1 (and 1 reason more)"]
