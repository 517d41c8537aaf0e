"""What an attempt left, judged: records first, never exit code 0 alone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import (
    DeadDeviceError,
    ExitCode,
    LinkLostError,
    MxfleetError,
    TreeError,
    UnusableError,
    UsageError,
)
from orchestrator.execute.job import Attempt
from orchestrator.inventory.model import Host, Target
from orchestrator.plan.jobs import Plan, PlannedJob
from orchestrator.records import Status
from orchestrator.results.merge import merge
from orchestrator.suites.markers import scan
from orchestrator.suites.measuring import Measuring
from orchestrator.workflows.interpret import Verdict, interpret

PLAN = Plan("r", "t", (), commit="c0ffee")
OURS = Target("h:c", Host("h"), container="c")
ESTABLISHED = Target("h:c", Host("h"), container="c", workdir="/w")
HEADER = (
    "op_name,Device,Device Name,Acc_Pass,Cos_Dist,Op,dtype,Shape,Samples,CPU Time (sec),Noise,"
    "GPU Time (sec),Noise,Elem/s (elem/sec),GlobalMem BW (bytes/sec),BWUtil,Samples,Batch GPU (sec)"
)
ROW = 'op,0,NVIDIA H200,Yes,1.0e-7,op,float16,"(4 4)",84,1e-5,1%,1e-6,1%,1e9,1e9,10%,100,2e-6'


GOOD: dict[str, Any] = {
    "device": {"kind": "cuda", "name": "NVIDIA H200"},
    "verification": {"passed": True, "metrics": {"one_minus_cosine": 1e-7}},
    "timers": {"cold_gpu": {"mean": 1e-5, "median": 1e-5}},
}


def record(status: str = "PASSED", op: str = "op", **more: Any) -> str:
    return json.dumps(
        {
            "schema": "mxfleet-result/1",
            "record_id": f"{status}{op}{sorted(more.items(), key=str)}",
            "suite": "mcoplib",
            "op": op,
            "status": status,
            **GOOD,
            **({"verification": None} if status == "UNVERIFIED" else {}),
            **more,
        }
    )


def outcome(**more: Any) -> dict[str, Any]:
    return {"ended": "exited", "exit_code": 0, "signal": None, "unkillable": [], **more}


def attempt(
    tmp_path: Path,
    *,
    target: Target = OURS,
    lines: list[str] | None = None,
    text: str | None = None,
    csv: str | None = None,
    log: str = "",
    outcome: dict[str, Any] | None = None,
    error: MxfleetError | None = None,
    last_words: str = "",
    started: bool = True,
) -> Attempt:
    spec = {"timeout": 60.0, "silence": 5.0}
    made = Attempt(PlannedJob(target, "op", "job-1", spec, 2), tmp_path / "op.log")
    made.markers = scan(log.splitlines())
    made.outcome, made.error, made.last_words, made.started = outcome, error, last_words, started
    if lines is not None or text is not None:
        made.records = tmp_path / "records.jsonl"
        made.records.write_text(
            text if text is not None else "".join(f"{x}\n" for x in lines or ())
        )
    if csv is not None:
        made.csv = tmp_path / "result.csv"
        made.csv.write_text(csv)
    return made


def judge(attempt: Attempt, config: dict[str, Any] | None = None) -> Verdict:
    return interpret(attempt, PLAN, config=config)


KNOWN = {"known_failure": {"reason": "r", "expires": "2026-12-31", "expired": False}}
EXPIRED = {"known_failure": {"reason": "r", "expires": "2026-01-01", "expired": True}}


# case, records, outcome, status, code, part of the message (None: no message at all)
ENDS: list[tuple[str, list[str] | None, dict[str, Any], str, int, str | None]] = [
    ("passed", [record()], {}, "PASSED", 0, None),
    ("failed", [record("FAILED")], {"exit_code": 1}, "FAILED", 1, None),
    ("one of two failed", [record(), record("FAILED")], {"exit_code": 1}, "FAILED", 1, None),
    ("failed, but exit 0", [record("FAILED")], {}, "FAILED", 1, None),
    ("failed and error", [record("ERROR"), record("FAILED")], {}, "FAILED", 1, None),
    ("unavailable", [record("UNAVAILABLE")], {"exit_code": 3}, "UNAVAILABLE", 3, None),
    ("unverified", [record("UNVERIFIED")], {}, "UNVERIFIED", 0, None),
    ("unverified, exit 6", [record("UNVERIFIED")], {"exit_code": 6}, "UNVERIFIED", 0, None),
    ("passed, then exit 6", [record()], {"exit_code": 6}, "ERROR", 1, "ended with exit code 6"),
    ("passed and unverified", [record(), record("UNVERIFIED")], {}, "UNVERIFIED", 0, None),
    ("harness timeout", [record("TIMEOUT")], {"exit_code": 4}, "TIMEOUT", 4, None),
    ("passed, then exit 1", [record()], {"exit_code": 1}, "ERROR", 1, "ended with exit code 1"),
    ("unverified, then exit 1", [record("UNVERIFIED")], {"exit_code": 1}, "ERROR", 1, "code 1"),
    (
        "passed, then a crash",
        [record()],
        {"exit_code": None, "signal": 11},
        "ERROR",
        1,
        "killed by SIGSEGV",
    ),
    ("an odd signal", [], {"exit_code": None, "signal": 250}, "ERROR", 1, "killed by signal 250"),
    ("nothing at all", None, {}, "ERROR", 1, "no record, the command ended with exit code 0: last"),
    ("an empty file", [], {}, "ERROR", 1, "no record"),
    ("exit 1 without record", [], {"exit_code": 1}, "ERROR", 1, "exit code 1: last words"),
    ("a wrong tree", [], {"exit_code": 2}, "NOT_RUN", 2, "last words"),
    ("an unusable target", [], {"exit_code": 3}, "NOT_RUN", 3, "last words"),
    ("time limit", [], {"ended": "timeout", "exit_code": None}, "TIMEOUT", 4, "its limit of 60 s"),
    (
        "silent",
        [],
        {"ended": "silence", "exit_code": None},
        "TIMEOUT",
        4,
        "after 5 s without output (--silence)",
    ),
    (
        "time limit after passing",
        [record()],
        {"ended": "timeout"},
        "TIMEOUT",
        4,
        "its limit of 60 s",
    ),
    (
        "time limit after failing",
        [record("FAILED")],
        {"ended": "timeout"},
        "FAILED",
        1,
        "its limit of 60 s",
    ),
    ("stopped", [], {"ended": "stopped"}, "NOT_RUN", 130, "stopped before its end"),
    ("lost", [record()], {"ended": "lost"}, "NOT_RUN", 3, "the link was lost"),
    (
        "refused",
        None,
        {"ended": "refused", "exit_code": None, "message": "no env script; set it"},
        "NOT_RUN",
        3,
        "no env script; set it",
    ),
    (
        "unkillable",
        [],
        {"ended": "timeout", "unkillable": [{"pid": 7, "state": "D"}]},
        "TIMEOUT",
        4,
        "UNKILLABLE: 7",
    ),
    (
        "unkillable child",
        [record()],
        {"unkillable": [{"pid": 7, "state": "D"}, {"pid": 8, "state": "D"}]},
        "ERROR",
        1,
        "UNKILLABLE: 7, 8",
    ),
    ("known", [record("FAILED", **KNOWN)], {}, "FAILED", 0, None),
    ("known, and one passed", [record(), record("ERROR", **KNOWN)], {}, "ERROR", 0, None),
    ("known, and one hung", [record("FAILED", **KNOWN), record("TIMEOUT")], {}, "FAILED", 4, None),
    ("known to be absent", [record("UNAVAILABLE", **KNOWN)], {}, "UNAVAILABLE", 0, None),
    ("no longer known", [record("FAILED", **EXPIRED)], {"exit_code": 1}, "FAILED", 1, None),
    ("not run is never known", [record("NOT_RUN", **KNOWN)], {"exit_code": 1}, "NOT_RUN", 3, None),
    # What is known does not explain why its command then ended badly.
    ("known, then exit 1", [record("FAILED", **KNOWN)], {"exit_code": 1}, "FAILED", 1, None),
    (
        "known, then a crash",
        [record("FAILED", **KNOWN)],
        {"exit_code": None, "signal": 11},
        "FAILED",
        1,
        None,
    ),
    (
        "known, then the time limit",
        [record("FAILED", **KNOWN)],
        {"ended": "timeout", "exit_code": None},
        "FAILED",
        4,
        "its limit of 60 s",
    ),
    (
        "known, then stopped",
        [record("FAILED", **KNOWN)],
        {"ended": "stopped"},
        "FAILED",
        130,
        "stopped before its end",
    ),
    ("output lost", [record()], {"output_lost": "no space left"}, "ERROR", 1, "no space left"),
]


@pytest.mark.parametrize(
    ("lines", "ended", "status", "code", "message"), [e[1:] for e in ENDS], ids=[e[0] for e in ENDS]
)
def test_our_own_front_door(
    tmp_path: Path,
    lines: list[str] | None,
    ended: dict[str, Any],
    status: str,
    code: int,
    message: str | None,
) -> None:
    verdict = judge(
        attempt(tmp_path, lines=lines, outcome=outcome(**ended), last_words="last words")
    )
    assert (verdict.status, verdict.code) == (Status(status), ExitCode(code))
    if message is None:
        assert verdict.message is None
    else:
        assert verdict.message is not None and message in verdict.message
    assert any(r.status is verdict.status for r in verdict.records)
    # What was measured is kept, whatever came after it.
    assert len(verdict.records) >= len(lines or ())
    for found in verdict.records:
        assert (found.run, found.host, found.target) == ("r", "h", "h:c")
        assert (found.attempt, found.tree, found.job) == (2, "t", "job-1")


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (LinkLostError("the link was lost", where="h:c"), 3, "the link was lost"),
        (UnusableError("no python", where="h:c", hint="install it"), 3, "no python; install it"),
        (UsageError("no space here", where="/x"), 2, "no space here"),
    ],
)
@pytest.mark.parametrize("lines", [None, [record()]])
def test_attempts_that_broke_off(
    tmp_path: Path, error: MxfleetError, code: int, message: str, lines: list[str] | None
) -> None:
    verdict = judge(attempt(tmp_path, lines=lines, error=error))
    assert (verdict.status, verdict.code) == (Status.NOT_RUN, ExitCode(code))
    there = "" if lines else "; what it had measured lies there: mxfleet pull"
    assert verdict.message == message + there


def test_errors_made_by_a_job_are_told(tmp_path: Path) -> None:
    """Every kind of error that ``run_job`` can leave has to get through."""
    from orchestrator.execute.folder import not_kept

    error = not_kept(tmp_path, OSError(28, "No space left on device"))
    assert "No space left" in str(judge(attempt(tmp_path, error=error)).message)


@pytest.mark.parametrize(
    ("started", "message"),
    [
        (True, "cut off; what it had measured lies there: mxfleet pull"),
        (False, "never started there"),
    ],
)
def test_attempts_without_an_end(tmp_path: Path, started: bool, message: str) -> None:
    verdict = judge(attempt(tmp_path, started=started))
    assert (verdict.status, verdict.code) == (Status.NOT_RUN, ExitCode.TARGET)
    assert verdict.message == message


STRANGE = [
    (record()[:40], ":3:"),
    ("not json", ":3:"),
    (record(op="another"), "a record of another operator"),
    ("\0\0\0", ":3:"),
    ("{}", ":3:"),
    (record(status="SPLENDID"), ":3:"),
    ("\x0b", ":3:"),
    (record(case_id="bb", flops=10**400), "flops"),
    (record(case_id="bb", timers={"cpu": {"mean": 1, "samples": 10**400}}), "samples"),
    (record(case_id="aa"), "a record_id that an earlier record has"),
    (record(case_id="aa", summaries={"a": 1}), "a second record of one case"),
    (
        record(case_id="bb", device={"kind": "cpu", "name": "Fake"}, timers={"cpu": {"mean": 1}}),
        "a record of another device",
    ),
]


@pytest.mark.parametrize(("line", "problem"), STRANGE)
@pytest.mark.parametrize("status", [s.value for s in Status])
def test_lines_that_are_no_records_of_the_job_speak_against_it(
    tmp_path: Path, line: str, problem: str, status: str
) -> None:
    lines = [record(case_id="aa"), record(status, case_id="cc"), line]
    verdict = judge(attempt(tmp_path, lines=lines, outcome=outcome()))
    assert verdict.code == ExitCode.FAILED
    assert verdict.status is (Status.FAILED if status == "FAILED" else Status.ERROR)
    assert verdict.message is not None and problem in verdict.message
    errors = [r for r in verdict.records if r.status is Status.ERROR and r.case_id is None]
    assert len(errors) == 1 and errors[0].error is not None
    assert problem in errors[0].error.message
    assert all(not report.appended for report in merge(verdict.records, tmp_path / "statistics"))


def test_many_strange_lines_are_one_short_message(tmp_path: Path) -> None:
    verdict = judge(attempt(tmp_path, text="x\n" * 20_000 + record() + "\n", outcome=outcome()))
    assert verdict.message is not None and len(verdict.message) < 2000
    assert "and 19997 more" in verdict.message


def test_what_the_controller_says_of_a_record_no_host_can_say(tmp_path: Path) -> None:
    ours = {"stand_in": True, "checkout_differs": 5, "co_runners": 5, "profiler": "x", "new": 1}
    (read,) = judge(attempt(tmp_path, lines=[record(**ours)], outcome=outcome())).records
    assert read.model_extra == {"new": 1}


def test_blank_lines_are_nothing(tmp_path: Path) -> None:
    verdict = judge(attempt(tmp_path, text=f"\n{record()}\r\n\n", outcome=outcome()))
    assert (verdict.status, verdict.code) == (Status.PASSED, ExitCode.OK)


@pytest.mark.parametrize(
    ("ended", "records"),
    [
        ({"exit_code": None, "signal": 9}, ["PASSED"]),
        ({"exit_code": None, "signal": 9}, ["PASSED", "FAILED"]),
        ({"exit_code": None, "signal": 9}, ["PASSED", "ERROR"]),
        ({"exit_code": 0, "signal": 9}, ["PASSED"]),
        ({"exit_code": None}, ["PASSED"]),
        ({"exit_code": 1}, ["PASSED", "UNAVAILABLE"]),
        ({"exit_code": 3}, ["PASSED"]),
        ({"exit_code": 2}, ["PASSED", "FAILED"]),
        ({"ended": "timeout", "exit_code": None}, ["PASSED", "TIMEOUT"]),
        ({"output_lost": "no space"}, ["PASSED"]),
    ],
)
def test_an_end_that_no_record_explains_speaks_against_all(
    tmp_path: Path, ended: dict[str, Any], records: list[str]
) -> None:
    lines = [record(status, case_id=f"{at:02x}") for at, status in enumerate(records)]
    verdict = judge(attempt(tmp_path, lines=lines, outcome=outcome(**ended)))
    assert len(verdict.records) == len(records) + 1
    assert verdict.code != ExitCode.OK
    assert all(not report.appended for report in merge(verdict.records, tmp_path / "statistics"))


@pytest.mark.parametrize(
    ("code", "status"),
    [(1, "FAILED"), (1, "ERROR"), (1, "NOT_RUN"), (3, "UNAVAILABLE"), (4, "TIMEOUT")],
)
def test_an_end_that_a_record_explains_leaves_the_other_cases(
    tmp_path: Path, code: int, status: str
) -> None:
    lines = [record(case_id="aa"), record(status, case_id="bb")]
    verdict = judge(attempt(tmp_path, lines=lines, outcome=outcome(exit_code=code)))
    assert len(verdict.records) == 2
    assert sum(r.appended for r in merge(verdict.records, tmp_path / "statistics")) == 1


@pytest.mark.parametrize(
    ("changes", "status", "code"),
    [
        ({"timers": {}}, "ERROR", 1),
        ({"timers": {"cold_gpu": {"mean": -1}}}, "ERROR", 1),
        ({"device": None}, "ERROR", 1),
        ({"verification": {"passed": False}}, "FAILED", 1),
        ({"verification": None}, "UNVERIFIED", 0),
    ],
)
def test_a_pass_needs_what_a_pass_is(
    tmp_path: Path, changes: dict[str, Any], status: str, code: int
) -> None:
    verdict = judge(attempt(tmp_path, lines=[record(**changes)], outcome=outcome()))
    assert (verdict.status, verdict.code) == (Status(status), ExitCode(code))
    assert [r.status for r in verdict.records] == [Status(status)]
    assert verdict.message


def test_two_jobs_never_give_one_record_id(tmp_path: Path) -> None:
    """A front door that always writes the same id loses nothing, and gains nothing when pulled."""
    found = []
    for job in ("job-1", "job-2", "job-1"):
        made = attempt(tmp_path, lines=[record(), record()], outcome=outcome())
        made.job = replace(made.job, job=job)
        found.append([r.record_id for r in judge(made).records])
    assert found[0] == found[2]
    assert len({*found[0], *found[1]}) == 6


def test_a_stand_in_is_the_same_each_time(tmp_path: Path) -> None:
    """Pulled twice, the union of records must not grow."""
    one, two = (judge(attempt(tmp_path, outcome=outcome(ended="timeout"))) for _ in range(2))
    assert [r.record_id for r in one.records] == [r.record_id for r in two.records]


@pytest.mark.parametrize(
    ("exit_code", "kind"), [(2, TreeError), (3, UnusableError), (1, None), (0, None)]
)
def test_a_refusal_is_passed_on(
    tmp_path: Path, exit_code: int, kind: type[MxfleetError] | None
) -> None:
    verdict = judge(attempt(tmp_path, outcome=outcome(exit_code=exit_code), last_words="why"))
    assert type(verdict.refused) is (type(None) if kind is None else kind)


@pytest.mark.parametrize(
    ("lines", "exit_code", "dead"),
    [
        ([record("ERROR")], 3, True),
        ([record(), record("TIMEOUT")], 3, True),
        ([record("UNAVAILABLE")], 3, False),
        ([record("ERROR")], 1, False),
    ],
)
def test_a_gpu_that_answers_no_more_ends_the_target(
    tmp_path: Path, lines: list[str], exit_code: int, dead: bool
) -> None:
    """The front door says so after the records of the case that did it."""
    ended, words = outcome(exit_code=exit_code), "error: H200 0 does not answer"
    verdict = judge(attempt(tmp_path, lines=lines, outcome=ended, last_words=words))
    assert isinstance(verdict.refused, DeadDeviceError) is dead
    assert (len(verdict.records) - len(lines) == 1) is dead
    if dead:
        assert (verdict.status, verdict.code) == (Status.ERROR, ExitCode.FAILED)
        assert verdict.refused is not None
        assert verdict.refused.message == "H200 0 does not answer"
        error = verdict.records[-1].error
        assert error is not None and error.message == "H200 0 does not answer"


# case, CSV rows, log, outcome, status, code
VERIFIED = "[VERIFY] op -> PASS (1-CosSim: 1.00e-07)\n"
SCRIPTS: list[tuple[str, list[str] | None, str, dict[str, Any], str, int]] = [
    ("row and marker", [ROW], VERIFIED, {}, "PASSED", 0),
    ("exit 0 and nothing", None, "", {}, "ERROR", 1),
    ("exit 0, header only", [], "", {}, "ERROR", 1),
    (
        "fatal and exit 0",
        None,
        "[VERIFY] op -> FAIL (1-CosSim: 1.00e-01)\n[FATAL] no\n",
        {},
        "FAILED",
        1,
    ),
    ("traceback", None, "Traceback (most recent call last):\n", {"exit_code": 1}, "ERROR", 1),
    ("crash", None, "", {"exit_code": None, "signal": 11}, "ERROR", 1),
    ("row and crash", [ROW], VERIFIED, {"exit_code": None, "signal": 11}, "ERROR", 1),
    ("row and kill", [ROW], VERIFIED, {"exit_code": None, "signal": 9}, "ERROR", 1),
    ("row and exit 3", [ROW], VERIFIED, {"exit_code": 3}, "ERROR", 1),
    ("no time", [ROW.replace("1e-6", "nan")], VERIFIED, {}, "ERROR", 1),
    ("Yes and FAIL", [ROW], "[VERIFY] op -> FAIL\n", {}, "FAILED", 1),
    ("time limit", None, VERIFIED, {"ended": "timeout", "exit_code": None}, "TIMEOUT", 4),
    ("lost", None, "", {"ended": "lost", "exit_code": None}, "NOT_RUN", 3),
]


@pytest.mark.parametrize(
    ("rows", "log", "ended", "status", "code"),
    [e[1:] for e in SCRIPTS],
    ids=[e[0] for e in SCRIPTS],
)
def test_established_scripts(
    tmp_path: Path, rows: list[str] | None, log: str, ended: dict[str, Any], status: str, code: int
) -> None:
    csv = None if rows is None else "\n".join([HEADER, *rows]) + "\n"
    made = attempt(tmp_path, target=ESTABLISHED, csv=csv, log=log, outcome=outcome(**ended))
    verdict = judge(made, config={"dtype": "float16"})
    assert (verdict.status, verdict.code) == (Status(status), ExitCode(code))
    assert all(found.tree is None for found in verdict.records)
    if status == "PASSED":
        assert verdict.message is None
    merged = merge(verdict.records, tmp_path / "statistics")
    assert sum(report.appended for report in merged) == int(status == "PASSED")


@pytest.mark.parametrize(
    ("target", "environment", "commit"),
    [
        (OURS, {"commit": None}, "c0ffee"),
        (OURS, {}, "c0ffee"),
        (OURS, {"commit": "abc+dirty", "host": "h"}, "abc+dirty"),
        (ESTABLISHED, {"commit": None}, None),  # that checkout is not the tree from here
    ],
)
def test_a_record_without_a_commit_gets_that_of_its_tree(
    tmp_path: Path, target: Target, environment: dict[str, Any], commit: str | None
) -> None:
    lines = [record(environment=environment)]
    found = judge(attempt(tmp_path, target=target, lines=lines, outcome=outcome()))
    assert [r.environment for r in found.records] == [{**environment, "commit": commit}]


@pytest.mark.parametrize(
    ("expected", "noted"),
    [
        ("NVIDIA H200", None),
        (["MetaX C500", "nvidia h200"], None),
        (None, None),
        ("MetaX C500", "the config is for MetaX C500, this device is NVIDIA H200"),
    ],
)
def test_established_scripts_do_not_look_at_the_device_so_we_do(
    tmp_path: Path, expected: Any, noted: str | None
) -> None:
    config = {"dtype": "float16", "device_name": expected}
    csv = f"{HEADER}\n{ROW}\n"
    left = attempt(tmp_path, target=ESTABLISHED, csv=csv, outcome=outcome())
    (found,) = judge(left, config).records
    assert (found.status.value, found.environment) == ("PASSED", {"device_expected": noted})


VERIFIED = {"measured": False, "timers": {}}


@pytest.mark.parametrize(
    ("lines", "ended", "status", "code"),
    [
        ([record(**VERIFIED)], {}, "PASSED", 0),
        ([record("UNVERIFIED", **VERIFIED)], {}, "UNVERIFIED", 0),
        ([record("FAILED", **VERIFIED)], {"exit_code": 1}, "FAILED", 1),
        ([record("UNAVAILABLE", **VERIFIED)], {"exit_code": 3}, "UNAVAILABLE", 3),
        ([record(**VERIFIED)], {"exit_code": None, "signal": 11}, "ERROR", 1),
        ([], {}, "ERROR", 1),
        # A front door that knows no --verify has measured.
        ([record()], {}, "ERROR", 1),
    ],
)
@pytest.mark.parametrize("target", [OURS, ESTABLISHED])
def test_records_of_an_accuracy_step(
    tmp_path: Path,
    target: Target,
    lines: list[str],
    ended: dict[str, Any],
    status: str,
    code: int,
) -> None:
    """Of a checkout too: there is no row that could tell, and none is asked for."""
    plan = replace(PLAN, measuring=Measuring(verify_only=True))
    made = attempt(tmp_path, target=target, lines=lines, outcome=outcome(**ended))
    verdict = interpret(made, plan, config={"device_name": "MetaX C500"})
    assert (verdict.status, verdict.code) == (Status(status), ExitCode(code))
    if target is ESTABLISHED and status == "PASSED":
        (found,) = verdict.records
        expected = "the config is for MetaX C500, this device is NVIDIA H200"
        assert found.environment["device_expected"] == expected


def test_only_verified_where_measuring_was_asked_for_is_an_error(tmp_path: Path) -> None:
    verdict = judge(attempt(tmp_path, lines=[record(**VERIFIED)], outcome=outcome()))
    assert verdict.status is Status.ERROR
    assert "a record of a case that was only verified" in (verdict.message or "")
