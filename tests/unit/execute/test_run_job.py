"""One job through a real agent: log, lines, files, and what becomes of trouble on either side."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from agent_kit import Agents, Jobs, receive, until

from orchestrator.errors import LinkLostError, UnusableError, UsageError
from orchestrator.events import Event, JobStarted, OutputLine
from orchestrator.execute.folder import RunFolder
from orchestrator.execute.job import fetch_job, run_job
from orchestrator.inventory.model import Host, Target
from orchestrator.plan.jobs import PlannedJob
from orchestrator.transport.scripted import ScriptedConnection
from orchestrator.transport.session import AgentSession

TARGET = Target("t:c", Host("t"))
SCRIPT = """
import os, sys, time
sys.stdout.buffer.write("eins \\u4e2d\\r\\nzwei\\rdrei\\n".encode() + b"\\xff raw\\n")
sys.stdout.flush()
time.sleep(0.2)
sys.stderr.write("last words\\n\\n")
folder = os.environ["MXFLEET_JOB"]
open(folder + "/result.csv", "wb").write(b"a,b\\r\\n1,2\\r\\n")
open(folder + "/records.jsonl", "wb").write(b"{}\\n" * 3)
"""


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "runs", "r1")


def planned(jobs: Jobs, source: str, **more: Any) -> PlannedJob:
    spec = jobs.spec(source, **more)
    return PlannedJob(TARGET, "op", spec["job"], spec)


def test_all_that_a_job_brings(session: AgentSession, jobs: Jobs, folder: RunFolder) -> None:
    seen: list[Event] = []
    attempt = run_job(session, planned(jobs, SCRIPT), folder, seen.append)
    assert attempt.error is None
    assert attempt.outcome is not None and attempt.outcome["exit_code"] == 0
    assert attempt.log.read_bytes() == (
        "eins \u4e2d\r\nzwei\rdrei\n".encode() + b"\xff raw\nlast words\n\n"
    )
    lines = [(e.stream, e.text) for e in seen if isinstance(e, OutputLine)]
    assert [text for stream, text in lines if stream == "stdout"] == [
        "eins \u4e2d",
        "zwei",
        "drei",
        "\ufffd raw",
    ]
    assert attempt.last_words == "last words"
    assert isinstance(seen[0], JobStarted)
    assert attempt.csv is not None and attempt.csv.read_bytes() == b"a,b\r\n1,2\r\n"
    assert attempt.records is not None and attempt.records.read_bytes() == b"{}\n" * 3
    # Pulled again, it is the same.
    log = attempt.log.read_bytes()
    attempt.log.unlink()
    attempt.csv.unlink()
    again = fetch_job(session, attempt.job, folder)
    assert again.error is None
    assert again.outcome == attempt.outcome
    assert again.log.read_bytes() == log
    assert again.csv is not None and again.csv.read_bytes() == b"a,b\r\n1,2\r\n"
    assert again.last_words == "last words"


CUT = """
import sys, time
trace = "warn\\nTraceback (most recent call last):\\n"
for stream, text in ((1, "x[VERIFY] op -> FA"), (2, trace), (1, "IL (1-CosSim: 0.5)\\n[FATAL] "),
                     (2, "OSErr"), (1, "op: no"), (2, "or: n")):
    print(text, end="", file=sys.stdout if stream == 1 else sys.stderr, flush=True)
    time.sleep(0.05)
"""


def test_markers_that_the_other_stream_cuts(
    session: AgentSession, jobs: Jobs, folder: RunFolder
) -> None:
    attempt = run_job(session, planned(jobs, CUT), folder, lambda event: None)
    for found in (attempt, fetch_job(session, attempt.job, folder)):
        assert found.markers.verifications_failed == 1
        assert found.markers.failed_distance == "0.5"
        assert found.markers.failure == "[FATAL] op: no"
        assert found.markers.exception == ("OSError", "n")


def test_what_the_target_refuses(session: AgentSession, jobs: Jobs, folder: RunFolder) -> None:
    attempt = run_job(
        session, planned(jobs, "", python="nobody's python"), folder, lambda event: None
    )
    assert isinstance(attempt.error, UnusableError)
    assert attempt.outcome is None
    pulled = fetch_job(session, attempt.job, folder)
    assert pulled.outcome is not None and pulled.outcome["ended"] == "refused"


def test_nothing_there_to_fetch(session: AgentSession, jobs: Jobs, folder: RunFolder) -> None:
    attempt = fetch_job(session, planned(jobs, ""), folder)
    assert (attempt.started, attempt.outcome, attempt.error) == (False, None, None)
    assert not attempt.log.exists()


def test_the_link_breaks(agents: Agents, jobs: Jobs, folder: RunFolder) -> None:
    connection = ScriptedConnection()
    session = agents.start(connection=connection)

    def sink(event: Event) -> None:
        if isinstance(event, OutputLine):
            connection.cut()

    job = planned(jobs, "import time\nprint('seen', flush=True)\ntime.sleep(600)")
    attempt = run_job(session, job, folder, sink)
    assert isinstance(attempt.error, LinkLostError)
    assert attempt.started
    assert attempt.log.read_bytes() == b"seen\n"
    other = agents.start()
    until(lambda: jobs.status(other, job.job)["state"] == "ended", "the job is ended there")
    pulled = fetch_job(other, job, folder)
    assert pulled.outcome is not None and pulled.outcome["ended"] == "lost"
    assert pulled.log.read_bytes() == b"seen\n"


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB on this side."""
    path = tmp_path / "small"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(path)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small file system needs root")
    yield path
    subprocess.run(["umount", "-l", str(path)], check=True)


@pytest.mark.parametrize(
    "source",
    [
        "import time\nwhile True: print('x' * 1000)",
        "import os\nopen(os.environ['MXFLEET_JOB'] + '/result.csv', 'wb').write(bytes(30 << 20))",
        "import os\nopen(os.environ['MXFLEET_JOB'] + '/records.jsonl', 'wb').write(bytes(9 << 20))",
    ],
    ids=["output", "csv", "records"],
)
def test_no_space_on_this_side(
    session: AgentSession, jobs: Jobs, small: Path, folder: RunFolder, source: str
) -> None:
    """The job is ended rather than run on unseen, and the session goes on."""
    full = RunFolder.create(small, "r")
    job = planned(jobs, source)
    attempt = run_job(session, job, full, lambda event: None)
    assert isinstance(attempt.error, UsageError)
    assert "No space left" in attempt.error.message
    assert all(path is None or path.exists() for path in (attempt.records, attempt.csv))
    assert str(small) in str(attempt.error.where)
    assert jobs.status(session, job.job)["state"] == "ended"
    assert jobs.living() == []
    pulled = fetch_job(session, job, full)
    assert isinstance(pulled.error, UsageError)
    # Pulled to where there is space, it is all there.
    assert fetch_job(session, replace(job, attempt=2), folder).error is None
    assert receive(session, jobs.spec("print(1)")).text == "1\n"
