"""Sessions of a fleet: one connection a host, and what becomes of a host that is done."""

from __future__ import annotations

from pathlib import Path

from orchestrator.errors import MxfleetError, UnreachableError
from orchestrator.inventory.model import Host, Target
from orchestrator.workflows.activity import Activity
from orchestrator.workflows.fleet import Fleet, for_each_host


def on(name: str, number: int = 0) -> Target:
    return Target(f"{name}:{number}", Host(name=name, transport="local"))


def test_a_host_that_is_let_go_is_opened_anew(tmp_path: Path) -> None:
    first, second, other = on("one", 1), on("one", 2), on("two")
    with Fleet() as fleet:
        sessions = {target.name: fleet.session(target) for target in (first, second, other)}
        itself = fleet.host_session(first)
        fleet.let_go(first.host)
        assert all(session.lost for session in (sessions["one:1"], sessions["one:2"], itself))
        assert not sessions["two:0"].lost
        assert fleet.sessions() == {"two:0": sessions["two:0"]}
        fleet.let_go(first.host)  # nothing is left of it
        again = fleet.session(first)
        assert again is not sessions["one:1"]
        assert again.call("job", store=str(tmp_path), job="x")["state"] == "absent"


def test_a_host_is_done_after_all_its_targets() -> None:
    said: list[str] = []

    def work(target: Target) -> None:
        said.append(target.name)
        if target.name == "one:2":
            raise UnreachableError("gone", where=target.name)

    def failed(target: Target, error: MxfleetError) -> None:
        said.append(f"{target.name} failed")

    with Activity(lambda event: None) as activity:
        for_each_host(
            activity,
            [on("one", 1), on("one", 2)],
            work,
            failed,
            when_done=lambda host: said.append(f"{host.name} done"),
        )
    assert said == ["one:1", "one:2", "one:2 failed", "one done"]
