"""A full disk on the target: one sentence with the way out, nothing half there, the agent lives."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from agent_kit import Jobs, receive

from orchestrator.errors import UnusableError
from orchestrator.inventory.model import Host, Target
from orchestrator.push.send import push_in_place, push_tree
from orchestrator.push.tree import build
from orchestrator.transport.session import AgentSession

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("cannot mount here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path, leave: int = 0) -> Path:
    """Use the space up but for ``leave`` bytes."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as stream:
        try:
            while stream.write(bytes(4096)):
                pass
        except OSError:
            pass
    os.truncate(filler, max(0, filler.stat().st_size - leave))
    return filler


def working_folder(path: Path, size: int) -> Path:
    for name in ("config", "runners"):
        (path / "benchmark" / name).mkdir(parents=True)
    for number in range(4):
        data = random.Random(number).randbytes(size // 4)
        (path / "benchmark" / "config" / f"{number}.json").write_bytes(data)
    return path


def test_tree(session: AgentSession, tmp_path: Path, small: Path) -> None:
    tree = build(working_folder(tmp_path / "work", 4 << 20))
    target = Target("t", Host("t"), store=str(small / "store"))
    with pytest.raises(UnusableError, match="no space left while receiving the tree") as caught:
        push_tree(session, target, tree)
    assert caught.value.hint and "`store`" in caught.value.hint
    assert [p.name for p in (small / "store" / "trees").iterdir()] == []
    # The same agent, once there is space.
    target = Target("t", Host("t"), store=str(tmp_path / "store"))
    assert push_tree(session, target, tree).files == 4


def test_sync(session: AgentSession, tmp_path: Path, small: Path) -> None:
    tree = build(working_folder(tmp_path / "work", 4 << 20))
    workdir = working_folder(small / "there", 400) / "benchmark"
    before = {p: p.read_bytes() for p in workdir.rglob("*") if p.is_file()}
    with pytest.raises(UnusableError, match="no space left while syncing"):
        push_in_place(session, str(workdir), tree, ("config", "runners"))
    after = {p: p.read_bytes() for p in workdir.rglob("*") if p.is_file()}
    after.pop(workdir / ".mxfleet-lock")
    assert after == before


def test_job_folder(session: AgentSession, jobs: Jobs, small: Path) -> None:
    jobs.store = small / "store"
    assert jobs.run(session, "print(1)").text == "1\n"
    filler = fill(small)
    ran = jobs.run(session, "print(2)", name="second")
    assert isinstance(ran.error, UnusableError)
    assert ran.error.message.startswith("no space left while making the job's folder")
    assert not (small / "store" / "jobs" / "second").exists()
    filler.unlink()
    assert jobs.run(session, "print(3)", name="second").text == "3\n"


def test_spool(session: AgentSession, jobs: Jobs, small: Path) -> None:
    jobs.store = small / "store"
    script = "import sys\nfor n in range(4000): print(n, 'x' * 1000)\nprint('end', file=sys.stderr)"
    ran = jobs.run(session, script)
    assert ran.outcome["exit_code"] == 0
    assert ran.outcome["output_lost"].startswith("no space left while keeping the output")
    lines = ran.text.splitlines()
    assert 1000 < len(lines) < 4000
    assert lines[:-1] == [f"{n} " + "x" * 1000 for n in range(len(lines) - 1)]


def test_what_the_job_writes(session: AgentSession, jobs: Jobs, small: Path) -> None:
    jobs.store = small / "store"
    script = (
        "import os\nopen(os.environ['MXFLEET_JOB'] + '/result.csv', 'wb').write(bytes(4 << 20))"
    )
    ran = receive(session, jobs.spec(script))
    assert ran.outcome["exit_code"] == 1
    # The job's own words on it find no place either: the agent says it instead.
    assert ran.outcome["output_lost"].startswith("no space left while keeping the output")
    assert ran.outcome["disk_free"] < 1 << 16


def test_overlay(session: AgentSession, jobs: Jobs, small: Path) -> None:
    jobs.store = small / "store"
    (jobs.workdir / "config").mkdir()
    (jobs.workdir / "config" / "x.json").write_text("{}")
    (jobs.workdir / "config" / "large.json").write_bytes(bytes(4 << 20))
    overlay = {"path": "config/x.json", "values": {"samples": 1}}
    ran = jobs.run(session, "print(1)", overlay=overlay, copied=["config"])
    assert ran.error is not None
    assert ran.error.message.startswith("no space left while running the job")
