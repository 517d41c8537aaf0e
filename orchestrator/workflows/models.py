"""What a run that is shared out has to know beforehand: targets' models, operators' durations."""

from __future__ import annotations

import json
from pathlib import Path

from orchestrator.errors import MxfleetError
from orchestrator.events import Note
from orchestrator.inventory.model import Target
from orchestrator.workflows.activity import Activity
from orchestrator.workflows.context import Context
from orchestrator.workflows.fleet import Fleet, for_each_host

_RUNS = 20  # that are looked at for durations


def models_of(context: Context) -> dict[str, str]:
    """Each target's device model: as the inventory has it, else as the target says.

    A target that cannot be asked is a group of its own: what becomes of it is told by the run.
    """
    found = {target.name: target.model for target in context.targets if target.model}
    asked = [target for target in context.targets if target.name not in found]

    def ask(target: Target) -> None:
        gpus = fleet.session(target).call("gpus")["gpus"]
        found[target.name] = str(gpus[0]["name"]) if gpus else "CPU"

    def failed(target: Target, error: MxfleetError) -> None:
        sink(Note(f"its model cannot be told: {error.message}", target.name, level="warning"))

    with Activity(context.sink) as sink, Fleet() as fleet:
        for_each_host(sink, asked, ask, failed)
    return {t.name: found.get(t.name) or f"unknown {t.name}" for t in context.targets}


def recorded_seconds(runs: Path) -> dict[str, float]:
    """How long each operator's job took, in the latest run that had it, by the runs' diaries."""
    found: dict[str, float] = {}
    folders = sorted((path for path in runs.iterdir()), reverse=True) if runs.is_dir() else []
    for folder in folders[:_RUNS]:
        try:
            lines = (folder / "events.jsonl").read_bytes().splitlines()
        except OSError:
            continue
        seconds: dict[str, float] = {}
        for line in lines:
            try:
                event = json.loads(line)
                if event["event"] == "job_ended" and event["status"] != "NOT_RUN":
                    seconds[str(event["op"])] = float(event["seconds"])
            except (ValueError, KeyError, TypeError):
                continue
        found = {**seconds, **found}
    return found
