"""Warm workers in the containers of the loopback fleet: jobs of a real tree, forked by an agent's.

Whatever is done to a job, its worker or its agent: in the container nothing is left that runs in
the store, seen by root there, and on the host nothing that carries the job's cookie.
"""

from __future__ import annotations

import re
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import LinkLostError, MxfleetError
from orchestrator.push.tree import build
from orchestrator.transport.agent.proc import carriers
from orchestrator.transport.agent.spool import SpoolParser
from orchestrator.transport.connect import connect
from orchestrator.transport.container import ContainerConnection
from orchestrator.transport.endpoint import Endpoint
from orchestrator.transport.session import AgentSession, Request

from .conftest import LoopbackFleet
from .workbench import Bench, wait_until, workbench

PROBE = Path(__file__).with_name("warm")
DOOR = "mcoplib_mxbenchmark_ops.py"
# Processes that run in the store, as root sees them: pid, parent, what they run.
IN_STORE = """
import os, sys
for name in filter(str.isdigit, os.listdir("/proc")):
    try:
        if not os.readlink("/proc/%s/cwd" % name).startswith(sys.argv[1] + "/"):
            continue
        words = open("/proc/%s/cmdline" % name).read().split("\\0")
        stat = open("/proc/%s/stat" % name).read().rpartition(")")[2].split()
    except OSError:
        continue
    print(name, stat[1], "server" if "--serve" in words else words[0] or stat[0])
"""


@dataclass
class Ran:
    """What came of a job."""

    outcome: dict[str, Any] = field(default_factory=dict)
    text: str = ""
    errors: str = ""
    records: bytes = b""

    @property
    def ancestors(self) -> list[int]:
        """The case's process and its parents, as the container numbers them."""
        found = re.search(r"^ANCESTORS (.*)$", self.text, re.MULTILINE)
        assert found, self
        return [int(word) for word in found[1].split()]


class Place:
    """An agent in a host's container, and jobs of the pushed tree."""

    def __init__(self, bench: Bench, host: str, login: str) -> None:
        self.bench = bench
        self.host = host
        endpoint = Endpoint(login, ssh_config=bench.fleet.ssh_config)
        self._stack = ExitStack()
        self._connection = connect(endpoint)
        self._stack.callback(self._connection.close)
        self.session = self.agent()

    def agent(self) -> AgentSession:
        inside = ContainerConnection(self._connection, self.bench.fleet.container)
        session = AgentSession.start(
            inside, name=self.host, pythons=[self.bench.fleet.python], in_container=True
        )
        self._stack.callback(session.close)
        return session

    def close(self) -> None:
        self._stack.close()

    def spec(self, do: str = "", **more: Any) -> dict[str, Any]:
        argv = ["-u", DOOR, "--op", "warm_probe", "--repeats", "1", "--set", f"do={do}"]
        argv += ["--csv", "@JOB@/result.csv", "--generate", "--records", "@JOB@/records.jsonl"]
        spec = {
            "job": f"{Path(self.bench.store).name}.{self.host}.{secrets.token_hex(4)}",
            "store": self.bench.store,
            "python": self.bench.fleet.python,
            "argv": argv,
            "env": {},
            "env_script": "../env/env.sh",
            "path": [],
            "ld_library_path": [],
            "timeout": 60.0,
            "silence": None,
            "grace": 2.0,
            "tree": build(self.bench.folder).name,
            "subfolder": "benchmark",
            "warm": True,
        }
        return {**spec, **more}

    def run(self, do: str = "", session: AgentSession | None = None, **more: Any) -> Ran:
        with (session or self.session).request("run", **self.spec(do, **more)) as request:
            return received(request)

    def start(self, do: str) -> str:
        """Start a job that says ``up``; its name."""
        spec = self.spec(f"{do}print('up', flush=True); hang()")
        request = self.session.request("run", **spec)
        parser, seen = SpoolParser(), b""
        while b"up\n" not in seen:
            item = request.next(60)
            assert item is not None
            if isinstance(item, bytes):
                seen += b"".join(piece for _, piece in parser.feed(item))
        return str(spec["job"])

    def processes(self) -> dict[int, tuple[int, str]]:
        """What runs in the store: pid to parent and kind, a warm server being a ``server``."""
        words = (self.bench.fleet.python, "-c", IN_STORE, self.bench.store)
        lines = self.bench.fleet.in_container(self.host, *words).stdout.decode().splitlines()
        rows = [line.split(" ", 2) for line in lines]
        return {int(pid): (int(parent), kind) for pid, parent, kind in rows}

    def servers(self) -> list[int]:
        found = self.processes()
        return [pid for pid, (parent, _) in found.items() if parent not in found]

    def kill(self, *pids: int) -> None:
        self.bench.fleet.in_container(self.host, "kill", "-9", *map(str, pids))


