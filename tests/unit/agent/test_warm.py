"""Jobs in warm workers: real agents, the real harness, torch on the CPU."""

from __future__ import annotations

import os
import re
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agent_kit import Agents, Jobs, Ran, receive, until

from orchestrator.push.send import _stream
from orchestrator.push.tree import build, contents, entry_rows
from orchestrator.transport.agent import warm
from orchestrator.transport.agent.shell import Told
from orchestrator.transport.session import AgentSession

ROOT = Path(__file__).resolve().parents[3]
PROBE = ROOT / "tests" / "fleet" / "warm"
DOOR = "mcoplib_mxbenchmark_ops.py"


class Warm:
    """A pushed tree with an operator that does what it is told, and jobs of it."""

    def __init__(self, session: AgentSession, jobs: Jobs, folder: Path) -> None:
        self.session = session
        self.jobs = jobs
        self.folder = folder
        benchmark = folder / "benchmark"
        shutil.copytree(PROBE, benchmark)
        shutil.copytree(
            ROOT / "benchmark" / "harness",
            benchmark / "harness",
            ignore=shutil.ignore_patterns("__pycache__"),
        )
        shutil.copy(ROOT / "benchmark" / "mcoplib_mxbenchmark_op_wrapper.py", benchmark)
        (benchmark / DOOR).write_text(
            (ROOT / "benchmark" / DOOR)
            .read_text()
            .replace("OPERATORS = [", 'OPERATORS = [\n    "warm_probe",')
        )
        (folder / "env").mkdir()
        (folder / "env" / "env.sh").write_text("echo sourced\nexport SOURCED=yes\n")
        # A tree of its own: its servers are counted by its name, wherever else this test runs.
        (folder / "env" / "mark.sh").write_text(f"# {jobs.mark}\n")
        self.tree = self.push()

    def push(self) -> str:
        tree = build(self.folder)
        args: dict[str, Any] = {"store": str(self.jobs.store), "entries": entry_rows(tree.entries)}
        everything = list(range(len(tree.entries)))
        with self.session.request(
            "put_tree", tree=tree.name, sent=everything, keep=9, keep_days=9.0, **args
        ) as request:
            _stream(request, contents(tree, everything))
            request.result()
        return tree.name

    def spec(self, do: str = "", *, flags: tuple[str, ...] = (), **more: Any) -> dict[str, Any]:
        values = {"do": do, "mark": self.jobs.mark}
        argv = ["-u", DOOR, "--op", "warm_probe", "--engine", "torch", "--repeats", "1"]
        argv += ["--csv", "@JOB@/result.csv", "--generate", "--records", "@JOB@/records.jsonl"]
        for name, value in values.items():
            argv += ["--set", f"{name}={value}"]
        spec = self.jobs.spec("", argv=[*argv, *flags], tree=self.tree, subfolder="benchmark")
        spec.update(env_script="../env/env.sh", warm=True, env={"CUDA_VISIBLE_DEVICES": ""})
        return {**spec, **more}

    def run(self, do: str = "", session: AgentSession | None = None, **more: Any) -> Ran:
        return receive(session or self.session, self.spec(do, **more))


@pytest.fixture
def warmth(session: AgentSession, jobs: Jobs, tmp_path: Path) -> Iterator[Warm]:
    made = Warm(session, jobs, tmp_path / "work")
    yield made
    session.close()
    until(lambda: not forks(made.tree), "no server is left")


def ancestors(ran: Ran) -> list[int]:
    """The case's process, the front door, the server, the agent, and so on."""
    found = re.search(r"^ANCESTORS (.*)$", ran.text, re.MULTILINE)
    assert found, (ran, ran.stderr.decode())
    return [int(word) for word in found[1].split()]


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def servers(tree: str) -> list[int]:
    """Warm servers of a tree."""
    found = forks(tree)
    return [pid for pid in found if parent(pid) not in found]


