"""How an agent starts, what a login shell may do before it, and what ends a session."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import pytest
from agent_kit import SPAWN, Agents, Jobs, until

from orchestrator.errors import LinkLostError, MxfleetError, ProtocolError, UnusableError
from orchestrator.transport import bootstrap
from orchestrator.transport.agent import wire
from orchestrator.transport.local import LocalConnection
from orchestrator.transport.scripted import Faults, ScriptedConnection
from orchestrator.transport.session import NOISE_LIMIT, AgentSession

HALF_MARK = b"\x00mxfleet-agent:0123"


@pytest.mark.parametrize(
    "noise",
    [
        b"Welcome!\n",
        b"x" * (1 << 20),
        HALF_MARK,
        HALF_MARK * 1000 + b"\x00",
        bytes(range(256)) * 17,
        wire.HEADER.pack(b"J", 0, 2) + b"{}",
    ],
    ids=["motd", "megabyte", "half mark", "many half marks", "binary", "a frame"],
)
def test_noise_before_the_agent(agents: Agents, tmp_path: Path, noise: bytes) -> None:
    session = agents.start(connection=ScriptedConnection(faults=Faults(noise=noise)))
    assert session.call("job", store=str(tmp_path / "s"), job="x")["state"] == "absent"


def test_noise_without_end() -> None:
    connection = ScriptedConnection(faults=Faults(noise=b"y\n" * NOISE_LIMIT))
    with pytest.raises(ProtocolError, match="prints without end"):
        Agents().start(connection=connection)


def silent(argv: Sequence[str], stdin: BinaryIO, stdout: BinaryIO) -> int:
    while stdin.read(4096):
        pass
    return 0


def chatter(text: bytes, status: int) -> object:
    def script(argv: Sequence[str], stdin: BinaryIO, stdout: BinaryIO) -> int:
        stdout.write(text)
        return status

    return script


def test_an_agent_that_never_speaks() -> None:
    with pytest.raises(UnusableError, match="did not start within 1 s"):
        Agents().start(connection=ScriptedConnection(script=silent), start_timeout=0.6)


def test_a_command_that_ends_early() -> None:
    connection = ScriptedConnection(script=chatter(b"no such container\n", 125))  # type: ignore[arg-type]
    with pytest.raises(MxfleetError, match=r"could not start|was lost"):
        Agents().start(connection=connection)


def test_without_any_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sh").symlink_to("/bin/sh")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(bootstrap, "FALLBACK_PYTHONS", ("python3",))
    with pytest.raises(UnusableError, match=r"no Python 3\.6 or later"):
        Agents().start(python="python-that-is-not-there")


def test_a_python_that_is_too_old_is_passed_over(agents: Agents, tmp_path: Path) -> None:
    old = tmp_path / "python2"
    # What counts is that it gets as far as asking for its version.
    old.write_text(
        f"#!/bin/sh\nexec {sys.executable} -c '"
        'import sys; p = sys.argv[5]; sys.argv[1:] = sys.argv[6:]; sys.argv[0] = "-c"; '
        'sys.version_info = (2, 7); exec(p)\' "$@"\n'
    )
    old.chmod(0o755)
    session = agents.start(python=str(old))
    answer = session.call("facts", store=str(tmp_path / "s"), python=sys.executable, env={})
    assert answer["agent_python"].startswith("3.")


def test_a_python_with_other_bytecode_gets_the_source(
    agents: Agents, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ours = bootstrap.MAGIC_NUMBER.hex()
    assert len(bootstrap.bundle(ours)) != len(bootstrap.bundle("00"))
    monkeypatch.setattr(bootstrap, "MAGIC_NUMBER", b"other")
    assert bootstrap.bundle(ours) == bootstrap.bundle("00")
    session = agents.start()
    assert session.call("job", store=str(tmp_path), job="x")["state"] == "absent"


def test_no_login_shell_can_harm_the_command() -> None:
    for word in bootstrap.command(["python3"]):
        assert not set(word) & set("'\\\n!")


def test_garbage_after_the_start(tmp_path: Path) -> None:
    def script(argv: Sequence[str], stdin: BinaryIO, stdout: BinaryIO) -> int:
        stdout.write(bootstrap.PYTHON_MARK + b"00" + bootstrap.PYTHON_END)
        stdin.read(int(stdin.readline()))
        hello = wire.read_frame(stdin.read)
        assert hello is not None
        stdout.write(wire.start_mark(hello.json()["nonce"]))
        wire.FrameWriter(stdout.write).json(0, {"type": "hello"})
        wire.read_frame(stdin.read)
        stdout.write(b"Segmentation fault, says somebody on our own stdout\n")
        return 0

    session = Agents().start(connection=ScriptedConnection(script=script))
    with pytest.raises(ProtocolError, match="not a frame"):
        session.call("job", store="/nowhere", job="x")


def test_a_link_that_falls_silent(agents: Agents) -> None:
    connection = ScriptedConnection()
    session = agents.start(connection=connection, lease=1.0)
    connection.silence()
    with pytest.raises(LinkLostError, match="nothing heard"):
        session.call("job", store="/nowhere", job="x")


def test_a_link_that_breaks(agents: Agents, tmp_path: Path) -> None:
    connection = ScriptedConnection()
    session = agents.start(connection=connection)
    connection.cut()
    for _ in range(2):
        with pytest.raises(LinkLostError):
            session.call("job", store=str(tmp_path), job="x")


def test_a_closed_session_says_so(session: AgentSession) -> None:
    session.close()
    session.close()
    with pytest.raises(LinkLostError, match="was closed"):
        session.call("job", store="/nowhere", job="x")


def test_no_threads_are_left(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    for _ in range(3):
        agents = Agents()
        agents.start().call("job", store=str(tmp_path), job="x")
        agents.close()
    fresh = lambda: [  # noqa: E731
        t for t in threading.enumerate() if t not in before and t.name != "mxfleet-watch"
    ]
    until(lambda: not fresh(), "threads gone")


@pytest.mark.parametrize(
    ("op", "args", "message"),
    [
        ("dance", {}, "unknown request"),
        ("run", {"job": "../x", "store": "/tmp/never"}, "not a job's name"),
        ("has_tree", {"tree": "../../etc", "store": "/tmp/never"}, "not a tree's name"),
        ("has_tree", {"tree": "a" * 32, "store": "relative"}, "not an absolute path"),
        ("has_tree", {}, "KeyError"),
    ],
)
def test_requests_that_make_no_sense(
    session: AgentSession, tmp_path: Path, op: str, args: dict[str, str], message: str
) -> None:
    if args.get("store") == "/tmp/never":
        args = {**args, "store": str(tmp_path / "store")}
    args.setdefault("store", str(tmp_path / "store"))
    with pytest.raises(MxfleetError, match=message):
        session.call(op, **args)
    assert session.call("job", store=str(tmp_path / "store"), job="x") == {
        "state": "absent",
        "type": "result",
    }


def test_a_slow_reader_slows_the_job_and_costs_no_memory(agents: Agents, jobs: Jobs) -> None:
    """A terminal that is stopped for longer than the lease must not end the job either."""
    session = agents.start(lease=1.0)
    script = "import sys\nfor _ in range(40): sys.stdout.buffer.write(bytes(1 << 20))\n"
    request = session.request("run", **jobs.spec(script))
    time.sleep(3.0)  # nobody takes anything, while 40 MB want to come
    assert len(request.incoming._items) <= 300  # of 64 KiB each
    size = sum(len(item) for item in request if isinstance(item, bytes))
    assert size > 40 << 20


def test_who_stops_listening_holds_up_nobody(session: AgentSession, jobs: Jobs) -> None:
    """Far more than the inboxes hold still comes for a request that was left early."""
    script = "import sys\nfor _ in range(60): sys.stdout.buffer.write(bytes(1 << 20))\n"
    with (
        pytest.raises(ZeroDivisionError),
        session.request("run", **jobs.spec(script, name="left")) as request,
    ):
        for item in request:
            if isinstance(item, bytes):
                raise ZeroDivisionError
    assert jobs.run(session, "print(5)", name="next").text == "5\n"
    until(lambda: jobs.status(session, "left")["state"] == "ended", "the job goes on to its end")
    assert jobs.status(session, "left")["outcome"]["exit_code"] == 0
    assert session._requests == {}


def test_a_reader_that_waits_for_room_is_freed(session: AgentSession, jobs: Jobs) -> None:
    script = "import sys\nfor _ in range(60): sys.stdout.buffer.write(bytes(1 << 20))\n"
    request = session.request("run", **jobs.spec(script, name="full"))
    until(lambda: len(request.incoming._items) >= wire.INBOX_FRAMES, "the inbox is full")
    request.drop()
    assert jobs.run(session, "print(6)", name="next").text == "6\n"


def test_steady_output_keeps_the_lease(agents: Agents, jobs: Jobs) -> None:
    """The agent has no reason for heartbeats while it talks; ours have to come all the same."""
    session = agents.start(lease=1.0)
    script = "import time\nfor n in range(150): print(n, flush=True); time.sleep(0.02)\n"
    ran = jobs.run(session, script)
    assert ran.outcome["ended"] == "exited"
    assert ran.text.split() == [str(n) for n in range(150)]


CONTROLLER = """
import sys, time
sys.path.insert(0, {kit!r})
from agent_kit import Agents, Jobs
from pathlib import Path
jobs = Jobs(Path({folder!r}))
jobs.mark = {mark!r}
jobs.run(Agents().start(lease=1.5), {script!r})
"""


@pytest.mark.parametrize(
    "then", ["sleeper().wait()", "sleeper()\nwhile True: print('x' * 999)"], ids=["quiet", "flood"]
)
def test_a_controller_that_is_stopped_loses_its_job(jobs: Jobs, tmp_path: Path, then: str) -> None:
    code = CONTROLLER.format(
        kit=str(Path(__file__).parent),
        folder=str(tmp_path / "other"),
        mark=jobs.mark,
        script=SPAWN + then,
    )
    pipe = LocalConnection("x").open([sys.executable, "-c", code])
    try:
        # The controller itself carries the mark in its command line.
        until(lambda: len(jobs.living()) > 1, "the job runs")
        os.kill(pipe.process.pid, signal.SIGSTOP)  # type: ignore[attr-defined]
        until(lambda: jobs.living() == [pipe.process.pid], "the job is ended")  # type: ignore[attr-defined]
    finally:
        os.kill(pipe.process.pid, signal.SIGKILL)  # type: ignore[attr-defined]
        pipe.close()
