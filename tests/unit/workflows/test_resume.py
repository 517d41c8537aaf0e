"""What of a cut-off run is done, was begun, or is left; what of an ended one failed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import UsageError
from orchestrator.events import Event, JobEnded, Note
from orchestrator.execute.folder import RunFolder
from orchestrator.inventory.model import Host, Inventory, Target, Timeouts
from orchestrator.plan.jobs import Plan, PlannedJob, next_attempt
from orchestrator.workflows.context import Context
from orchestrator.workflows.policy import Policy
from orchestrator.workflows.testall import (
    _failed,
    _failed_here,
    _planned_again,
    _reconciled,
    resume,
)

HERE = Target("here", Host("here"), timeouts=Timeouts(job=7.0, reattach=2.0, detached=99.0))
NAME = "r.here.gelu.1234.a1"
SPEC = {
    "job": NAME,
    "tree": "t",
    "subfolder": "benchmark",
    "python": "python3",
    "argv": ["-u"],
    "env": {},
    "env_script": None,
    "path": [],
    "ld_library_path": [],
}
JOB = PlannedJob(HERE, "gelu", NAME, SPEC)


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "runs", "r")


def record(status: str, **more: Any) -> dict[str, Any]:
    return {
        "schema": "mxfleet-result/1",
        "record_id": status,
        "suite": "mcoplib",
        "op": "gelu",
        "status": status,
        "job": JOB.job,
        **more,
    }


def write(folder: RunFolder, *statuses: str, target: str = "here", **more: Any) -> None:
    lines = [json.dumps(record(status, **more)) for status in statuses]
    folder.records(target, "gelu").write_text("".join(f"{line}\n" for line in lines))


def ends(folder: RunFolder, job: PlannedJob, status: str) -> None:
    folder.event(JobEnded("here", "gelu", job.job, status, 0, 1.0))


def intends(folder: RunFolder, job: PlannedJob) -> None:
    folder.intend("here", "gelu", job.job, job.attempt)


def before_the_intent(folder: RunFolder) -> None:
    pass


def after_the_intent(folder: RunFolder) -> None:
    intends(folder, JOB)


def came_back(folder: RunFolder) -> None:
    """Its records are here, its end is not noted."""
    intends(folder, JOB)
    write(folder, "PASSED")


def whole(folder: RunFolder) -> None:
    came_back(folder)
    ends(folder, JOB, "PASSED")


def failed(folder: RunFolder) -> None:
    intends(folder, JOB)
    write(folder, "FAILED", "PASSED")
    ends(folder, JOB, "FAILED")


def hung(folder: RunFolder) -> None:
    intends(folder, JOB)
    write(folder, "PASSED", "TIMEOUT")
    ends(folder, JOB, "TIMEOUT")


def stopped(folder: RunFolder) -> None:
    intends(folder, JOB)
    write(folder, "PASSED", "NOT_RUN")
    ends(folder, JOB, "NOT_RUN")


def stopped_after_a_failure(folder: RunFolder) -> None:
    """The worst of its records is the job's status, but there was more to come."""
    intends(folder, JOB)
    write(folder, "FAILED", "NOT_RUN")
    ends(folder, JOB, "FAILED")


def records_gone(folder: RunFolder) -> None:
    whole(folder)
    folder.records("here", "gelu").unlink()


def never_started(folder: RunFolder) -> None:
    """Written for a job that an interrupted run had left."""
    write(folder, "NOT_RUN")


def second_attempt(folder: RunFolder) -> None:
    stopped(folder)
    intends(folder, next_attempt(JOB))


def second_attempt_whole(folder: RunFolder) -> None:
    second_attempt(folder)
    write(folder, "PASSED")
    ends(folder, next_attempt(JOB), "PASSED")


@pytest.mark.parametrize(
    ("happened", "expected", "attempt"),
    [
        (before_the_intent, "left", 1),
        (never_started, "left", 1),
        (after_the_intent, "begun", 1),
        (came_back, "begun", 1),
        (whole, "settled", 1),
        (failed, "settled", 1),
        (hung, "settled", 1),
        (stopped, "begun", 1),
        (stopped_after_a_failure, "begun", 1),
        (records_gone, "begun", 1),
        (second_attempt, "begun", 2),
        (second_attempt_whole, "settled", 2),
    ],
)
def test_where_a_job_stands(
    folder: RunFolder, happened: Callable[[RunFolder], None], expected: str, attempt: int
) -> None:
    happened(folder)
    saved = Plan("r", "tree", (JOB,)).as_dict()
    planned, gone = _planned_again(saved, folder, context(folder, HERE))
    jobs, settled, begun = _reconciled(folder, planned, Policy())
    assert (len(jobs), gone) == (1, {})
    assert (bool(settled), bool(begun)) == (expected == "settled", expected == "begun")
    assert jobs[0].attempt == attempt and jobs[0].job.endswith(f".a{attempt}")
    # What is not done yet goes by the limits of today.
    assert (jobs[0].spec.get("timeout") == 7.0) is (expected != "settled")


