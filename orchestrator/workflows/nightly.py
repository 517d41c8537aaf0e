"""``mxfleet nightly run``: push, all operators on all targets, and what changed since last night.

Everything that happens goes to the night's log, whole, also what kept the night from beginning.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import chain
from pathlib import Path

from orchestrator.errors import ExitCode, MxfleetError, combine
from orchestrator.events import NightChange, Note, Sink, Summary
from orchestrator.execute.folder import NotKeptError
from orchestrator.inventory.load import load
from orchestrator.inventory.select import select
from orchestrator.workflows.context import Context
from orchestrator.workflows.nightly_changes import compare
from orchestrator.workflows.nightly_folder import Mark, NightFolder
from orchestrator.workflows.nightly_heard import COMMAND, Heard
from orchestrator.workflows.push import push
from orchestrator.workflows.testall import testall


def night(inventory: Path, sink: Sink, *, brief: bool = False) -> ExitCode:
    """Run one night for the working folder of ``inventory``.

    ``brief`` keeps from ``sink`` what only the log needs: output of jobs, the table of all rows.
    Raises ``UsageError`` when another night is at work there, which is not disturbed.
    """
    inventory = inventory.absolute()
    if not inventory.is_file():
        load(inventory)  # says what is wrong; there is no folder for a log
    folder = NightFolder(inventory.parent)
    with folder.held(), closing(folder.new_log()) as stream:
        heard = Heard(folder, stream, sink, brief)
        try:
            code = _night(inventory, folder, heard)
        except BaseException as error:
            heard.died(error)
            raise
        folder.prune()
    return code


def _night(inventory: Path, folder: NightFolder, heard: Heard) -> ExitCode:
    began = time.monotonic()
    loaded = load(inventory)
    context = Context(loaded, tuple(select(loaded, None)), heard)
    code = combine([push(context), testall(context)])
    summary = heard.summary
    message = _finish(folder, heard, code, _left_out(context))
    heard.end(
        Summary(
            command=COMMAND,
            exit_code=int(code),
            counts=summary.counts,
            known=summary.known,
            targets=summary.targets,
            run=summary.run,
            folder=summary.folder,
            files=(*summary.files, str(heard.log)),
            seconds=time.monotonic() - began,
            message="; ".join(part for part in (summary.message, message) if part) or None,
        )
    )
    return code


def _left_out(context: Context) -> dict[str, str]:
    """The operators that ``testall`` does not run because their files are wrong, and why."""
    found = {}
    for op in context.suite.operators():
        try:
            context.suite.check([op])
        except MxfleetError as error:
            found[op] = str(error)
    return found


def _finish(
    folder: NightFolder, heard: Heard, code: ExitCode, left_out: Mapping[str, str]
) -> str | None:
    """Hold the night against the earlier ones, tell, and mark its run with how it ended."""
    summary = heard.summary
    if summary.run is None:
        return None
    mark = Mark(summary.run, heard.log.name, int(code), summary.targets, left_out=dict(left_out))
    earlier = folder.earlier(summary.run)
    last = next(earlier, None)
    changes = compare(folder.night(mark), chain([last] if last is not None else [], earlier))
    message = _message(changes, last.run if last is not None else None)
    since = {
        (change.target, change.op or "", change.case_id): change.since
        for change in changes
        if change.change == "still" and change.since is not None
    }
    warned = folder.warned(summary.run)
    try:
        replace(mark, message=message, since=since, warnings=heard.odd_devices()).write(folder.runs)
    except NotKeptError as error:
        heard(Note(str(error), level="error"))
    heard.tell(changes, left_out, warned)
    return message


def _message(changes: Sequence[NightChange], since: str | None) -> str:
    if since is None:
        return "the first night, there is none to compare with"
    counts = Counter(change.change for change in changes)
    still = counts.pop("still", 0)
    told = [f"{count} {kind}" for kind, count in counts.items()] or ["no change"]
    told += [f"{still} still failing"] if still else []
    return f"since {since}: {', '.join(told)}"
