"""What a job does to its own folder: nothing of it holds up the agent or reaches further."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from agent_kit import Jobs, receive

from orchestrator.transport.agent import fetch
from orchestrator.transport.agent.spool import DAMAGED, Spool, SpoolParser
from orchestrator.transport.session import AgentSession

HERE = """
import os, sys
folder = os.environ["MXFLEET_JOB"]
name = os.path.join(folder, {name!r})
"""

# What a job puts in the place of a result, and why that is not sent.
NO_FILES = {
    "pipe": ("os.mkfifo(name)", "it is not an ordinary file"),
    "link": ("os.symlink('/etc/passwd', name)", "it is a symbolic link"),
    "folder": ("os.mkdir(name)", "it is not an ordinary file"),
    "socket": (
        "import socket; os.chdir(folder); "
        "socket.socket(socket.AF_UNIX).bind(os.path.basename(name))",
        "it is not an ordinary file",
    ),
    "too large": (
        f"open(name, 'wb').truncate({fetch.RESULT_LIMIT + 1})",
        f"it has {fetch.RESULT_LIMIT + 1} bytes, more than the limit of {fetch.RESULT_LIMIT}",
    ),
}


@pytest.mark.parametrize("name", ["result.csv", "records.jsonl"])
@pytest.mark.parametrize(("make", "why"), NO_FILES.values(), ids=list(NO_FILES))
def test_no_file_is_left_out(
    session: AgentSession, jobs: Jobs, name: str, make: str, why: str
) -> None:
    ran = receive(session, jobs.spec(f"{HERE.format(name=name)}\n{make}", name="odd"))
    assert (ran.outcome["ended"], ran.outcome["exit_code"]) == ("exited", 0)
    assert (ran.left_out, ran.files) == ({name: why}, {})
    again = receive(session, {"store": str(jobs.store), "job": "odd"}, op="fetch")
    assert again.left_out == {name: why}


def test_the_largest_result_is_sent(tmp_path: Path) -> None:
    with (tmp_path / "result.csv").open("wb") as stream:
        stream.truncate(fetch.RESULT_LIMIT)
    said: list[dict[str, Any]] = []
    sizes: list[int] = []
    fetch.send_files(
        str(tmp_path), ["result.csv"], said.append, lambda data: sizes.append(len(data))
    )
    assert said == [{"type": "file", "name": "result.csv", "size": fetch.RESULT_LIMIT}]
    assert sum(sizes) == fetch.RESULT_LIMIT


@pytest.mark.parametrize(
    "act", ["os.mkfifo(name)", "os.mkdir(name)", "os.symlink('/etc/passwd', name)"]
)
@pytest.mark.parametrize("name", ["output", "status.json"])
def test_our_own_files_are_replaced(session: AgentSession, jobs: Jobs, name: str, act: str) -> None:
    """All output comes, since it is read where it was written, and the status is kept."""
    script = f"{HERE.format(name=name)}\nos.path.exists(name) and os.remove(name)\n{act}\nprint(7)"
    ran = receive(session, jobs.spec(script, name="rude"))
    assert (ran.text, ran.outcome["exit_code"]) == ("7\n", 0)
    assert jobs.status(session, "rude")["outcome"]["exit_code"] == 0
    assert Path("/etc/passwd").read_bytes().startswith(b"root:")


def test_output_that_the_job_wrote_into_is_shown_as_it_is(
    session: AgentSession, jobs: Jobs
) -> None:
    act = "print(1)\nopen(name, 'ab').write(bytes(range(90, 120)))\nprint(2)"
    ran = jobs.run(session, f"{HERE.format(name='output')}\n{act}", name="own")
    assert ran.outcome["exit_code"] == 0
    again = receive(session, {"store": str(jobs.store), "job": "own"}, op="fetch")
    parser = SpoolParser()
    pieces = list(parser.feed(again.files["output"]))
    assert (2, DAMAGED) in pieces
    assert bytes(range(90, 120)) in b"".join(piece for stream, piece in pieces if stream == 2)


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_damaged_spool_comes_whole(tmp_path: Path, size: int) -> None:
    spool = Spool(str(tmp_path / "output"))
    spool.append(1, b"good")
    spool.close()
    data = (tmp_path / "output").read_bytes() + b"\x09 no chunk" * 9
    parser = SpoolParser()
    pieces = [
        piece for at in range(0, len(data), size) for piece in parser.feed(data[at : at + size])
    ]
    assert b"".join(piece for stream, piece in pieces if stream == 1) == b"good"
    assert b"".join(piece for stream, piece in pieces if stream == 2) == (
        DAMAGED + b"\x09 no chunk" * 9
    )
