"""``mxfleet doctor``: why does a target not work, and what to do about it, step by step."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from orchestrator.errors import ExitCode, UnusableError
from orchestrator.events import Check, Summary
from orchestrator.inventory.model import Target
from orchestrator.show.numbers import size
from orchestrator.workflows.activity import Activity
from orchestrator.workflows.context import Context
from orchestrator.workflows.fleet import Fleet, for_each_host
from orchestrator.workflows.hosts import check_target, mismatches
from orchestrator.workflows.locking import device_locks
from orchestrator.workflows.push import Failures

LITTLE_DISK = 2 << 30  # bytes free in the store from which on it is worth a remark
FEW_INODES = 20_000


def doctor(context: Context) -> ExitCode:
    """Examine the context's targets and tell each check; the exit code of what does not work."""
    began = time.monotonic()
    failures = Failures(lambda event: None)
    pushed = {entry.path for entry in context.tree().entries}
    found: dict[str, list[Check]] = {target.name: [] for target in context.targets}
    with Activity(context.sink) as activity, Fleet() as fleet:

        def work(target: Target) -> None:
            with activity.doing("examining", target.name):
                for check in examine(fleet, target, pushed):
                    found[target.name].append(check)

        for_each_host(activity, context.targets, work, failures)
    for target in context.targets:
        error = failures.errors.get(target.name)
        checks = found[target.name]
        if error is not None:
            # The steps up to here went well; this is the one that did not.
            checks.append(Check(target.name, _step(checks), "FAILED", error.message, error.hint))
        failed = [check for check in checks if check.status == "FAILED"]
        if failed and error is None:
            failures.errors[target.name] = UnusableError(failed[0].message, hint=failed[0].hint)
        for check in checks:
            context.sink(check)
    code = failures.code()
    counts = Counter(check.status for checks in found.values() for check in checks)
    context.sink(
        Summary(
            command="doctor",
            exit_code=int(code),
            counts=dict(counts),
            targets=failures.statuses(context.targets),
            seconds=time.monotonic() - began,
        )
    )
    return code


# The steps in which an error ends the examination, in their order.
_STEPS = ("connection", "target")


def _step(checks: list[Check]) -> str:
    return _STEPS[min(len(checks), len(_STEPS) - 1)]


def examine(fleet: Fleet, target: Target, pushed: Collection[str]) -> Iterator[Check]:
    """Check after check of ``target``; raises what ends the examination.

    ``pushed`` are the paths of the tree that a push would bring.
    """

    def check(name: str, status: str, message: str, hint: str | None = None) -> Check:
        return Check(target.name, name, status, message, hint)

    fleet.connection(target)
    host = target.host
    how = "this machine" if host.transport == "local" else f"{host.transport} to {host.name}"
    yield check("connection", "OK", f"{how}: name, port, host key and login are in order")
    facts = check_target(fleet, target)
    container = facts.get("container")
    if container is not None:
        text = f"{target.container} is {container['status']}, image {container['image']}"
        yield check("container", "OK", text)
    user, system = facts["user"], facts["system"]
    yield check("target", "OK", f"user {user}, python {facts['agent_python']}, {system}")
    yield from (Check(target.name, *told) for told in conditions(target, facts, pushed))
    for status, message, hint in device_locks(fleet, target, fleet.session(target)):
        yield check("lock", status, message, hint)


Told = tuple[str, str, str, "str | None"]


def conditions(target: Target, facts: Mapping[str, Any], pushed: Collection[str]) -> Iterator[Told]:
    """What the facts of a target that answers mean for its jobs: name, status, message, hint."""
    for problem in [*facts["problems"], *mismatches(target, facts, pushed)]:
        message, _, hint = problem.partition("; ")
        yield "setup", "FAILED", message, hint or None
    yield from _places(target, facts)
    yield from _software(facts)
    yield from _gpus(facts)
    skew = facts.get("clock_skew")
    if skew is None:
        yield "clock", "OK", "in step with this machine", None
    else:
        text = f"{skew:+.0f} s off this machine's"
        yield "clock", "WARNING", text, "start NTP there: times of records are the target's"


def _places(target: Target, facts: Mapping[str, Any]) -> Iterator[Told]:
    store = facts["store"]
    disk = store["disk"]
    text = f"{store['path']}, {size(disk['free'])} and {disk['free_inodes']} inodes free"
    if disk["free"] < LITTLE_DISK or disk["free_inodes"] < FEW_INODES:
        yield "store", "WARNING", text, "free some space there, or set `store` to another disk"
    else:
        yield "store", "OK", text, None
    workdir = facts.get("workdir")
    if workdir is None:
        return
    if not workdir["writable"]:
        hint = "let the login write there, or leave `workdir` out: then a tree is pushed"
        yield "workdir", "FAILED", f"{workdir['path']} cannot be written", hint
    elif not workdir["established"]:
        hint = "set `workdir` to the benchmark/ folder of the checkout"
        yield "workdir", "FAILED", f"{workdir['path']} has no front door of a suite", hint
    else:
        yield "workdir", "OK", str(workdir["path"]), None


def _software(facts: Mapping[str, Any]) -> Iterator[Told]:
    python = facts.get("python")
    if python is None:  # told as a problem of the setup
        return
    yield "python", "OK", f"{python['executable']} ({python['version']})", None
    torch = python.get("torch")
    if torch:
        yield "torch", "OK", torch["version"], None
    devices = facts.get("devices") or []
    nvbench = [f"{found['package']} {found['version']}" for found in python.get("nvbench") or ()]
    if nvbench:
        yield "nvbench", "OK", ", ".join(nvbench), None
    elif devices:
        hint = "pip install cuda-bench[cu12] or [cu13] there; on MetaX install mxbench"
        yield "nvbench", "FAILED", "not installed, so no GPU time can be taken", hint
    else:
        yield "nvbench", "OK", "not installed, and no GPU to need it", None
    libraries = [f"{name} {v or '?'}" for name, v in (python.get("libraries") or {}).items()]
    if libraries:
        yield "libraries", "OK", ", ".join(libraries), None
    else:
        hint = "operators of mcoplib, vllm and sgl_kernel are UNAVAILABLE there; "
        hint += "set `library` in inventory.yaml"
        yield "libraries", "WARNING", "no operator library is installed", hint


def _gpus(facts: Mapping[str, Any]) -> Iterator[Told]:
    devices = facts.get("devices")
    if not devices:
        text = "torch sees none: operators are measured on the CPU"
        hint = "in a container: was it started with its GPUs? is torch built for them?"
        yield "GPUs", "WARNING", text, hint
        return
    names = Counter(device["name"] for device in devices)
    text = ", ".join(f"{number} × {name}" for name, number in names.items())
    yield "GPUs", "OK", text, None
    processes = facts.get("gpu_processes")
    if processes is None:
        yield "GPU use", "UNKNOWN", "nvidia-smi does not tell who computes", None
    elif processes:
        who = ", ".join(f"{p['name']} (pid {p['pid']}, {p['memory']})" for p in processes[:4])
        more = f" and {len(processes) - 4} more" if len(processes) > 4 else ""
        hint = "times taken beside them are CONTENDED; wait, or choose other `gpus`"
        yield "GPU use", "WARNING", f"busy: {who}{more}", hint
    else:
        yield "GPU use", "OK", "nobody computes", None
