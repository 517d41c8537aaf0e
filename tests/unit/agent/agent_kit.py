"""Real agents for tests: sessions over local pipes, jobs with their output, processes looked up."""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orchestrator.errors import MxfleetError
from orchestrator.transport.agent.spool import SpoolParser
from orchestrator.transport.base import Connection
from orchestrator.transport.local import LocalConnection
from orchestrator.transport.session import AgentSession

SCRIPT = "script.py"


class Agents:
    """Starts agents and closes them at the end of a test."""

    def __init__(self) -> None:
        self._sessions: list[AgentSession] = []

    def start(
        self,
        *,
        python: str = sys.executable,
        lease: float = 15.0,
        connection: Connection | None = None,
        in_container: bool = False,
        start_timeout: float = 20.0,
    ) -> AgentSession:
        session = AgentSession.start(
            connection or LocalConnection("here"),
            name="here",
            pythons=[python],
            in_container=in_container,
            dead_link=lease,
            start_timeout=start_timeout,
        )
        self._sessions.append(session)
        return session

    @staticmethod
    def cut(session: AgentSession) -> None:
        """End the pipe as a lost link does: without a goodbye."""
        session._pipe.close_write()

    def close(self) -> None:
        for session in self._sessions:
            session.close()


@dataclass
class Ran:
    """What a job brought."""

    outcome: dict[str, Any] = field(default_factory=dict)
    stdout: bytes = b""
    stderr: bytes = b""
    files: dict[str, bytes] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    error: MxfleetError | None = None

    @property
    def text(self) -> str:
        return self.stdout.decode()


class Jobs:
    """Runs scripts in an established folder and in trees, with one store."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = folder / "store"
        self.workdir = folder / "checkout" / "benchmark"
        self.workdir.mkdir(parents=True)
        self.mark = f"mark-{uuid.uuid4().hex}"

    def spec(self, source: str, *, name: str | None = None, **more: Any) -> dict[str, Any]:
        (self.workdir / SCRIPT).write_text(f"MARK = {self.mark!r}\n{source}", encoding="utf-8")
        spec: dict[str, Any] = {
            "job": name or f"job-{uuid.uuid4().hex[:8]}",
            "store": str(self.store),
            "python": sys.executable,
            "argv": ["-u", SCRIPT],
            "env": {},
            "env_script": None,
            "path": [],
            "ld_library_path": [],
            "timeout": 60.0,
            "silence": None,
            "grace": 1.0,
            "workdir": str(self.workdir),
            "script": SCRIPT,
        }
        return {**spec, **more}

    def env_script(self, text: str, name: str = "env.sh") -> str:
        path = self.workdir.parent / name
        path.write_text(text, encoding="utf-8")
        return f"../{name}"

    def run(self, session: AgentSession, source: str, **more: Any) -> Ran:
        return receive(session, self.spec(source, **more))

    def status(self, session: AgentSession, job: str) -> dict[str, Any]:
        return session.call("job", store=str(self.store), job=job)

    def living(self) -> list[int]:
        """Processes that carry the mark in their command line, whatever they did otherwise."""
        return carrying(self.mark)


def receive(
    session: AgentSession,
    spec: dict[str, Any],
    op: str = "run",
    on_output: Callable[[Ran], None] = lambda ran: None,
) -> Ran:
    """Run a job to its end and take everything in."""
    ran = Ran()
    parser = SpoolParser()
    name: str | None = None
    try:
        for item in session.request(op, **spec):
            if isinstance(item, bytes) and name is not None:
                ran.files[name] += item
            elif isinstance(item, bytes):
                for stream, piece in parser.feed(item):
                    if stream == 1:
                        ran.stdout += piece
                    else:
                        ran.stderr += piece
                on_output(ran)
            elif item["type"] == "file":
                name = str(item["name"])
                ran.files[name] = b""
            elif item["type"] == "left_out":
                ran.left_out[item["name"]] = item["why"]
            elif item["type"] == "result":
                ran.outcome = item["outcome"] if op in ("run", "attach") else item
    except MxfleetError as error:
        ran.error = error
    return ran


def carrying(mark: str) -> list[int]:
    found = []
    for name in (path.name for path in Path("/proc").iterdir()):
        if name.isdigit():
            try:
                words = Path(f"/proc/{name}/cmdline").read_bytes()
                state = Path(f"/proc/{name}/stat").read_bytes().rpartition(b")")[2].split()[0]
            except OSError:
                continue
            if mark.encode() in words and state != b"Z":
                found.append(int(name))
    return found


def until(condition: Callable[[], Any], what: str, limit: float = 20.0) -> Any:
    """Wait until ``condition`` holds, and return what it gave."""
    deadline = time.monotonic() + limit
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(f"{what}: not within {limit:g} s")


# What a job's script does to start a process that carries the mark (its first argument).
SLEEPER = "import time; time.sleep(600)"
SPAWN = f"""
import os, signal, subprocess, sys, time
def sleeper(**options):
    return subprocess.Popen([sys.executable, "-c", {SLEEPER!r}, MARK], **options)
def silent():
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
"""
