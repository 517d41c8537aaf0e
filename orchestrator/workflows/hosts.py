"""``mxfleet hosts``: the targets of the inventory and, with a check, what they are."""

from __future__ import annotations

import posixpath
import time
from collections.abc import Collection, Mapping
from typing import Any

from orchestrator.errors import ExitCode, UnusableError
from orchestrator.events import HostLine, Summary
from orchestrator.inventory.model import Target
from orchestrator.results.model_name import model_name
from orchestrator.suites import mcoplib
from orchestrator.transport.docker_api import look, who_holds
from orchestrator.workflows.activity import Activity
from orchestrator.workflows.context import Context
from orchestrator.workflows.fleet import Fleet, for_each_host
from orchestrator.workflows.push import Failures, status_of

CLOCK_SKEW = 2.0  # seconds from which a target's clock is worth a remark


def hosts(context: Context, *, check: bool) -> ExitCode:
    """List the targets; with ``check`` connect to each and say what it is or why it is not."""
    began = time.monotonic()
    failures = Failures(lambda event: None)
    facts: dict[str, dict[str, Any]] = {}
    if check:
        pushed = {entry.path for entry in context.tree().entries}
        with Activity(context.sink) as activity, Fleet() as fleet:

            def work(target: Target) -> None:
                with activity.doing("checking", target.name):
                    facts[target.name] = check_target(fleet, target)
                    facts[target.name]["problems"] += mismatches(target, facts[target.name], pushed)

            for_each_host(activity, context.targets, work, failures)
    for target in context.targets:
        error = failures.errors.get(target.name)
        found = facts.get(target.name)
        problems = (found or {}).get("problems") or []
        if problems and error is None:
            error = failures.errors[target.name] = UnusableError("; ".join(problems))
        context.sink(
            HostLine(
                target=target.name,
                host=target.host.name,
                container=target.container,
                workdir=target.workdir,
                gpus=target.gpus,
                transport=target.host.transport,
                status=None if not check else status_of(error) if error else "OK",
                message=str(error) if error else None,
                facts=found,
            )
        )
    code = failures.code()
    context.sink(
        Summary(
            command="hosts",
            exit_code=int(code),
            targets=failures.statuses(context.targets) if check else {},
            seconds=time.monotonic() - began,
            message=f"{len(context.targets)} target{'s' * (len(context.targets) != 1)}",
        )
    )
    return code


def mismatches(target: Target, facts: Mapping[str, Any], pushed: Collection[str]) -> list[str]:
    """What of the inventory's entry does not go with the target or with the tree to push."""
    found = []
    if target.env_script is not None and not target.established:
        path = posixpath.normpath(posixpath.join(mcoplib.SUBFOLDER, target.env_script))
        if not path.startswith("/") and path not in pushed:
            found.append(f"the env script {path} is not in the working folder, so not pushed")
    libraries = (facts.get("python") or {}).get("libraries")
    declared = {name.rpartition("=")[2] for name in target.library}
    if libraries is not None:
        absent = sorted(name for name in declared if "/" not in name and name not in libraries)
        if absent:
            found.append(f"the library {', '.join(absent)} is declared and not installed")
    devices = facts.get("devices")
    if devices is None:
        return found
    models = {model_name(device["name"]) for device in devices}
    if target.model is not None and model_name(target.model) not in models:
        there = ", ".join(sorted(models)) or "no GPU"
        found.append(f"expected model {target.model}, found {there}")
    known = {str(d["index"]) for d in devices} | {str(d["uuid"]) for d in devices}
    missing = [gpu for gpu in target.gpus if gpu not in known and ":" not in gpu]
    if missing:
        found.append(f"there is no GPU {', '.join(missing)}")
    return found


def check_target(fleet: Fleet, target: Target) -> dict[str, Any]:
    """The facts of one target. Raises what makes it unreachable or unusable."""
    container: dict[str, Any] | None = None
    connection = fleet.connection(target)
    if target.container is not None:
        view = look(connection, target.container, target.docker_command)
        container = {"image": view.image, "id": view.id[:12], "status": view.status}
        if target.workdir is not None:
            mount = view.holds(target.workdir)
            on_host = mount.on_host(target.workdir) if mount is not None else None
            container["workdir_on_host"] = on_host
    session = fleet.session(target)
    asked = time.time()
    facts = session.call(
        "facts",
        store=target.store,
        python=target.python,
        workdir=target.workdir,
        script=mcoplib.SCRIPT,
        env=dict(target.env),
        env_script=target.env_script,
        path=list(target.path),
        ld_library_path=list(target.ld_library_path),
    )
    facts.pop("type", None)
    facts["container"] = container
    if target.workdir is not None and "workdir" not in facts and target.container is not None:
        others = who_holds(connection, target.workdir, target.docker_command)
        if others:
            # The agent names the missing workdir first.
            facts["problems"][0] += f", but in {', '.join(others)}"
    skew = facts["clock"] - asked
    if abs(skew) > CLOCK_SKEW:
        facts["clock_skew"] = skew
    return facts