@pytest.mark.parametrize(("detached", "hold"), [(False, 2.0), (True, 99.0)])
def test_jobs_are_held_as_the_resumed_run_needs_it(
    folder: RunFolder, detached: bool, hold: float
) -> None:
    jobs, _, _ = _reconciled(folder, [JOB], Policy(detached=detached))
    assert jobs[0].spec["hold"] == hold


def test_a_diary_that_was_cut_off(folder: RunFolder) -> None:
    whole(folder)
    path = folder.path / "events.jsonl"
    path.write_bytes(path.read_bytes()[:-5])
    _, settled, begun = _reconciled(folder, [JOB], Policy())
    assert not settled and begun == [_reconciled(folder, [JOB], Policy())[0][0]]


class Heard(list[Event]):
    def __call__(self, event: Event) -> None:
        self.append(event)


def context(folder: RunFolder, *targets: Target, chosen: int | None = None) -> Context:
    inventory = Inventory(folder.path.parents[1] / "inventory.yaml", {}, targets, {})
    return Context(inventory, targets[:chosen], Heard())


def test_a_target_that_is_no_longer_in_the_inventory_is_told(folder: RunFolder) -> None:
    other = replace(JOB, target=replace(HERE, name="other"))
    saved = Plan("r", "tree", (JOB, other)).as_dict()
    jobs, gone = _planned_again(saved, folder, context(folder, HERE))
    assert [job.target.name for job in jobs] == ["here", "other"]
    assert list(gone) == ["other"] and isinstance(gone["other"], UsageError)


def test_a_run_that_goes_on_is_not_resumed(folder: RunFolder) -> None:
    with folder.held(), pytest.raises(UsageError, match="another mxfleet is at work"):
        resume(context(folder, HERE), "r")


@pytest.mark.parametrize("plan", [None, "[]", '{"jobs": []}', "{"])
def test_a_run_without_a_plan_cannot_be_resumed(folder: RunFolder, plan: str | None) -> None:
    if plan is not None:
        (folder.path / "plan.json").write_text(plan)
    with pytest.raises(UsageError, match=r"plan"):
        resume(context(folder, HERE), "r")


@pytest.mark.parametrize(
    ("statuses", "more", "expected"),
    [
        (["PASSED"], {}, False),
        (["PASSED", "FAILED"], {}, True),
        (["ERROR"], {}, True),
        (["TIMEOUT"], {}, True),
        (["PASSED", "NOT_RUN"], {}, True),
        ([], {}, True),
        (["UNAVAILABLE"], {}, False),
        (["UNVERIFIED"], {}, False),
    ],
)
def test_what_failed(
    folder: RunFolder, statuses: list[str], more: dict[str, Any], expected: bool
) -> None:
    folder.write_json("plan.json", {"jobs": [{"target": "here", "op": "gelu"}]})
    write(folder, *statuses, **more)
    assert _failed(folder) == ({("here", "gelu")} if expected else set())


def test_of_what_failed_only_what_is_there_and_chosen(folder: RunFolder) -> None:
    there, gone, left_out = "here", "gone", "left_out"
    jobs = [{"target": t, "op": "gelu"} for t in (there, gone, left_out)]
    folder.write_json("plan.json", {"jobs": [*jobs, {"target": there, "op": "removed"}]})
    script = folder.path.parents[1] / "benchmark" / "mcoplib_mxbenchmark_ops.py"
    script.parent.mkdir()
    script.write_text('SUPPORTED_OPERATORS = ["gelu", "other"]\n')
    known = context(folder, HERE, replace(HERE, name=left_out), chosen=1)
    assert _failed_here(known, folder, None) == {(there, "gelu")}
    notes = [(e.target, e.message) for e in known.sink if isinstance(e, Note)]  # type: ignore[attr-defined]
    assert notes == [
        ("gone", "gelu failed on it, but it is no longer there"),
        (None, "failed, but no longer there: removed"),
    ]
    assert _failed_here(known, folder, ["other"]) == set()
