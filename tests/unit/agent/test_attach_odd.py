"""Who attaches to a job, or ends it, is told the truth, whatever the job does to its files."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import pytest
from agent_kit import SCRIPT, Agents, Jobs, Ran, receive, until

from orchestrator.errors import ProtocolError
from orchestrator.transport.agent import attach
from orchestrator.transport.agent.claims import Claim, hold_of, read_claim, write_claim
from orchestrator.transport.agent.fetch import job_status
from orchestrator.transport.agent.files import AgentError
from orchestrator.transport.agent.jobfolder import JobFolder
from orchestrator.transport.agent.proc import Process
from orchestrator.transport.session import AgentSession

WELL = {"ended": "exited", "exit_code": 0, "signal": None, "strays": 0, "unkillable": []}
# What a job does to what is kept of it while it runs.
TAMPERS = {
    "its own end": f"open(here + '/status.json', 'w').write({json.dumps(WELL)!r})",
    "a file": "shutil.rmtree(here); open(here, 'w').close()",
    "a link to nowhere": "shutil.rmtree(here); os.symlink('/nowhere', here)",
    "nothing": "shutil.rmtree(here)",
}


def tampering(jobs: Jobs, what: str, seconds: float) -> dict[str, Any]:
    """A job that says "up", does ``what``, and says "late" after some seconds."""
    source = (
        "import os, shutil, time\nhere = os.environ['MXFLEET_JOB']\nprint('up', flush=True)\n"
        f"time.sleep(0.5)\n{what}\nopen('done', 'w').close()\n"
        f"time.sleep({seconds})\nprint('late')"
    )
    return jobs.spec(source, hold=60.0, argv=["-u", SCRIPT, jobs.mark])


def begun(agents: Agents, jobs: Jobs, spec: dict[str, Any]) -> int:
    """Start a job, and lose the link once it has done what it does; the size of what it said."""
    session = agents.start()
    request = session.request("run", **spec)
    first = b""
    while b"up" not in first:
        item = request.next(20)
        first += item if isinstance(item, bytes) else b""
    until((jobs.workdir / "done").exists, "the job has done it")
    agents.cut(session)
    return len(first)


def rest_of(session: AgentSession, spec: dict[str, Any], offset: int) -> Ran:
    asked = {"store": spec["store"], "job": spec["job"], "offset": offset, "hold": 5.0}
    return receive(session, asked, op="attach")


def kept(jobs: Jobs, name: str) -> JobFolder:
    """The folder of a job that runs, as far as anybody can tell."""
    folder = JobFolder(str(jobs.store), {"job": name})
    folder.make()
    return folder


@pytest.mark.parametrize("what", TAMPERS.values(), ids=list(TAMPERS))
def test_a_job_that_runs_is_not_over(agents: Agents, jobs: Jobs, what: str) -> None:
    spec = tampering(jobs, what, 3.0)
    offset = begun(agents, jobs, spec)
    ran = rest_of(agents.start(), spec, offset)
    assert ran.error is None
    assert ran.text.endswith("late\n")
    assert ran.outcome["seconds"] >= 3.0
    assert jobs.living() == []


def test_an_end_that_it_wrote_itself_does_not_keep_it_alive(agents: Agents, jobs: Jobs) -> None:
    spec = tampering(jobs, TAMPERS["its own end"], 600.0)
    begun(agents, jobs, spec)
    answer = agents.start().call("stop", store=spec["store"], job=spec["job"])
    assert (answer["finished"], answer["outcome"]["ended"]) == (True, "stopped")
    assert jobs.living() == []


@pytest.mark.parametrize("gone", ["running", "."])
def test_without_a_record_it_is_found_by_its_cookie(agents: Agents, jobs: Jobs, gone: str) -> None:
    what = f"shutil.rmtree(os.path.realpath(here + '/../../{gone}'))"
    spec = tampering(jobs, what, 600.0)
    begun(agents, jobs, spec)
    agents.start().call("stop", store=spec["store"], job=spec["job"])
    assert jobs.living() == []


def test_what_cannot_be_ended_is_named(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    store = str(jobs.store)
    kept(jobs, "hung").close(forget=False)
    stuck = Process(pid=4711, parent=1, session=4711, state="D", start=5)
    monkeypatch.setattr(attach, "end_found", lambda find, grace, limit: [stuck])
    status = attach.follow(store, "hung", 0, 0.0, lambda data: None, lambda: False)
    assert status["outcome"]["ended"] == "lost"
    assert status["outcome"]["unkillable"] == [{"pid": 4711, "state": "D"}]
    assert attach.stop(store, "hung", 5.0)["finished"] is False


def test_it_is_never_seen_without_who_looks_after_it(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However slow the disk is while its folder is made."""
    store = str(jobs.store)
    seen: list[str] = []
    fill = JobFolder._fill

    def slow(folder: JobFolder) -> None:
        seen.append(attach._status(store, "slow")["state"])
        fill(folder)

    monkeypatch.setattr(JobFolder, "_fill", slow)
    folder = kept(jobs, "slow")
    with pytest.raises(AgentError, match="started before"):
        kept(jobs, "slow")
    assert [*seen, job_status(store, "slow")["state"]] == ["unfinished", "unfinished"]
    folder.close(forget=True)