def forks(tree: str) -> list[int]:
    """Warm servers of a tree and all that was forked from them."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "cmdline").read_bytes().split(b"\0")
            if b"--serve" in words and tree in str((path / "cwd").readlink()):
                found.append(int(path.name))
        except OSError:
            continue
    return found


def server_of(ran: Ran) -> int:
    """The warm server that a job was forked from."""
    pids = ancestors(ran)
    for pid in pids[1:]:
        stat = Path(f"/proc/{pid}/cmdline")
        if stat.exists() and b"--serve" in stat.read_bytes():
            return pid
    raise AssertionError(f"none of {pids} is a server: {ran}")


def test_one_job_after_the_other_in_one_worker(warmth: Warm) -> None:
    first, second = warmth.run(), warmth.run()
    assert server_of(first) == server_of(second)
    assert servers(warmth.tree) == [server_of(first)]
    assert first.text.startswith("sourced\n") and "sourced" not in second.text
    for ran in (first, second):
        assert ran.outcome["exit_code"] == 0 and ran.outcome["strays"] == 0, ran
        assert ran.stderr == b"to stderr\n"
        assert b'"PASSED"' in ran.files["records.jsonl"] and ran.files["result.csv"]
    spec = warmth.spec()
    third = receive(warmth.session, spec)
    name = spec["job"]
    assert f"COOKIE MXFLEET_JOB_COOKIE={name} {name}\n" in third.text
    assert f"FOLDER {warmth.jobs.store}/jobs/{name} ARGV ['{DOOR}', '--op'" in third.text


def test_a_cold_job_beside_it_is_its_like(warmth: Warm) -> None:
    """What a job may see of itself is the same in both."""
    do = (
        "names = set(os.environ) - {'MXFLEET_JOB', 'MXFLEET_JOB_COOKIE'}\n"
        "print('SEEN', sorted((n, os.environ[n]) for n in names), os.getcwd(), sys.path)\n"
        "print('SEEN', sorted(os.listdir('/proc/self/fd'))[:3], os.getpgid(0) == os.getsid(0))\n"
        "import signal\n"
        "print('SEEN', [signal.getsignal(n) for n in (15, 2, 17, 13)], os.umask(0o22))"
    )
    cold, _, again = (warmth.run(do, warm=w) for w in (False, True, True))
    seen = [
        [line for line in ran.text.splitlines() if line.startswith("SEEN")] for ran in (cold, again)
    ]
    assert len(seen[0]) == 3 and seen[0] == seen[1]


@pytest.mark.parametrize(
    ("do", "ended", "code"),
    [
        ("os.kill(os.getpid(), 11)", "exited", 1),
        ("sleeper(mark, start_new_session=True, env={})", "exited", 0),
        ("if fork():\n    if fork(): sleeper(mark, env={})\n    os._exit(0)", "exited", 0),
        ("sleeper(mark, start_new_session=True); hang()", "timeout", None),
        (
            "import signal; signal.signal(15, signal.SIG_IGN); sleeper(mark); hang()",
            "timeout",
            None,
        ),
        ("os.kill(os.getppid(), 19); sleeper(mark); hang()", "timeout", None),
    ],
    ids=["segfault", "own session", "daemon", "hangs", "ignores TERM", "stops its parent"],
)
def test_what_an_operator_does_ends_with_it(
    warmth: Warm, do: str, ended: str, code: int | None
) -> None:
    first = warmth.run()
    server = server_of(first)
    ran = warmth.run(do, timeout=4.0 if ended == "timeout" else 60.0)
    assert (ran.outcome["ended"], ran.outcome["exit_code"]) == (ended, code), ran
    assert warmth.jobs.living() == [] and ran.outcome["unkillable"] == []
    if ended == "timeout":
        assert forks(warmth.tree) == []
    again = warmth.run()
    assert again.outcome["exit_code"] == 0
    assert (server_of(again) == server) == (ended == "exited")


def test_a_front_door_that_is_killed_leaves_nothing(warmth: Warm) -> None:
    """Its case is orphaned then; the worker ends it, says so, and is ended itself."""
    server = server_of(warmth.run())
    do = "fork() and hang(); os.kill(parent(os.getpid()), 9); time.sleep(600)"
    ran = warmth.run(do)
    assert (ran.outcome["ended"], ran.outcome["signal"]) == ("exited", signal.SIGKILL)
    assert forks(warmth.tree) == ([] if ran.outcome["strays"] else [server])


def test_stop(warmth: Warm) -> None:
    spec = warmth.spec("sleeper(mark, start_new_session=True); print('up', flush=True); hang()")

    def stop(ran: Ran) -> None:
        if "up" in ran.text:
            warmth.session.request("stop", job=spec["job"])

    ran = receive(warmth.session, spec, on_output=stop)
    assert ran.outcome["ended"] == "stopped" and ran.outcome["signal"] == signal.SIGTERM
    assert warmth.jobs.living() == [] and forks(warmth.tree) == []


def test_a_stop_while_torch_is_imported(warmth: Warm) -> None:
    spec = warmth.spec()

    def stop(ran: Ran) -> None:
        warmth.session.request("stop", job=spec["job"])

    ran = receive(warmth.session, spec, on_output=stop)  # at the env script's first line
    assert ran.outcome["ended"] == "stopped" and "fresh" not in ran.stderr.decode()
    assert forks(warmth.tree) == []


def test_a_worker_that_is_killed_takes_its_job_along(warmth: Warm) -> None:
    server = server_of(warmth.run())
    ran = warmth.run(f"sleeper(mark, start_new_session=True); os.kill({server}, 9); hang()")
    assert (ran.outcome["ended"], ran.outcome["signal"]) == ("exited", signal.SIGKILL), ran
    assert b"mxfleet: the warm Python of this job: signal 9 ended it\n" in ran.stderr
    assert warmth.jobs.living() == [] and forks(warmth.tree) == []
    assert warmth.run().outcome["exit_code"] == 0


@pytest.mark.parametrize("seen", [True, False], ids=["long ago", "just now"])
def test_an_idle_worker_that_is_killed_is_replaced(warmth: Warm, seen: bool) -> None:
    """Also one that is still on its way out when the next job is given to it."""
    server = server_of(warmth.run())
    os.kill(server, signal.SIGKILL)
    if seen:
        until(lambda: server not in servers(warmth.tree), "it is gone")
    again = warmth.run()
    assert again.outcome["exit_code"] == 0 and b"mxfleet" not in again.stderr
    assert server_of(again) != server


@pytest.mark.parametrize("what", ["agent SIGKILL", "agent SIGTERM", "close"])
@pytest.mark.parametrize("busy", [True, False], ids=["busy", "idle"])
def test_the_agents_end(warmth: Warm, what: str, busy: bool) -> None:
    first = warmth.run()
    agent = parent(server_of(first))
    if busy:
        warmth.session.request(
            "run", **warmth.spec("sleeper(mark, start_new_session=True, env={}); hang()")
        )
        until(warmth.jobs.living, "the job is up")
    if what == "close":
        warmth.session.close()
    else:
        os.kill(agent, getattr(signal, what.split()[1]))
    until(lambda: not warmth.jobs.living() and not forks(warmth.tree), "nothing is left", 10.0)


def test_what_two_kills_left_is_ended_by_the_next_agent(warmth: Warm, agents: Agents) -> None:
    first = warmth.run()
    agent = parent(server_of(first))
    guardian = parent(agent)
    spec = warmth.spec("sleeper(mark, start_new_session=True); hang()")
    warmth.session.request("run", **spec)
    until(warmth.jobs.living, "the job is up")
    os.kill(guardian, signal.SIGSTOP)
    os.kill(agent, signal.SIGKILL)
    os.kill(guardian, signal.SIGKILL)
    other = agents.start()
    until(lambda: not forks(warmth.tree), "the server died with the agent's thread")
    assert warmth.run(session=other).outcome["exit_code"] == 0
    assert warmth.jobs.living() == []
    assert warmth.jobs.status(other, spec["job"])["outcome"]["ended"] == "lost"
    other.close()
    until(lambda: not list((warmth.jobs.store / "running").iterdir()), "no record is left")


def test_jobs_that_differ_never_share_a_worker(warmth: Warm) -> None:
    first = server_of(warmth.run())
    other = warmth.run("print(os.environ['X'])", env={"X": "1", "CUDA_VISIBLE_DEVICES": ""})
    assert "\n1\n" in other.text and server_of(other) != first
    both = sorted([first, server_of(other)])
    # What a job forked and is about to be reaped may still be there for a moment.
    until(lambda: sorted(servers(warmth.tree)) == both, "each has a server")
    assert server_of(warmth.run()) == first
    # A tree that differs is served alone.
    (warmth.folder / "benchmark" / "config" / "warm_probe.json").write_text('{"dtype": "float32"}')
    old, warmth.tree = warmth.tree, warmth.push()
    third = server_of(warmth.run())
    until(lambda: forks(old) == [] and servers(warmth.tree) == [third], "one server is left")


def test_two_at_once_have_a_worker_each(warmth: Warm) -> None:
    slow = warmth.session.request("run", **warmth.spec("sleeper(mark); time.sleep(3)"))
    until(warmth.jobs.living, "the first is up")
    beside = warmth.run()
    assert beside.outcome["exit_code"] == 0 and len(servers(warmth.tree)) == 2
    assert slow.result()["outcome"]["exit_code"] == 0
    assert warmth.jobs.living() == []


FALLBACKS = {
    # A tree of before: its front door takes the flag for one of nvbench's.
    "no --serve": (
        lambda text: text.replace('"--serve"', '"--no-such"'),
        "it ended with exit code 2",
    ),
    "dies at start": (
        lambda text: text.replace("        serve(root", "        import os; os.kill(os.getpid(), 9)"
                                  "\n        serve(root"),
        "signal 9 ended it",
    ),
    "soiled": (
        lambda text: text.replace("        serve(root", "        import threading; "
                                  "threading.Thread(target=threading.Event().wait, daemon=True)"
                                  ".start()\n        serve(root"),
        "it has 2 threads",
    ),
    "another language": (
        lambda text: text.replace("        serve(root", "        import os; "
                                  "os.write(int(sys.argv[2]), b'[]')\n        serve(root"),
        "signal 9 ended it",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("spoil", "why"), FALLBACKS.values(), ids=list(FALLBACKS))
def test_without_a_fit_worker_a_fresh_python_runs_the_job(
    warmth: Warm, spoil: Any, why: str
) -> None:
    door = warmth.folder / "benchmark" / DOOR
    text = door.read_text()
    door.write_text(spoil(text))
    assert door.read_text() != text
    # So that each start is seen.
    (warmth.folder / "env" / "env.sh").write_text(f"echo started >> {warmth.folder}/starts")
    warmth.tree = warmth.push()
    ran = warmth.run()
    line = f"mxfleet: not in a warm Python, but in a fresh one: {why}\n"
    assert ran.stderr.decode().endswith(f"{line}to stderr\n")
    assert ran.outcome["exit_code"] == 0 and b'"PASSED"' in ran.files["records.jsonl"]
    assert forks(warmth.tree) == []
    again = warmth.run()
    assert (again.outcome["exit_code"], again.stderr.decode()) == (0, f"{line}to stderr\n")
    assert (warmth.folder / "starts").read_text() == "started\n" * 3


@pytest.mark.parametrize(
    ("text", "message"),
    [("echo no; exit 3", "ended the shell"), ("echo no; false", "ended with status 1")],
)
def test_an_env_script_that_fails_is_told_once(warmth: Warm, text: str, message: str) -> None:
    (warmth.folder / "env" / "env.sh").write_text(text)
    warmth.tree = warmth.push()
    ran = warmth.run()
    assert ran.error is not None and message in ran.error.message
    assert ran.text == "no\n" and ran.stderr == b""


def test_wrong_usage_has_its_own_code(warmth: Warm) -> None:
    for _ in range(2):
        ran = warmth.run(flags=("--repeats", "none"))
        assert ran.outcome["exit_code"] == 2 and b"no positive number" in ran.stderr


def test_much_output_from_a_warm_job(warmth: Warm) -> None:
    do = "os.write(1, b'x' * (4 << 20)); os.write(2, b'y' * (4 << 20))"
    for _ in range(2):
        ran = warmth.run(do)
        assert ran.stdout.count(b"x") >= 4 << 20 and ran.stderr.count(b"y") == 4 << 20


def test_an_idle_worker_ends_after_a_while(
    monkeypatch: pytest.MonkeyPatch, jobs: Jobs, warmth: Warm
) -> None:
    monkeypatch.setattr(warm, "IDLE_SECONDS", 0.5)
    monkeypatch.setattr(warm, "TICK_SECONDS", 0.1)
    workers = warm.Workers()
    cwd = jobs.store / "trees" / warmth.tree / "benchmark"
    folder = jobs.store / "jobs" / "by-hand"
    folder.mkdir(parents=True)
    told = Told()
    job = workers.start(warmth.spec(name="x"), str(jobs.store), str(cwd), str(folder), told)
    assert job.wait(60.0) == 0
    workers.release(job, True)
    assert servers(warmth.tree)
    until(lambda: not forks(warmth.tree), "it is ended", 5.0)
    until(lambda: not list((jobs.store / "running").iterdir()), "its record too", 5.0)
    told.close()
    job.stdout.close()
    job.stderr.close()
    workers.close()


def test_a_warm_job_outlives_its_link(warmth: Warm, agents: Agents) -> None:
    spec = warmth.spec("for n in range(30): print('line', n, flush=True); time.sleep(0.1)", hold=20)
    request = warmth.session.request("run", **spec)
    first = b""
    while b"line 3" not in first:
        item = request.next(60)
        assert item is not None
        first += item if isinstance(item, bytes) else b""
    agents.cut(warmth.session)
    other = agents.start()
    asked = {"store": spec["store"], "job": spec["job"], "offset": len(first), "hold": 5.0}
    ran = receive(other, asked, op="attach")
    assert ran.outcome["exit_code"] == 0, ran
    assert "line 29\n" in ran.text and b'"PASSED"' in ran.files["records.jsonl"]
    until(lambda: not forks(warmth.tree), "the first agent goes, with its worker")
