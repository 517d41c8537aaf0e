"""What an agent says of its target; what could not be learned is a sentence each."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from agent_kit import SPAWN, Jobs

from orchestrator.transport.session import AgentSession


def ask(session: AgentSession, jobs: Jobs, **more: Any) -> dict[str, Any]:
    spec = {"store": str(jobs.store), "python": sys.executable, "env": {}, "script": "script.py"}
    return session.call("facts", **{**spec, **more})


def test_what_is_there(session: AgentSession, jobs: Jobs) -> None:
    facts = ask(session, jobs)
    assert facts["python"]["version"] == "{}.{}.{}".format(*sys.version_info[:3])
    assert facts["python"]["executable"] == sys.executable
    assert facts["store"]["path"] == str(jobs.store)
    assert 0 < facts["store"]["disk"]["free"] <= facts["store"]["disk"]["total"]
    assert abs(facts["clock"] - time.time()) < 60
    assert facts["host"] == os.uname().nodename


def test_the_env_script_counts(session: AgentSession, jobs: Jobs) -> None:
    """It is asked the way a job would run: here it brings the python."""
    folder = jobs.folder / "bin"
    folder.mkdir()
    (folder / "its-python").symlink_to(sys.executable)
    script = jobs.env_script(f"PATH=$PATH:{folder}\necho chatter\n")
    facts = ask(session, jobs, python="its-python", workdir=str(jobs.workdir), env_script=script)
    assert facts["python"]["version"]
    assert facts["workdir"]["established"] is False
    assert facts["workdir"]["writable"] is True


@pytest.mark.parametrize(
    ("more", "script", "problem"),
    [
        ({"python": "python-of-nobody"}, "", "'python-of-nobody' was not found"),
        ({"workdir": "/nowhere"}, "", "the workdir /nowhere does not exist"),
        ({}, "false\n", "ended with status 1"),
        ({}, "exit 0\n", "ended the shell"),
        ({"env_script": "../nowhere.sh"}, "", "does not exist here"),
        ({"python": "/bin/false"}, "", "/bin/false failed: no output"),
        ({"python": "/bin/echo"}, "", "/bin/echo failed"),
    ],
)
def test_what_is_not(
    session: AgentSession, jobs: Jobs, more: dict[str, Any], script: str, problem: str
) -> None:
    args = {"workdir": str(jobs.workdir), "env_script": jobs.env_script(script), **more}
    facts = ask(session, jobs, **args)
    assert any(problem in told for told in facts["problems"])
    assert "\n" not in "".join(facts["problems"])
    assert facts["store"]["disk"]["free"]  # the rest is told all the same


def test_a_daemon_of_the_env_script_holds_nothing_up(
    session: AgentSession, jobs: Jobs, tmp_path: Path
) -> None:
    code = tmp_path / "daemon.py"
    code.write_text(f"MARK = {jobs.mark!r}\n{SPAWN}\nsleeper(start_new_session=True)\n")
    script = jobs.env_script(f"{sys.executable} {code}\n")
    facts = ask(session, jobs, workdir=str(jobs.workdir), env_script=script)
    assert facts["python"]["version"]
    assert jobs.living() == []


def test_several_at_once(session: AgentSession, jobs: Jobs) -> None:
    """They end their own processes, not each other's."""
    spec = {"store": str(jobs.store), "python": sys.executable, "env": {}}
    requests = [session.request("facts", **spec) for _ in range(4)]
    assert all(request.result()["python"]["version"] for request in requests)


@pytest.mark.parametrize(
    ("tool", "found"),
    [
        (None, None),
        ("exit 1", None),
        ("sleep 60", None),
        ("", []),
        (
            "echo 'GPU-1, 77, /opt/a, b, 512 MiB'; echo; echo nonsense",
            [{"gpu": "GPU-1", "pid": "77", "name": "/opt/a, b", "memory": "512 MiB"}],
        ),
        (
            "printf 'GPU-1, 8, \\377x, 1 MiB\\n'",
            [{"gpu": "GPU-1", "pid": "8", "name": "\ufffdx", "memory": "1 MiB"}],
        ),
    ],
)
def test_who_computes_on_the_gpus_as_nvidia_smi_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tool: str | None, found: Any
) -> None:
    from orchestrator.transport.agent import facts

    if tool is not None:
        program = tmp_path / "nvidia-smi"
        program.write_text(f"#!/bin/sh\n{tool}\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(facts, "SMI_SECONDS", 1.0)
    assert facts._gpu_processes() == found
