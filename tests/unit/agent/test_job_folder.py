"""What a job does to its own folder: nothing of it holds up the agent or reaches further."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import Any

import pytest
from agent_kit import Jobs, receive

from orchestrator.transport.agent import fetch
from orchestrator.transport.agent.files import AgentError, private_store
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


# What a job does to its whole folder, and what is said of it.
RUDE = {
    "removed": ("shutil.rmtree(folder)", "its job folder is gone"),
    "its parent too": ("shutil.rmtree(os.path.dirname(folder))", "its job folder is gone"),
    "the whole store": (
        "shutil.rmtree(os.path.dirname(os.path.dirname(folder)))",
        "its job folder is gone",
    ),
    "a link": (
        "shutil.rmtree(folder); os.symlink('/tmp', folder)",
        "its job folder was replaced",
    ),
    "a file": ("shutil.rmtree(folder); open(folder, 'w')", "its job folder was replaced"),
    "moved": ("os.rename(folder, folder + '.b'); os.mkdir(folder)", "its job folder was replaced"),
    "locked": ("os.chmod(folder, 0)", None),
    "left is a file": ("open(folder + '/left', 'w')", None),
}


@pytest.mark.parametrize(("act", "damaged"), RUDE.values(), ids=list(RUDE))
def test_a_job_that_harms_its_folder_harms_itself_only(
    session: AgentSession, jobs: Jobs, act: str, damaged: str | None
) -> None:
    script = f"import shutil\n{HERE.format(name='result.csv')}\nprint('up')\n{act}\nprint('done')"
    ran = receive(session, jobs.spec(script, name="rude"))
    assert (ran.error, ran.outcome["ended"], ran.outcome["exit_code"]) == (None, "exited", 0)
    assert ran.outcome.get("damaged") == damaged
    assert ran.text == "up\ndone\n"
    again = receive(session, {"store": str(jobs.store), "job": "rude"}, op="fetch")
    assert again.outcome["outcome"] == ran.outcome
    assert b"".join(piece for _, piece in SpoolParser().feed(again.files["output"])) == (
        b"up\ndone\n"
    )
    assert jobs.run(session, "print(2)", name="next").text == "2\n"


def test_what_was_asked_is_for_its_owner_alone(session: AgentSession, jobs: Jobs) -> None:
    jobs.run(session, "", name="own", env={"TOKEN": "secret"})
    folder = jobs.store / "jobs" / "own"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "spec.json").stat().st_mode) == 0o600
    assert list((jobs.store / "running").iterdir()) == []


def test_an_env_script_that_keeps_the_pipe_is_not_waited_for(
    session: AgentSession, jobs: Jobs
) -> None:
    script = jobs.env_script("sleep 600 >/dev/null 2>&1 &\n")
    ran = jobs.run(session, "print(3)", env_script=script)
    assert (ran.text, ran.outcome["exit_code"]) == ("3\n", 0)


@pytest.mark.parametrize(
    ("mode", "group", "refused"),
    [
        (0o755, "foreign", None),
        (0o775, "foreign", "writable for a group"),
        (0o757, "own", "writable for everybody"),
        (0o775, "own", None),
    ],
)
def test_who_may_write_to_the_store(
    tmp_path: Path, mode: int, group: str, refused: str | None
) -> None:
    if os.geteuid() != 0:
        pytest.skip("gives a folder to another group")
    os.chown(tmp_path, -1, 0 if group == "own" else 12345)
    tmp_path.chmod(mode)
    if refused is None:
        assert private_store(str(tmp_path), False) == str(tmp_path)
        return
    with pytest.raises(AgentError, match=refused):
        private_store(str(tmp_path), False)


def test_output_that_the_job_cut_is_told(session: AgentSession, jobs: Jobs) -> None:
    source = (
        f"{HERE.format(name='output')}\nimport time\nprint('one', flush=True)\n"
        "time.sleep(0.5)\nos.truncate(name, 0)\nprint('two')"
    )
    ran = receive(session, jobs.spec(source))
    assert re.fullmatch(r"its output was cut by \d+ bytes", ran.outcome["damaged"])
