"""``mxfleet repro`` and ``mxfleet shell``: what mxfleet does, for a person to do by hand."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from fnmatch import fnmatchcase

from orchestrator.errors import ExitCode, UnusableError, UsageError
from orchestrator.events import Planned, Summary
from orchestrator.execute.folder import RunFolder
from orchestrator.plan.by_hand import reproduce, sit_in
from orchestrator.plan.jobs import PlannedJob
from orchestrator.workflows.activity import Activity
from orchestrator.workflows.context import Context
from orchestrator.workflows.fleet import Fleet, endpoint_of
from orchestrator.workflows.prepare import prepare


def repro(context: Context, run: str | None, ops: Sequence[str]) -> ExitCode:
    """Tell, for each job of ``run`` that is of ``ops`` and on the context's targets, its line."""
    folder = RunFolder.open(context.runs, run)
    planned = folder.planned("job", "spec", "attempt")
    known = {target.name: target for target in context.targets}
    jobs = [
        PlannedJob(known[job["target"]], job["op"], job["job"], job["spec"], job["attempt"])
        for job in planned
        if job["target"] in known and (not ops or any(fnmatchcase(job["op"], name) for name in ops))
    ]
    if not jobs:
        had = ", ".join(sorted({job["op"] for job in planned}))
        raise UsageError(
            "the run has no such job",
            where=str(folder.path),
            hint=f"it had {had}; is its target still in the inventory?",
        )
    for job in jobs:
        line = reproduce(job, endpoint_of(job.target.host))
        context.sink(Planned(job.target.name, job.op, line, here=True))
    context.sink(Summary(command="repro", exit_code=0, run=folder.run))
    return ExitCode.OK


def shell(context: Context) -> ExitCode:
    """Give the terminal to a shell on the context's only target; does not return when it can.

    The tree is pushed where it is not there yet. Raises ``UsageError`` without a terminal.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError(
            "a shell needs a terminal, standard input or output is none",
            hint="for one command line to paste or run see mxfleet repro",
        )
    if len(context.targets) != 1:
        names = ", ".join(target.name for target in context.targets[:5])
        raise UsageError(
            f"a shell needs one target, the selection has {len(context.targets)}: {names}",
            hint="name one, host or host:container",
        )
    (target,) = context.targets
    tree = context.tree()
    words = sit_in(target, endpoint_of(target.host), tree.name)
    if shutil.which(words[0]) is None:
        raise UnusableError(
            f"there is no {words[0]} on this machine", where=target.name, hint="install it"
        )
    if not target.established:
        with Activity(context.sink) as sink, Fleet() as fleet:
            with sink.doing("connecting", target.name):
                session = fleet.session(target)
            prepare(session, target, tree, (), sink)
    os.execvp(words[0], words)
