"""A samples overlay on an established checkout: private, complete, nothing changed for others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from agent_kit import Jobs, receive

from orchestrator.transport.session import AgentSession

OVERLAY = {"path": "config/op.json", "values": {"samples": 7, "note": "\u4e2d"}}

SHOW = """
import json, os, sys
here = {
    "file": os.path.dirname(os.path.abspath(__file__)),
    "real": os.path.dirname(os.path.realpath(__file__)),
    "path": os.path.realpath(sys.path[0]),
    "cwd": os.getcwd(),
}
from runners import one
from lib import linked
said = {k: json.load(open(os.path.join(v, "config", "op.json"))) for k, v in here.items()}
print(json.dumps([said, os.environ.get("WHERE"), one.VALUE, linked.VALUE,
                  os.path.exists("statistics/old.csv"), sorted(os.listdir(".."))]))
"""


@pytest.fixture
def checkout(jobs: Jobs) -> Path:
    work = jobs.workdir
    for name in ("config", "runners", "lib", "statistics"):
        (work / name).mkdir()
    (work / "config" / "op.json").write_text('{"samples": 100, "n": "\u00e4"}', encoding="utf-8")
    (work / "config" / "other.json").write_text("{}")
    (work / "runners" / "one.py").write_text("VALUE = 1\n")
    (work / "lib" / "linked.py").write_text("VALUE = 2\n")
    (work / "statistics" / "old.csv").touch()
    (work.parent / "neighbour").mkdir()
    jobs.env_script('export WHERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && ls -d neighbour)\n')
    return work


@pytest.mark.parametrize("through_a_link", [False, True])
def test_scripts_find_the_overlay(
    session: AgentSession, jobs: Jobs, checkout: Path, through_a_link: bool
) -> None:
    workdir = checkout
    if through_a_link:
        workdir = jobs.folder / "link"
        workdir.symlink_to(checkout)
    before = {p: p.read_bytes() for p in checkout.rglob("*") if p.is_file()}
    spec = jobs.spec(SHOW, overlay=OVERLAY, copied=["config", "runners"], env_script="../env.sh")
    before[checkout / "script.py"] = (checkout / "script.py").read_bytes()
    ran = receive(session, {**spec, "workdir": str(workdir)})
    assert ran.stderr == b""
    said, where, one, linked, statistics, neighbours = json.loads(ran.text)
    expected = {"samples": 7, "note": "\u4e2d", "n": "\u00e4"}
    assert said == dict.fromkeys(("file", "real", "path", "cwd"), expected)
    assert (where, one, linked, statistics) == ("neighbour", 1, 2, True)
    assert neighbours == ["benchmark", "env.sh", "neighbour"]
    after = {p: p.read_bytes() for p in checkout.rglob("*") if p.is_file()}
    after.pop(checkout / ".mxfleet-lock")
    assert after == before


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "has no config/op.json"), ("{", "cannot read"), ("[1]", "cannot read")],
)
def test_configs_that_cannot_be_overlaid(
    session: AgentSession, jobs: Jobs, checkout: Path, content: str | None, message: str
) -> None:
    config = checkout / "config" / "op.json"
    config.unlink()
    if content is not None:
        config.write_text(content)
    ran = receive(session, jobs.spec("print(1)", overlay=OVERLAY, copied=["config"]))
    assert ran.error is not None
    assert message in ran.error.message


def test_dangling_links_are_no_obstacle(session: AgentSession, jobs: Jobs, checkout: Path) -> None:
    (checkout / "config" / "gone.json").symlink_to("nowhere")
    (checkout / "gone").symlink_to("nowhere")
    ran = receive(session, jobs.spec("print(1)", overlay=OVERLAY, copied=["config"]))
    assert (ran.text, ran.error) == ("1\n", None)
