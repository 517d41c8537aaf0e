"""A job's output arrives as it was written, whatever it is, and how it ended is named."""

from __future__ import annotations

import hashlib
import signal

import pytest
from agent_kit import Jobs, Ran, receive, until
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import ProtocolError
from orchestrator.transport.agent.spool import CHUNK_HEADER, SpoolParser
from orchestrator.transport.session import AgentSession


@pytest.mark.parametrize(
    ("script", "stdout", "stderr"),
    [
        ("print('a'); print('b', file=sys.stderr)", b"a\n", b"b\n"),
        ("sys.stdout.write('no end')", b"no end", b""),
        ("sys.stdout.buffer.write(bytes(range(256)) * 3)", bytes(range(256)) * 3, b""),
        ("sys.stdout.buffer.write(b'x' * (1 << 20) + b'\\n')", b"x" * (1 << 20) + b"\n", b""),
        ("sys.stderr.buffer.write(b'y' * 300000)", b"", b"y" * 300000),
        ("pass", b"", b""),
        ("os.close(1); os.close(2); time.sleep(0.3)", b"", b""),
        (
            "os.write(1, b'\\xe4\\xb8'); time.sleep(0.1); os.write(1, b'\\xad')",
            b"\xe4\xb8\xad",
            b"",
        ),
    ],
)
def test_bytes(
    session: AgentSession, jobs: Jobs, script: str, stdout: bytes, stderr: bytes
) -> None:
    ran = jobs.run(session, "import os, sys, time\n" + script)
    assert (ran.stdout, ran.stderr) == (stdout, stderr)
    assert ran.outcome["ended"] == "exited"
    assert ran.outcome["exit_code"] == 0


def test_much_at_once(session: AgentSession, jobs: Jobs) -> None:
    script = (
        "import random, sys\nrandom.seed(1)\n"
        "for _ in range(20): sys.stdout.buffer.write(random.randbytes(1 << 20))\n"
    )
    ran = jobs.run(session, script)
    import random

    random.seed(1)
    expected = b"".join(random.randbytes(1 << 20) for _ in range(20))
    assert hashlib.sha256(ran.stdout).digest() == hashlib.sha256(expected).digest()


def test_output_comes_while_the_job_runs(session: AgentSession, jobs: Jobs) -> None:
    """The job ends only because what it printed was seen."""
    flag = jobs.folder / "seen"
    script = (
        "import os, time\nprint('here', flush=True)\n"
        f"while not os.path.exists({str(flag)!r}): time.sleep(0.02)\n"
    )

    def on_output(ran: Ran) -> None:
        if ran.stdout == b"here\n":
            flag.touch()

    ran = receive(session, jobs.spec(script), on_output=on_output)
    assert ran.outcome["exit_code"] == 0


@pytest.mark.parametrize(
    ("script", "exit_code", "number"),
    [
        ("raise SystemExit(0)", 0, None),
        ("raise SystemExit(3)", 3, None),
        ("raise RuntimeError", 1, None),
        ("os._exit(255)", 255, None),
        ("os.kill(os.getpid(), 11)", None, signal.SIGSEGV),
        ("os.kill(os.getpid(), 9)", None, signal.SIGKILL),
        ("os.abort()", None, signal.SIGABRT),
    ],
)
def test_ends(
    session: AgentSession, jobs: Jobs, script: str, exit_code: int | None, number: int | None
) -> None:
    spec = jobs.spec("import os\n" + script)
    ran = receive(session, spec)
    assert ran.outcome["exit_code"] == exit_code
    assert ran.outcome["signal"] == number
    told = jobs.status(session, spec["job"])
    assert told["state"] == "ended"
    assert told["outcome"] == ran.outcome


def test_many_short_jobs_lose_no_status(session: AgentSession, jobs: Jobs) -> None:
    """The agent collects orphans all the time; a job's own status must not go with them."""
    script = "import os, sys\nif os.fork() == 0: os._exit(0)\nsys.exit(7)\n"
    spec = jobs.spec(script)
    requests = [session.request("run", **{**spec, "job": f"j{n}"}) for n in range(12)]
    assert [request.result()["outcome"]["exit_code"] for request in requests] == [7] * 12


def test_what_a_job_writes_comes_back(session: AgentSession, jobs: Jobs) -> None:
    script = (
        "import os, sys\nfolder = os.environ['MXFLEET_JOB']\n"
        "assert sys.argv[1] == folder + '/result.csv'\n"
        "open(sys.argv[1], 'wb').write(b'a,b\\r\\n' * 50000)\n"
        "open(folder + '/records.jsonl', 'w').close()\n"
    )
    spec = jobs.spec(script)
    spec["argv"] = [*spec["argv"], "@JOB@/result.csv"]
    ran = receive(session, spec)
    assert ran.files == {"records.jsonl": b"", "result.csv": b"a,b\r\n" * 50000}
    again = receive(session, {"store": str(jobs.store), "job": spec["job"]}, op="fetch")
    assert again.files == {**ran.files, "output": b""}
    assert again.outcome["outcome"] == ran.outcome


def test_a_job_is_started_once(session: AgentSession, jobs: Jobs) -> None:
    """Neither while it runs nor later; the one that runs stays under control."""
    spec = jobs.spec("import time\nprint('up', flush=True)\ntime.sleep(600)", name="once")
    request = session.request("run", **spec)
    while not isinstance(request.next(20), bytes):
        pass
    second = receive(session, spec)
    assert isinstance(second.error, ProtocolError)
    assert "started before" in second.error.message
    assert session.call("stop", job="once") == {"known": True, "finished": True, "type": "result"}
    assert request.result()["outcome"]["ended"] == "stopped"
    third = receive(session, spec)
    assert third.error is not None
    assert jobs.status(session, "once")["outcome"]["ended"] == "stopped"


def test_stopping_what_does_not_run(session: AgentSession) -> None:
    assert session.call("stop", job="nobody")["known"] is False


def test_what_was_refused_can_be_asked_for_later(session: AgentSession, jobs: Jobs) -> None:
    ran = jobs.run(session, "", name="refused", workdir=str(jobs.folder / "nowhere"))
    assert ran.error is not None
    outcome = jobs.status(session, "refused")["outcome"]
    assert outcome["ended"] == "refused"
    assert ran.error.message in outcome["message"]


def test_progress_is_seen_by_others(session: AgentSession, jobs: Jobs) -> None:
    request = session.request("run", **jobs.spec("import time; time.sleep(600)", name="long"))
    until(lambda: jobs.status(session, "long")["state"] == "unfinished", "the job is known")
    session.call("stop", job="long")
    assert request.result()["outcome"]["ended"] == "stopped"


@given(
    st.lists(st.tuples(st.sampled_from([1, 2]), st.binary(min_size=1, max_size=80)), max_size=10),
    st.lists(st.integers(1, 40), min_size=1, max_size=20),
)
def test_the_spool_in_pieces_of_any_size(chunks: list[tuple[int, bytes]], sizes: list[int]) -> None:
    data = b"".join(CHUNK_HEADER.pack(stream, len(part)) + part for stream, part in chunks)
    parser = SpoolParser()
    joined = {1: b"", 2: b""}
    at = turn = 0
    while at < len(data):
        size = sizes[turn % len(sizes)]
        for stream, piece in parser.feed(data[at : at + size]):
            joined[stream] += piece
        at += size
        turn += 1
    for stream in joined:
        assert joined[stream] == b"".join(part for s, part in chunks if s == stream)
