"""A job outlives its link for as long as it is held, and whoever attaches misses nothing."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from agent_kit import SCRIPT, Agents, Jobs, Ran, receive, until

from orchestrator.transport.agent.spool import SpoolParser
from orchestrator.transport.session import AgentSession, Request

COUNTS = """
import time
for number in range(30):
    print("line", number, flush=True)
    time.sleep(0.1)
"""


def begun(session: AgentSession, spec: dict[str, Any]) -> tuple[Request, bytes]:
    """Start a job and wait for its first bytes."""
    request = session.request("run", **spec)
    while True:
        item = request.next(20)
        if isinstance(item, bytes):
            return request, item


def sleeper(jobs: Jobs, hold: float) -> dict[str, Any]:
    """A job that is found by its mark, as long as it lives."""
    source = "import time\nprint('up', flush=True)\ntime.sleep(600)"
    return jobs.spec(source, hold=hold, argv=["-u", SCRIPT, jobs.mark])


def rest_of(session: AgentSession, spec: dict[str, Any], offset: int, hold: float = 5.0) -> Ran:
    return receive(
        session,
        {"store": spec["store"], "job": spec["job"], "offset": offset, "hold": hold},
        op="attach",
    )


def lines(data: bytes, more: bytes) -> list[str]:
    return (data + more).decode().splitlines()


def parsed(data: bytes) -> bytes:
    return b"".join(piece for stream, piece in SpoolParser().feed(data) if stream == 1)


def test_what_was_said_meanwhile_is_not_missed(agents: Agents, jobs: Jobs) -> None:
    session = agents.start()
    spec = jobs.spec(COUNTS, hold=20.0)
    _, first = begun(session, spec)
    agents.cut(session)
    time.sleep(0.8)
    other = agents.start()
    ran = rest_of(other, spec, len(first))
    assert ran.error is None
    assert lines(parsed(first), ran.stdout) == [f"line {n}" for n in range(30)]
    assert jobs.living() == []


def test_nobody_comes_back(agents: Agents, jobs: Jobs) -> None:
    session = agents.start()
    spec = sleeper(jobs, hold=1.0)
    begun(session, spec)
    began = time.monotonic()
    agents.cut(session)
    until(lambda: not jobs.living(), "the job is ended", 8.0)
    assert time.monotonic() - began >= 1.0
    ran = rest_of(agents.start(), spec, 0)
    assert ran.outcome["ended"] == "lost"
    assert ran.text == "up\n"


def test_a_claim_holds_it_longer_and_ends_with_who_claims(agents: Agents, jobs: Jobs) -> None:
    session = agents.start()
    spec = sleeper(jobs, hold=1.5)
    begun(session, spec)
    agents.cut(session)
    other = agents.start()
    following = other.request("attach", store=spec["store"], job=spec["job"], offset=0, hold=1.5)
    time.sleep(4.0)
    assert jobs.status(agents.start(), spec["job"])["state"] == "unfinished"
    assert jobs.living() != []
    agents.cut(other)
    following.drop()
    until(lambda: not jobs.living(), "the job is ended", 10.0)
    assert jobs.status(agents.start(), spec["job"])["outcome"]["ended"] == "lost"


def test_it_is_ended_through_another_agent(agents: Agents, jobs: Jobs) -> None:
    session = agents.start()
    spec = sleeper(jobs, hold=600.0)
    begun(session, spec)
    agents.cut(session)
    other = agents.start()
    answer = other.call("stop", store=spec["store"], job=spec["job"])
    assert (answer["known"], answer["finished"]) == (True, True)
    assert answer["outcome"]["ended"] == "stopped"
    assert jobs.living() == []


def test_a_goodbye_holds_nothing(agents: Agents, jobs: Jobs) -> None:
    session = agents.start()
    spec = sleeper(jobs, hold=600.0)
    begun(session, spec)
    session.close()
    until(lambda: not jobs.living(), "the job is ended", 8.0)
    ran = rest_of(agents.start(), spec, 0)
    assert ran.error is None
    assert ran.outcome["ended"] == "stopped"


def test_agent_and_guardian_are_killed_meanwhile(agents: Agents, jobs: Jobs) -> None:
    session = agents.start()
    source = "import os, time\nprint(os.getppid(), flush=True)\ntime.sleep(600)"
    spec = jobs.spec(source, hold=600.0, argv=["-u", SCRIPT, jobs.mark])
    _, first = begun(session, spec)
    agent = int(parsed(first))
    agents.cut(session)
    other = agents.start()
    following = other.request("attach", store=spec["store"], job=spec["job"], offset=0, hold=9)
    assert isinstance(following.next(20), bytes)
    guardian = int(Path(f"/proc/{agent}/stat").read_text().rpartition(")")[2].split()[1])
    for pid in (guardian, agent):
        os.kill(pid, signal.SIGSTOP)
    for pid in (guardian, agent):
        os.kill(pid, signal.SIGKILL)
    assert following.result()["outcome"]["ended"] == "lost"
    assert jobs.living() == []


def test_a_request_that_comes_after_it_was_given_up_starts_nothing(
    session: AgentSession, jobs: Jobs
) -> None:
    spec = jobs.spec("print('never')")
    answer = session.call("attach", store=spec["store"], job=spec["job"], offset=0, hold=1)
    assert answer["state"] == "absent"
    late = receive(session, spec)
    assert late.error is not None
    assert "started before" in late.error.message
    assert jobs.status(session, spec["job"])["outcome"]["ended"] == "refused"
