"""Which job where: a run's jobs as data, the same for ``--dry-run`` and the real thing.

A job is one operator on one target. Its ``spec`` is what the agent gets: words, not a shell line.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from orchestrator.inventory.model import Target
from orchestrator.suites import mcoplib
from orchestrator.suites.mcoplib import McoplibSuite
from orchestrator.suites.measuring import Measuring
from orchestrator.suites.profilers import FOLDER


@dataclass(frozen=True)
class PlannedJob:
    """One operator on one target; ``spec`` is the agent's ``run`` request."""

    target: Target
    op: str
    job: str
    spec: dict[str, Any]
    attempt: int = 1


@dataclass(frozen=True)
class Plan:
    """All jobs of a run. ``tree`` names the tree that targets without a checkout run.

    ``commit`` is the one that the tree is of, None when unknown.
    """

    run: str
    tree: str
    jobs: tuple[PlannedJob, ...]
    measuring: Measuring = field(default_factory=Measuring)
    commit: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """For ``plan.json``: everything that is needed to find the jobs again."""
        jobs = [
            {
                "target": job.target.name,
                "op": job.op,
                "job": job.job,
                "attempt": job.attempt,
                "command": command_line(job),
                "spec": job.spec,
            }
            for job in self.jobs
        ]
        return {
            "run": self.run,
            "tree": self.tree,
            "commit": self.commit,
            "measuring": self.measuring.as_dict(),
            "jobs": jobs,
        }


def new_run_id() -> str:
    """A name for a run that sorts by time and that nobody else has."""
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}"


def next_attempt(job: PlannedJob) -> PlannedJob:
    """The job once more, under a name of its own: the former attempt's is never used again."""
    attempt = job.attempt + 1
    name = f"{job.job.removesuffix(f'.a{job.attempt}')}.a{attempt}"
    return replace(job, job=name, attempt=attempt, spec={**job.spec, "job": name})


def plan_run(
    run: str,
    targets: Sequence[Target],
    ops: Sequence[str],
    suite: McoplibSuite,
    tree: str,
    measuring: Measuring,
    *,
    detached: bool = False,
) -> Plan:
    """Plan every operator on every target, operators in the order given."""
    jobs = [
        plan_job(run, target, op, suite, tree, measuring, detached=detached)
        for target in targets
        for op in ops
    ]
    return Plan(run, tree, tuple(jobs), measuring)


def plan_job(
    run: str,
    target: Target,
    op: str,
    suite: McoplibSuite,
    tree: str,
    measuring: Measuring,
    *,
    detached: bool = False,
) -> PlannedJob:
    """One operator on one target; ``detached``: it outlives its link for long."""
    spec = _spec(run, target, op, suite, tree, measuring)
    return with_limits(PlannedJob(target, op, spec["job"], spec), detached=detached)


def with_limits(job: PlannedJob, *, detached: bool) -> PlannedJob:
    """The job with its target's limits as they are now; ``detached`` as for ``plan_job``."""
    timeouts = job.target.timeouts
    hold = timeouts.detached if detached else timeouts.reattach
    limits = {"timeout": timeouts.job, "silence": timeouts.silence, "hold": hold}
    return replace(job, spec={**job.spec, **limits})


def command_line(job: PlannedJob) -> str:
    """The command as a person would type it in the target, for ``--dry-run`` and logs."""
    spec = job.spec
    steps = [f"cd {_where(spec)}", *environment_steps(spec)]
    variables = [shlex.quote(f"{name}={value}") for name, value in sorted(spec["env"].items())]
    words = [
        shlex.quote(word.replace(mcoplib.JOB, f"<store>/jobs/{job.job}"))
        for word in command_words(spec)
    ]
    run = " ".join([*(["env", *variables] if variables else []), *words])
    note = ""
    if spec.get("overlay"):
        note = f"  # in a private copy with {spec['overlay']['path']}: {spec['overlay']['values']}"
    return " && ".join([*steps, run]) + note


def command_words(spec: dict[str, Any]) -> list[str]:
    """What ``spec`` runs: a profiler if there is one, python, the script and its arguments."""
    return [*spec.get("profiler", ()), spec["python"], *spec["argv"]]


def environment_steps(spec: dict[str, Any]) -> list[str]:
    """What bash does of ``spec`` before its command: the env script, then the search paths."""
    steps = []
    if spec["env_script"]:
        steps.append(f"source {shlex.quote(spec['env_script'])}")
    if spec["path"]:
        steps.append(f'export PATH="$PATH":{shlex.quote(":".join(spec["path"]))}')
    if spec["ld_library_path"]:
        added = shlex.quote(":".join(spec["ld_library_path"]))
        steps.append(f'export LD_LIBRARY_PATH="${{LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}}"{added}')
    return steps


def _where(spec: dict[str, Any]) -> str:
    if "workdir" in spec:
        return shlex.quote(spec["workdir"])
    return shlex.quote(f"<store>/trees/{spec['tree']}/{spec['subfolder']}")


def _job_name(run: str, target: Target, op: str) -> str:
    # Two targets may share a store; a name with other characters keeps its difference in the hash.
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", target.name)[:40].strip("-")
    digest = hashlib.sha256(f"{target.name}\0{op}".encode()).hexdigest()[:6]
    return f"{run}.{plain}.{re.sub(r'[^A-Za-z0-9_-]+', '-', op)[:80]}.{digest}.a1"


def _spec(
    run: str, target: Target, op: str, suite: McoplibSuite, tree: str, measuring: Measuring
) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "job": _job_name(run, target, op),
        "store": target.store,
        "python": target.python,
        "argv": [
            "-u",
            *suite.command(
                op,
                measuring=measuring,
                established=target.established,
                gpu_specs=target.gpu_specs,
                library=target.library,
            ),
        ],
        "env": dict(target.env),
        "env_script": target.env_script,
        "path": list(target.path),
        "ld_library_path": list(target.ld_library_path),
    }
    if measuring.profiler:
        spec["profiler"] = [word.replace(FOLDER, mcoplib.JOB) for word in measuring.profiler]
    if target.workdir is None:
        return {**spec, "tree": tree, "subfolder": mcoplib.SUBFOLDER}
    spec.update(workdir=target.workdir, script=mcoplib.SCRIPT, copied=list(mcoplib.SYNC_FOLDERS))
    if measuring.samples is not None:
        values = {"samples": measuring.samples}
        spec["overlay"] = {"path": f"config/{op}.json", "values": values}
    return spec
