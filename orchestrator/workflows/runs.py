"""``mxfleet runs``: what runs there are and what became of them, from their folders alone."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

from orchestrator.errors import ExitCode, UsageError
from orchestrator.events import RunLine, Sink, Summary
from orchestrator.execute.folder import RunFolder


def runs(folder: Path, sink: Sink, limit: int | None) -> ExitCode:
    """Tell the runs in ``folder``, the latest ones first, at most ``limit`` of them."""
    names = (
        sorted((path.name for path in folder.iterdir() if path.is_dir()), reverse=True)
        if folder.is_dir()
        else []
    )
    lines = [line_of(RunFolder(folder / name)) for name in names[:limit]]
    for line in lines:
        sink(line)
    left = len(names) - len(lines)
    message = f"{len(lines)} of {len(names)} runs; --limit shows more" if left else None
    if not names:
        message = f"no run in {folder} yet"
    counts = dict(Counter(line.state for line in lines))
    sink(Summary(command="runs", exit_code=0, counts=counts, message=message))
    return ExitCode.OK


def line_of(folder: RunFolder) -> RunLine:
    """What a run's folder says of it; what cannot be read is told, never raised."""
    held = folder.is_held()
    state = "running" if held else "unfinished"
    known: dict[str, Any] = {"started": _started(folder.run)}
    try:
        jobs = folder.planned()
        known["command"] = str(folder.read_json("plan.json").get("command", "run"))
        known["ops"] = tuple(dict.fromkeys(job["op"] for job in jobs))
        known["targets"] = tuple(dict.fromkeys(job["target"] for job in jobs))
    except UsageError as error:
        known["message"] = error.message
    summary = _summary(folder)
    if summary is not None and not held:
        state = "ended"
        known |= summary
    return RunLine(run=folder.run, state=state, folder=str(folder.path), **known)


def _started(run: str) -> float | None:
    """When a run began, as its id says."""
    with suppress(ValueError, OverflowError):
        return time.mktime(time.strptime(run[:15], "%Y%m%d-%H%M%S"))
    return None


def _summary(folder: RunFolder) -> dict[str, Any] | None:
    """Exit code, counts and duration of the run; None when it has no readable summary."""
    try:
        command = folder.read_json("plan.json").get("command", "run")
        told = folder.read_json(f"{command}-summary.json")
        return {
            "exit_code": int(told["exit_code"]),
            "counts": {str(name): int(count) for name, count in told["counts"].items()},
            "seconds": None if told.get("seconds") is None else float(told["seconds"]),
        }
    except (UsageError, AttributeError, KeyError, TypeError, ValueError):
        return None
