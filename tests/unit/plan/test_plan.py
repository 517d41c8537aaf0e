"""A plan's jobs, and that the command it prints is the command that runs."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from agent_kit import Jobs, receive

from orchestrator.inventory.model import Host, Target, Timeouts
from orchestrator.plan.jobs import command_line, new_run_id, plan_run
from orchestrator.suites.mcoplib import SCRIPT, McoplibSuite
from orchestrator.suites.measuring import Measuring
from orchestrator.transport.agent.jobfolder import JOB_NAME
from orchestrator.transport.session import AgentSession

SUITE = McoplibSuite(Path("/nowhere"))
HOSTILE = "a b;$(reboot)'\"`id`\\ $HOME *\n\u4e2d!"
TREE = "0123456789abcdef" * 2


def target(**more: Any) -> Target:
    return Target("t", Host("t"), python=sys.executable, **more)


def test_every_operator_on_every_target() -> None:
    targets = [replace(target(), name=name) for name in ("h1:c", "h2")]
    plan = plan_run("r", targets, ["b", "a"], SUITE, TREE, Measuring())
    assert [(job.target.name, job.op) for job in plan.jobs] == [
        ("h1:c", "b"),
        ("h1:c", "a"),
        ("h2", "b"),
        ("h2", "a"),
    ]
    saved = json.loads(json.dumps(plan.as_dict()))
    assert [job["spec"] for job in saved["jobs"]] == [job.spec for job in plan.jobs]
    assert saved["tree"] == TREE


@pytest.mark.parametrize("op", ["op", "op/../x", "\u4e2d\u6587", "x" * 300, "a b", "a-b", ""])
def test_job_names(op: str) -> None:
    """Always a name that the agent takes, and never the same for two jobs."""
    run = new_run_id()
    names = ("h:c", "h-c", "h c", "\u4e2d", "y" * 300, "-", "")
    targets = [replace(target(), name=name) for name in names]
    jobs = plan_run(run, targets, [op, f"{op}2"], SUITE, TREE, Measuring()).jobs
    assert all(JOB_NAME.match(job.job) for job in jobs)
    assert len({job.job for job in jobs}) == len(jobs)
    assert all(job.spec["job"] == job.job for job in jobs)


def test_run_names_sort_and_differ() -> None:
    names = [new_run_id() for _ in range(50)]
    assert len(set(names)) == 50
    assert [name[:15] for name in names] == sorted(name[:15] for name in names)


@pytest.mark.parametrize(
    ("more", "samples", "expected"),
    [
        ({}, None, {"tree": TREE, "subfolder": "benchmark", "timeout": 3600.0, "silence": None}),
        ({"timeouts": Timeouts(silence=5.0, job=None)}, None, {"timeout": None, "silence": 5.0}),
        ({"store": "/s"}, 7, {"store": "/s"}),
        (
            {"workdir": "/w"},
            None,
            {"workdir": "/w", "script": SCRIPT, "copied": ["config", "runners"]},
        ),
        ({"gpu_specs": {"C600": {"bandwidth": 2e12}}}, None, {"tree": TREE}),
        ({"library": ("vllm",)}, None, {"tree": TREE}),
        ({"library": ("vllm",), "workdir": "/w"}, None, {"workdir": "/w"}),
        ({"workdir": "/w"}, 7, {"overlay": {"path": "config/op.json", "values": {"samples": 7}}}),
    ],
)
def test_specs(more: dict[str, Any], samples: int | None, expected: dict[str, Any]) -> None:
    spec = plan_run("r", [target(**more)], ["op"], SUITE, TREE, Measuring(samples)).jobs[0].spec
    assert {key: spec[key] for key in expected} == expected
    established = "workdir" in more
    assert ("tree" in spec) is not established
    assert ("--records" in spec["argv"]) is not established
    assert ("--specs" in spec["argv"]) is ("gpu_specs" in more)
    assert ("--library" in spec["argv"]) is ("library" in more and not established)
    assert ("--set" in spec["argv"]) is (samples is not None and not established)
    assert ("overlay" in spec) is (samples is not None and established)
    assert spec["argv"][0] == "-u"


SHOW = """
import json, os, sys
print(json.dumps({"argv": sys.argv[1:], "cwd": os.getcwd(), "env": dict(os.environ)}))
"""


@pytest.mark.parametrize("with_script", [False, True])
@pytest.mark.parametrize("value", [HOSTILE, "plain"])
def test_what_is_printed_is_what_runs(
    session: AgentSession, jobs: Jobs, with_script: bool, value: str
) -> None:
    """Typed into a shell, the line of ``--dry-run`` does what the agent does."""
    (jobs.workdir / SCRIPT).write_text(SHOW)
    script = jobs.env_script("export FROM_SCRIPT=1 V=script\n") if with_script else None
    there = target(
        workdir=str(jobs.workdir),
        store=str(jobs.store),
        env={"V": value, "W": "w"},
        env_script=script,
        path=("/opt/a b/bin", "/opt/$c"),
        ld_library_path=("/opt/l'ib",),
    )
    job = plan_run("r", [there], ["an op"], SUITE, TREE, Measuring()).jobs[0]
    ran = receive(session, job.spec)
    assert ran.error is None
    agent = json.loads(ran.text)
    line = command_line(job).replace("<store>", str(jobs.store))
    typed = subprocess.run(
        ["bash", "--norc", "-c", line],
        capture_output=True,
        text=True,
        check=True,
    )
    shell = json.loads(typed.stdout)
    assert (agent["argv"], agent["cwd"]) == (shell["argv"], shell["cwd"])
    ours = {"MXFLEET_JOB", "MXFLEET_JOB_COOKIE", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE"}
    shells = {"_", "SHLVL", "OLDPWD", "PWD", "LC_CTYPE", "PYTEST_CURRENT_TEST"}
    for name in (agent["env"].keys() | shell["env"].keys()) - ours - shells:
        assert agent["env"].get(name) == shell["env"].get(name), name
    assert agent["env"]["V"] == value


def test_a_private_copy_is_mentioned() -> None:
    job = plan_run("r", [target(workdir="/w")], ["op"], SUITE, TREE, Measuring(samples=7)).jobs[0]
    assert command_line(job).endswith("# in a private copy with config/op.json: {'samples': 7}")
