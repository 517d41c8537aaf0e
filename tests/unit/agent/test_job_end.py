"""Nothing that a job starts outlives it, whatever it does to hide and whoever is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from agent_kit import SPAWN, Agents, Jobs, Ran, receive, until

from orchestrator.transport.agent.spool import SpoolParser
from orchestrator.transport.session import AgentSession, Request

# Every way to get away that we know of; each leaves a process that carries the mark.
ESCAPES = {
    "child": "sleeper()",
    "own session": "sleeper(start_new_session=True)",
    "without the environment": "sleeper(env={}, start_new_session=True)",
    "double fork": """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        silent()
        sleeper(env={}, start_new_session=True)
    os._exit(0)
os.wait()
time.sleep(0.3)
""",
    "ignores TERM": """
subprocess.Popen([sys.executable, "-c",
    "import signal, time; signal.signal(15, signal.SIG_IGN); print('set', flush=True); "
    "time.sleep(600)", MARK], stdout=subprocess.PIPE).stdout.readline()
""",
    "stopped": "os.kill(sleeper(start_new_session=True).pid, signal.SIGSTOP)",
    "shell in the background": """
os.system(f"bash -c 'exec -a {MARK} sleep 600' &")
time.sleep(0.5)
""",
    "forks all the time": """
subprocess.Popen([sys.executable, "-c", '''
import os, time
while os.getpid():
    if os.fork():
        time.sleep(0.02); os._exit(0)
    os.setsid()
''', MARK])
time.sleep(0.3)
""",
}


@pytest.mark.parametrize("escape", ESCAPES.values(), ids=list(ESCAPES))
def test_strays_are_ended_with_their_job(session: AgentSession, jobs: Jobs, escape: str) -> None:
    spec = jobs.spec(f"{SPAWN}\n{escape}\nprint('done', flush=True)\nos._exit(4)")
    ran = receive(session, spec)
    assert (ran.text, ran.outcome["ended"], ran.outcome["exit_code"]) == ("done\n", "exited", 4)
    assert jobs.living() == []
    assert ran.outcome["unkillable"] == []


@pytest.mark.parametrize("escape", ESCAPES.values(), ids=list(ESCAPES))
def test_all_is_ended_at_the_time_limit(session: AgentSession, jobs: Jobs, escape: str) -> None:
    script = f"{SPAWN}\n{escape}\nprint('up', flush=True)\ntime.sleep(600)"
    ran = receive(session, jobs.spec(script, timeout=1.5))
    assert (ran.text, ran.outcome["ended"]) == ("up\n", "timeout")
    assert ran.outcome["exit_code"] is None
    assert ran.outcome["signal"] == signal.SIGTERM
    assert jobs.living() == []


def test_strays_are_counted(session: AgentSession, jobs: Jobs) -> None:
    ran = jobs.run(session, f"{SPAWN}\nsleeper(); sleeper(start_new_session=True)")
    assert ran.outcome["strays"] == 2


def test_orphans_that_have_ended_are_no_strays(session: AgentSession, jobs: Jobs) -> None:
    ran = jobs.run(session, "import os\nfor _ in range(5):\n  if os.fork() == 0: os._exit(0)")
    assert ran.outcome["strays"] == 0


@pytest.mark.parametrize("more", [{"silence": 0.8}, {"silence": 0.8, "timeout": None}])
def test_silence(session: AgentSession, jobs: Jobs, more: dict[str, float]) -> None:
    script = (
        "import time\nfor n in range(6): print(n, flush=True); time.sleep(0.3)\ntime.sleep(600)"
    )
    ran = receive(session, jobs.spec(script, **more))
    assert ran.outcome["ended"] == "silence"
    assert ran.text.split() == list("012345")


def test_a_job_that_made_it_in_time_is_no_timeout(session: AgentSession, jobs: Jobs) -> None:
    """What it leaves behind keeps its pipes busy beyond the limit."""
    ran = jobs.run(session, f"{SPAWN}\nsleeper()\ntime.sleep(0.5)", timeout=1.0)
    assert (ran.outcome["ended"], ran.outcome["exit_code"]) == ("exited", 0)


def test_last_words_on_the_way_out(session: AgentSession, jobs: Jobs) -> None:
    """More than a pipe holds: who takes them must not wait for the end first."""
    script = """
import signal, sys, time
def say(*_):
    sys.stdout.write("w" * 500000)
    sys.stdout.flush()
    sys.exit(6)
