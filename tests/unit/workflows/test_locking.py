"""The controller's side of device locks, with a real agent and a fleet that gives it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "agent"))

from agent_kit import Agents, until

from orchestrator.errors import UnusableError
from orchestrator.events import Event, Note
from orchestrator.inventory.model import Host, Target
from orchestrator.plan.lanes import Lane
from orchestrator.transport.agent.lockfiles import LockFolder
from orchestrator.transport.session import AgentSession
from orchestrator.workflows.locking import Held, Locks, device_locks

CPU = Lane("cpu", ("cpu",))


class OneAgent:
    """A fleet with one agent on the host, or without a Python there."""

    def __init__(self, session: AgentSession | None) -> None:
        self._session = session

    def session(self, target: Target) -> AgentSession:
        return self.host_session(target)

    def sessions(self) -> dict[str, AgentSession]:
        return {"a": self._session} if self._session is not None else {}

    def host_session(self, target: Target) -> AgentSession:
        if self._session is None:
            raise UnusableError("no Python 3.6 or later was found for the agent")
        return self._session


class Bench:
    def __init__(self, agents: Agents, folder: Path) -> None:
        self.agents = agents
        self.folder = folder
        self.said: list[Event] = []

    def target(self, **more: Any) -> Target:
        settings = {"lock_folder": str(self.folder), **more}
        return Target(name="a", host=Host(name="a"), **settings)

    def locks(self, session: AgentSession | None, **more: Any) -> Locks:
        return Locks(OneAgent(session), self.said.append, "run-1", **more)  # type: ignore[arg-type]

    def notes(self) -> list[str]:
        return [event.message for event in self.said if isinstance(event, Note)]

    def holder(self) -> str | None:
        note = LockFolder(str(self.folder)).peek("cpu")
        return None if note is None else str(note["job"])


@pytest.fixture
def bench(agents: Agents, tmp_path: Path) -> Bench:
    return Bench(agents, tmp_path / "locks")


@pytest.fixture
def agents() -> Iterator[Agents]:
    kit = Agents()
    yield kit
    kit.close()


def test_a_lane_is_held_for_the_block(bench: Bench) -> None:
    session = bench.agents.start()
    with bench.locks(session).held(bench.target(), session, CPU, "job-1") as held:
        assert held.locked and bench.holder() == "job-1"
        held.settle(True)
    assert bench.holder() is None and not held.lost.is_set() and bench.said == []


def test_without_a_word_the_agent_finds_out(bench: Bench) -> None:
    session = bench.agents.start()
    with (
        pytest.raises(ZeroDivisionError),
        bench.locks(session, hold=0.0).held(bench.target(), session, CPU, "job-1"),
    ):
        raise ZeroDivisionError
    assert bench.holder() is None


def test_who_is_waited_for_is_said_once(bench: Bench) -> None:
    first, second = bench.agents.start(), bench.agents.start()
    target = bench.target()
    entered, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with bench.locks(first).held(target, first, CPU, "job-1") as held:
            entered.set()
            leave.wait(20)
            held.settle(True)

    thread = threading.Thread(target=hold)
    thread.start()
    assert entered.wait(20)
    threading.Timer(2.0, leave.set).start()
    with bench.locks(second).held(target, second, CPU, "job-2") as held:
        held.settle(True)
    thread.join()
    (note,) = bench.notes()
    assert note.startswith("waiting for cpu, held by ") and "(run run-1, job job-1, for " in note


def test_waiting_ends_at_the_limit(bench: Bench) -> None:
    session = bench.agents.start()
    target = bench.target()
    locks = bench.locks(session, wait_limit=0.5)
    with locks.held(target, session, CPU, "job-1") as held:
        with (
            pytest.raises(UnusableError, match="cpu was busy"),
            locks.held(target, session, CPU, "job-2"),
        ):
            pass
        held.settle(True)


def test_a_lost_link_is_told(bench: Bench) -> None:
    session = bench.agents.start()
    told: list[str] = []
    with bench.locks(session).held(bench.target(), session, CPU, "job-1") as held:
        held.when_lost(lambda: told.append("before"))
        bench.agents.cut(session)
        assert held.lost.wait(20)
        until(lambda: told, "told")
        held.when_lost(lambda: told.append("after"))
    assert told == ["before", "after"]
    until(lambda: bench.holder() is None, "the agent has found out")


def test_a_lock_that_comes_back_too_late_is_given_back(bench: Bench) -> None:
    """The link was lost, and the job ended while its lock was asked for again."""
    first, second = bench.agents.start(), bench.agents.start()
    target = bench.target()
    locks = bench.locks(second, hold=0.0)
    with locks.held(target, first, CPU, "job-1") as held:
        held.settle(True)
    request = second.request(
        "lock", devices=["cpu"], job="job-1", folder=str(bench.folder), hold=600.0
    )
    until(lambda: (request.next(1.0) or {"type": ""})["type"] == "held", "held again")
    held.adopt(request)
    with locks.held(target, second, CPU, "job-2") as again:
        assert bench.holder() == "job-2"
        again.settle(True)
    assert not held.lost.is_set()


def test_without_a_python_on_the_host_results_are_unlocked(bench: Bench) -> None:
    session = bench.agents.start()
    target = bench.target(container="box", lock_folder=None)
    locks = bench.locks(None)
    for job in ("job-1", "job-2"):
        with locks.held(target, session, CPU, job) as held:
            assert not held.locked
            held.settle(True)
    (note,) = bench.notes()
    assert "UNLOCKED" in note and "no Python" in note and "lock_folder" in note


def test_without_a_python_on_the_host_a_mounted_folder_locks(bench: Bench, tmp_path: Path) -> None:
    session = bench.agents.start()
    target = bench.target(container="box")
    with (
        pytest.raises(UnusableError, match=r"No such file|container's own"),
        bench.locks(None).held(target, session, CPU, "job-1"),
    ):
        pass
    shared = Path("/dev/shm")  # of another file system, as a mounted folder is
    if not shared.is_dir() or shared.stat().st_dev == Path("/").stat().st_dev:
        pytest.skip("no second file system here")
    bench.folder = shared / f"mxfleet-test-{tmp_path.name}"
    LockFolder(str(bench.folder))
    try:
        target = bench.target(container="box")
        with bench.locks(None).held(target, session, CPU, "job-1") as held:
            assert held.locked and bench.holder() == "job-1"
            held.settle(True)
        assert bench.notes() == []
    finally:
        for path in bench.folder.iterdir():
            path.unlink()
        bench.folder.rmdir()


def test_what_the_doctor_tells(bench: Bench) -> None:
    session = bench.agents.start()
    target = bench.target()
    fleet: Any = OneAgent(session)

    def seen() -> list[tuple[str, str, str | None]]:
        return list(device_locks(fleet, target, session))

    assert seen() == [("OK", "cpu: free", None)]
    with bench.locks(session).held(target, session, CPU, "job-1") as held:
        ((status, message, _),) = seen()
        assert status == "WARNING" and message.startswith("cpu is held by ")
        held.settle(True)
    (bench.folder / "cpu").write_text('{"job": "job-0", "who": "bob@lab", "run": "run-0"}')
    ((status, message, _),) = seen()
    assert status == "WARNING" and "bob@lab (run run-0, job job-0), whose agent died" in message
    bare = bench.target(container="box", lock_folder=None)
    ((status, message, _),) = device_locks(OneAgent(None), bare, session)  # type: ignore[arg-type]
    assert status == "WARNING" and "cannot be locked" in message


def test_unlocked_has_nothing_to_release() -> None:
    held = Held(locked=False)
    held.settle(False)
    held.release()
    assert not held.lost.is_set()