def test_who_listens_holds_it_without_asking(jobs: Jobs) -> None:
    """Also while what was sent has not been taken for long."""
    store = str(jobs.store)
    folder = kept(jobs, "much")
    (jobs.store / "jobs" / "much" / "output").write_bytes(b"x")
    left: list[float] = []
    over = threading.Event()

    def slow(data: bytes) -> None:
        time.sleep(7.0)
        left.append(read_claim(store, "much").until - time.monotonic())
        over.set()

    with pytest.raises(AgentError, match="ending"):
        attach.follow(store, "much", 0, 0.0, slow, over.is_set)
    assert left[0] > 2.0
    folder.close(forget=True)
    assert read_claim(store, "much").until == 0.0


def test_an_order_to_end_survives_a_claim(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    store = str(jobs.store)
    folder = kept(jobs, "fought")
    orders: list[Claim] = []

    def overwritten(store: str, job: str, claim: Claim) -> None:
        """The first order: another agent that has read the claim before writes its own."""
        write_claim(store, job, claim if orders else Claim(claim.until, None))
        orders.append(claim)

    monkeypatch.setattr(attach, "write_claim", overwritten)
    attach.stop(store, "fought", 1.0)
    assert read_claim(store, "fought").stop == "stopped"
    folder.close(forget=True)


def test_who_ends_what_has_not_begun_keeps_it_from_beginning(
    session: AgentSession, jobs: Jobs
) -> None:
    spec = jobs.spec("print('never')")
    answer = session.call("stop", store=spec["store"], job=spec["job"])
    assert (answer["known"], answer["state"]) == (False, "absent")
    late = receive(session, spec)
    assert late.error is not None and "started before" in late.error.message


@pytest.mark.parametrize("offset", [10**9, 2**62, 2**70])
def test_beyond_the_end_there_is_nothing(session: AgentSession, jobs: Jobs, offset: int) -> None:
    spec = jobs.spec("print('hi')")
    receive(session, spec)
    ran = rest_of(session, spec, offset)
    assert (ran.error, ran.stdout, ran.outcome["ended"]) == (None, b"", "exited")


def test_before_the_first_byte_there_is_nothing_either(session: AgentSession, jobs: Jobs) -> None:
    spec = jobs.spec("print('hi')")
    receive(session, spec)
    assert isinstance(rest_of(session, spec, -1).error, ProtocolError)


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        (3, 3.0),
        (None, 0.0),
        (-5, 0.0),
        (float("nan"), 0.0),
        ("x", 0.0),
        ([1], 0.0),
        (1e300, 2592e3),
    ],
)
def test_nothing_is_held_for_ever(asked: Any, given: float) -> None:
    assert hold_of(asked) == given