signal.signal(signal.SIGTERM, say)
print("up", flush=True)
time.sleep(600)
"""
    ran = receive(session, jobs.spec(script, timeout=1.0, grace=10.0))
    assert ran.text == "up\n" + "w" * 500000
    assert (ran.outcome["ended"], ran.outcome["exit_code"]) == ("timeout", 6)


def test_two_jobs_side_by_side_do_not_end_each_other(session: AgentSession, jobs: Jobs) -> None:
    spec = jobs.spec(
        f"{SPAWN}\nsleeper(start_new_session=True)\nprint('up', flush=True)\ntime.sleep(600)"
    )
    long = session.request("run", **{**spec, "job": "long"})
    while not isinstance(long.next(20), bytes):
        pass
    before = set(jobs.living())
    short = {**spec, "job": "short", "argv": ["-c", "print(1)"]}
    assert receive(session, short).text == "1\n"
    assert set(jobs.living()) == before
    session.call("stop", job="long")
    assert long.result()["outcome"]["ended"] == "stopped"
    assert jobs.living() == []


def start_everything(session: AgentSession, jobs: Jobs) -> tuple[int, int]:
    """A job with all kinds of descendants; returns the agent's and the guardian's pid."""
    tree = "\n".join(
        ESCAPES[name]
        for name in (
            "child",
            "own session",
            "without the environment",
            "double fork",
            "ignores TERM",
        )
    )
    request = session.request(
        "run", **jobs.spec(f"{SPAWN}\n{tree}\nprint(os.getppid(), flush=True)\ntime.sleep(600)")
    )
    agent, guardian = pids_of(request)
    assert len(jobs.living()) >= 5
    return agent, guardian


def pids_of(request: Request) -> tuple[int, int]:
    """The agent's and the guardian's pid, from a job that prints its parent's."""
    parser, seen = SpoolParser(), b""
    while b"\n" not in seen:
        item = request.next(20)
        assert item is not None
        if isinstance(item, bytes):
            seen += b"".join(piece for _, piece in parser.feed(item))
    agent = int(seen)
    return agent, int(Path(f"/proc/{agent}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.mark.parametrize(
    "end",
    [
        "close",
        "agent SIGTERM",
        "agent SIGKILL",
        "agent SIGHUP and close",
        "guardian SIGTERM",
        "guardian SIGKILL",
        "agent SIGSEGV",
    ],
)
def test_nothing_is_left(agents: Agents, jobs: Jobs, end: str) -> None:
    session = agents.start()
    agent, guardian = start_everything(session, jobs)
    victim, _, what = end.partition(" ")
    if what:
        name, _, more = what.partition(" ")
        os.kill({"agent": agent, "guardian": guardian}[victim], getattr(signal, name))
        if more:
            time.sleep(0.5)
            assert jobs.living()  # a hang-up alone ends nothing
            session.close()
    else:
        session.close()
    until(lambda: not jobs.living(), "all processes gone", 10.0)
    for pid in (agent, guardian):
        until(lambda pid=pid: not _is_agent(pid), "the agent is gone", 10.0)


@pytest.mark.parametrize("escape", ["own session", "without the environment", "double fork"])
def test_the_next_agent_ends_what_two_kills_left(agents: Agents, jobs: Jobs, escape: str) -> None:
    """Agent and guardian are killed at once; what lives on is found by cookie or tag."""
    spec = jobs.spec(
        f"{SPAWN}\n{ESCAPES[escape]}\nprint(os.getppid(), flush=True)\ntime.sleep(600)",
        name="orphaned",
    )
    agent, guardian = pids_of(agents.start().request("run", **spec))
    alive = agents.start()
    other = alive.request("run", **{**spec, "job": "in-use"})
    pids_of(other)
    os.kill(guardian, signal.SIGSTOP)  # so that neither sees the other go
    os.kill(agent, signal.SIGKILL)
    os.kill(guardian, signal.SIGKILL)
    until(lambda: not _is_agent(agent) and not _is_agent(guardian), "both are gone")
    assert len(jobs.living()) == 2  # one is left behind, the other is looked after
    session = agents.start()
    assert jobs.status(session, "orphaned")["state"] == "unfinished"
    assert len(jobs.living()) == 2  # a question ends nothing
    assert jobs.run(session, "print(1)", name="next").text == "1\n"
    assert len(jobs.living()) == 1
    assert jobs.status(session, "orphaned")["outcome"]["ended"] == "lost"
    assert [path.name for path in (jobs.store / "running").iterdir()] == ["in-use"]
    alive.call("stop", job="in-use")
    assert other.result()["outcome"]["ended"] == "stopped"
    assert list((jobs.store / "running").iterdir()) == []


@pytest.mark.parametrize(
    ("found", "left"),
    [
        ('{"boot": "another", "pids": "pid:[1]"}', ["orphaned"]),  # for the agents over there
        ("", []),  # the disk was full
    ],
)
def test_a_record_of_another_machine_is_left(
    session: AgentSession, jobs: Jobs, found: str, left: list[str]
) -> None:
    (jobs.store / "running").mkdir(parents=True)
    (jobs.store / "running" / "orphaned").write_text(found)
    jobs.run(session, "")
    assert [path.name for path in (jobs.store / "running").iterdir()] == left


def test_a_frozen_agent_loses_its_job(agents: Agents, jobs: Jobs) -> None:
    """It cannot end the job when its lease is over; nobody else would."""
    session = agents.start(lease=1.0)
    agent, _ = start_everything(session, jobs)
    os.kill(agent, signal.SIGSTOP)
    until(lambda: not jobs.living(), "all processes gone", 20.0)
    until(lambda: not _is_agent(agent), "the agent is gone", 10.0)


def test_a_stop_shorter_than_the_lease_harms_nothing(agents: Agents, jobs: Jobs) -> None:
    session = agents.start(lease=4.0)
    spec = jobs.spec(f"{SPAWN}\nprint(os.getppid(), flush=True)\ntime.sleep(3)\nprint('well')")
    request = session.request("run", **spec)
    agent, guardian = pids_of(request)
    for pid in (agent, guardian):
        os.kill(pid, signal.SIGSTOP)
    time.sleep(1.5)
    for pid in (guardian, agent):
        os.kill(pid, signal.SIGCONT)
    assert request.result()["outcome"]["exit_code"] == 0


def _is_agent(pid: int) -> bool:
    try:
        return b"zlib" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def test_an_ended_job_says_so_also_when_nobody_listens(agents: Agents, jobs: Jobs) -> None:
    """The link breaks while the job floods it: the status is on disk all the same."""
    session = agents.start()
    spec = jobs.spec("while True: print('x' * 1000)", name="flood")
    request = session.request("run", **spec)
    while not isinstance(request.next(20), bytes):
        pass
    agents.cut(session)
    other = agents.start()
    outcome = until(
        lambda: jobs.status(other, "flood").get("outcome"), "the status is written", 15.0
    )
    assert outcome["ended"] == "lost"
    assert jobs.living() == []


def test_output_after_the_end_is_not_waited_for(session: AgentSession, jobs: Jobs) -> None:
    script = f"""{SPAWN}
subprocess.Popen([sys.executable, "-c", "while True: print('y' * 100)", MARK])
time.sleep(0.5)
"""

    def nothing(ran: Ran) -> None:
        ran.stdout = ran.stdout[-10:]

    ran = receive(session, jobs.spec(script), on_output=nothing)
    assert ran.outcome["ended"] == "exited"
    assert jobs.living() == []


# Each process lives only until it has forked the next one, in a session of its own.
HOPS = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for _ in range(4):
    if os.fork() == 0:
        break
else:
    print("up", flush=True)
    time.sleep(600)
null = os.open(os.devnull, os.O_RDWR)
for stream in (0, 1, 2):
    os.dup2(null, stream)
beat = os.open("beat", os.O_RDWR | os.O_CREAT)
end = time.time() + 30
while time.time() < end:
    os.pwrite(beat, b"%.6f" % time.time(), 0)
    if os.fork():
        os._exit(0)
    os.setsid()
os._exit(0)
"""


def test_what_forks_and_exits_all_the_time_is_caught(session: AgentSession, jobs: Jobs) -> None:
    def stop(ran: Ran) -> None:
        session.request("stop", store=str(jobs.store), job="hops")

    ran = receive(session, jobs.spec(HOPS, name="hops"), on_output=stop)
    assert (ran.outcome["ended"], ran.outcome["unkillable"]) == ("stopped", [])
    beat = (jobs.workdir / "beat").read_bytes()
    time.sleep(0.5)
    assert (jobs.workdir / "beat").read_bytes() == beat


# Run in a process of its own, which has no other children.
ASKING = """
import subprocess, threading, time
from orchestrator.transport.agent import proc
words = ["sh", "-c", "sleep 0.5; echo out; exit 7"]
said = []
asking = threading.Thread(target=lambda: said.append(proc.ask(words, 10.0, subprocess.DEVNULL)))
asking.start()
while asking.is_alive():
    proc.reap()
    assert proc.members(("none",), -1) == []
    time.sleep(0.001)
print(said)
"""


def test_a_program_of_our_own_is_no_orphan_of_a_job() -> None:
    """Neither ended with one, nor is its status taken by who reaps them."""
    done = subprocess.run([sys.executable, "-c", ASKING], capture_output=True, check=False)
    assert (done.stdout, done.stderr) == (b"[(7, b'out\\n')]\n", b"")