def received(request: Request) -> Ran:
    ran, parser, file = Ran(), SpoolParser(), ""
    for item in request:
        if isinstance(item, bytes):
            if file == "records.jsonl":
                ran.records += item
            elif not file:
                for stream, piece in parser.feed(item):
                    if stream == 1:
                        ran.text += piece.decode()
                    else:
                        ran.errors += piece.decode()
        elif item["type"] == "file":
            file = str(item["name"])
        elif item["type"] == "result":
            ran.outcome = item["outcome"]
    return ran


@pytest.fixture(scope="module")
def pushed(fleet: LoopbackFleet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """A working folder as `mxfleet init` lays it out, with the probe, pushed to both hosts."""
    folder = tmp_path_factory.mktemp("warm")
    with workbench(fleet, folder, suite=None) as bench:
        bench.mxfleet("init")
        bench.inventory(python=fleet.python)
        shutil.copytree(PROBE, folder / "benchmark", dirs_exist_ok=True)
        door = folder / "benchmark" / DOOR
        start = "SUPPORTED_OPERATORS = ["
        door.write_text(door.read_text().replace(start, f'{start}\n    "warm_probe",'))
        bench.mxfleet("push")
        yield bench


@pytest.fixture(params=[("loop1", "loop1"), ("loop2", "loop2-user")], ids=["root", "user"])
def place(pushed: Bench, request: pytest.FixtureRequest) -> Iterator[Place]:
    made = Place(pushed, *request.param)
    yield made
    made.close()
    assert wait_until(lambda: not made.processes(), 10), made.processes()


def test_the_second_job_imports_nothing(place: Place) -> None:
    first, second = place.run(), place.run()
    for ran in (first, second):
        assert ran.outcome["exit_code"] == 0 and b'"PASSED"' in ran.records, ran
    assert place.servers() == list(place.processes())
    (server,) = place.servers()
    assert server in first.ancestors and server in second.ancestors
    assert second.outcome["strays"] == 0 and second.errors == "to stderr\n"


@pytest.mark.parametrize(
    ("do", "ended"),
    [
        ("os.kill(os.getpid(), 11)", "exited"),
        ("hang()", "timeout"),
        ("sleeper('x', start_new_session=True, env={}); hang()", "timeout"),
        ("if fork():\n    if fork(): sleeper('x', env={})\n    os._exit(0)", "exited"),
    ],
    ids=["segfault", "hangs", "hangs beside a daemon", "daemon"],
)
def test_a_bad_operator_ends_whole(place: Place, do: str, ended: str) -> None:
    place.run()
    ran = place.run(do, timeout=5.0 if ended == "timeout" else 60.0)
    assert (ran.outcome["ended"], ran.outcome["unkillable"]) == (ended, [])
    assert list(place.processes()) == place.servers()
    if ended == "timeout":
        assert not place.processes()
    assert place.run().outcome["exit_code"] == 0


def test_the_host_sees_whose_processes_they_are(place: Place) -> None:
    """Who proves a job dead from the host looks for its cookie, as for a cold job's."""
    place.run()
    job = place.start("sleeper('x', start_new_session=True); ")
    assert len(carriers(job)) >= 3  # front door, case, sleeper; the server is none of them
    assert place.session.call("stop", job=job)["known"]
    assert wait_until(lambda: not carriers(job), 10)


@pytest.mark.parametrize("victim", ["agent", "worker"])
def test_a_kill_leaves_nothing(place: Place, victim: str) -> None:
    place.run()
    (server,) = place.servers()
    agent = place.processes()[server][0]
    job = place.start("sleeper('x', start_new_session=True, env={}); ")
    began = time.monotonic()
    place.kill(agent if victim == "agent" else server)
    assert wait_until(lambda: not place.processes() and not carriers(job), 10)
    assert time.monotonic() - began < 10
    if victim == "agent":
        with pytest.raises(LinkLostError):
            place.run()
        place.session = place.agent()
    assert place.run().outcome["exit_code"] == 0


def test_agent_and_guardian_killed_at_once(place: Place) -> None:
    place.run()
    (server,) = place.servers()
    agent = place.processes()[server][0]
    said = place.bench.fleet.in_container(place.host, "cat", f"/proc/{agent}/stat").stdout
    guardian = int(said.rpartition(b")")[2].split()[1])
    job = place.start("sleeper('x', start_new_session=True); ")
    place.bench.fleet.in_container(place.host, "kill", "-STOP", str(guardian))
    place.kill(agent, guardian)
    place.session = place.agent()
    assert place.run().outcome["exit_code"] == 0
    assert not carriers(job) and list(place.processes()) == place.servers()
    status = place.session.call("job", store=place.bench.store, job=job)
    assert status["outcome"]["ended"] == "lost"


def test_another_tree_has_another_worker(place: Place) -> None:
    place.run()
    before = place.servers()
    config = place.bench.folder / "benchmark" / "config" / "warm_probe.json"
    text = config.read_text()
    config.write_text(text.replace("}", f', "for": "{place.host}"}}'))
    try:
        with pytest.raises(MxfleetError):
            place.run()
        place.bench.mxfleet("push")
        assert place.run().outcome["exit_code"] == 0
        after = place.servers()
        assert len(after) == 1 and after != before
    finally:
        config.write_text(text)
