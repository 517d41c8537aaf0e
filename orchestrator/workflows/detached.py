"""Runs that go on in the background: start one, see what it says, end it.

A detached run is the same command once more, in a session of its own, with its console in the run's
folder. Its jobs are held for long when their link is lost, so that this machine may sleep.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from orchestrator.errors import ExitCode, MxfleetError, TargetError, UnusableError, UsageError
from orchestrator.events import Note, Sink, Summary
from orchestrator.execute.folder import RunFolder
from orchestrator.inventory.model import Target
from orchestrator.plan.jobs import new_run_id
from orchestrator.workflows.activity import Activity
from orchestrator.workflows.context import Context
from orchestrator.workflows.fleet import Fleet, for_each_host
from orchestrator.workflows.policy import Policy
from orchestrator.workflows.pull import plan_again, saved_plan
from orchestrator.workflows.push import Failures

_VARIABLE = "MXFLEET_DETACHED_RUN"
CONSOLE = "console.log"
_START_SECONDS = 120.0  # for the plan; asking targets for their models may take a while
_END_SECONDS = 60.0
_POLL = 0.1
_CHUNK = 1 << 16


def run_of_this_process() -> str | None:
    """The id of the detached run that this process is; None when it is none."""
    return os.environ.get(_VARIABLE) or None


def start(runs: Path, sink: Sink, resumed: str | None = None) -> ExitCode:
    """Start this very command in the background; return once its run has begun.

    ``resumed`` is the run that it goes on with. What keeps it from beginning is told here.
    """
    run = RunFolder.open(runs, resumed).run if resumed is not None else new_run_id()
    runs.mkdir(parents=True, exist_ok=True)
    waiting = runs / f".console-{run}-{os.getpid()}"
    with waiting.open("wb") as console:
        process = subprocess.Popen(
            [sys.executable, "-m", "orchestrator", *sys.argv[1:]],
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=console,
            start_new_session=True,
            env={**os.environ, _VARIABLE: run},
        )
    folder = RunFolder(runs / run)
    limit = time.monotonic() + _START_SECONDS
    try:
        while not folder.is_held():
            if process.poll() is not None:
                return _ended_early(process.returncode, waiting, folder)
            if time.monotonic() > limit:
                process.terminate()
                raise UsageError(
                    f"the run did not begin within {_START_SECONDS:.0f} s",
                    hint="try it without --detach, to see what it waits for",
                )
            time.sleep(_POLL)
        waiting.replace(folder.path / CONSOLE)
    finally:
        waiting.unlink(missing_ok=True)
    text = f"goes on in the background; see it with `mxfleet attach {run}`, end it with `kill`"
    sink(Summary(command="detach", exit_code=0, run=run, folder=str(folder.path), message=text))
    return ExitCode.OK


def _ended_early(code: int, console: Path, folder: RunFolder) -> ExitCode:
    """Tell what a run said that ended before it was seen at work: a mistake, or a short one."""
    with console.open("rb") as said:
        shutil.copyfileobj(said, sys.stdout.buffer)
    sys.stdout.flush()
    if folder.path.is_dir():
        console.replace(folder.path / CONSOLE)
    return ExitCode(code) if code in list(ExitCode) else ExitCode.INTERNAL


def attach(context: Context, run: str | None) -> ExitCode:
    """Show a run's console until the run has ended; its exit code.

    A run whose process is gone before its end is gone on with from here.
    """
    folder = RunFolder.open(context.runs, run)
    if not (folder.path / CONSOLE).exists() and folder.is_held():
        raise UsageError(
            "this run was not detached: it says what it does where it was started",
            where=str(folder.path),
            hint="its jobs' output: mxfleet logs --follow",
        )
    with suppress(FileNotFoundError), (folder.path / CONSOLE).open("rb") as console:
        while True:
            over = not folder.is_held()  # asked first: what was said until then is there
            _show(console)
            if over:
                break
            time.sleep(_POLL)
    code = _exit_code(folder)
    if code is not None:
        return code
    from orchestrator.workflows.testall import resume

    context.sink(Note("the run's process is gone before its end, going on with it"))
    return resume(context, folder.run, policy=Policy(detached=True))


def _show(console: BinaryIO) -> None:
    while data := console.read(_CHUNK):
        sys.stdout.buffer.write(data)
    sys.stdout.flush()


def _exit_code(folder: RunFolder) -> ExitCode | None:
    for path in folder.path.glob("*-summary.json"):
        if path.name != "pull-summary.json":
            with suppress(MxfleetError, KeyError, TypeError, ValueError):
                return ExitCode(folder.read_json(path.name)["exit_code"])
    return None


def kill(context: Context, run: str | None) -> ExitCode:
    """End a run: through its process, and where that is gone, through its hosts."""
    folder = RunFolder.open(context.runs, run)
    pid = folder.holder()
    if pid is not None:
        _interrupt(folder, pid)
        text = "ended, what was measured is merged"
        context.sink(Summary(command="kill", exit_code=0, run=folder.run, message=text))
        return ExitCode.OK
    if folder.is_held():
        raise UnusableError(
            "the run's process is not known here",
            where=str(folder.path),
            hint="end it where it was started",
        )
    return _end_jobs(context, folder)


def _interrupt(folder: RunFolder, pid: int) -> None:
    try:
        os.kill(pid, signal.SIGINT)
    except ProcessLookupError:
        raise UnusableError(
            f"the run's process {pid} is not on this machine",
            where=str(folder.path),
            hint="end it where it was started",
        ) from None
    except PermissionError:
        raise UsageError(
            f"the run's process {pid} is somebody else's", where=str(folder.path), hint="ask them"
        ) from None
    limit = time.monotonic() + _END_SECONDS
    while folder.is_held():
        if time.monotonic() > limit:
            raise UnusableError(
                f"the run did not end within {_END_SECONDS:.0f} s (process {pid})",
                where=str(folder.path),
                hint="its jobs end with their lease when that process is killed: kill -9",
            )
        time.sleep(_POLL)


def _end_jobs(context: Context, folder: RunFolder) -> ExitCode:
    """Have the hosts end what a run without a process has left there."""
    saved = saved_plan(folder)
    plan, targets = plan_again(
        saved, context.inventory.targets, folder, context.inventory, context.sink, False
    )
    begun = folder.intended()
    jobs = [job for job in plan.jobs if (job.target.name, job.op) in begun]
    counts = {"ended": 0, "already over": 0}
    with Activity(context.sink) as sink, Fleet() as fleet:
        failures = Failures(sink)

        def end(target: Target) -> None:
            mine = [job for job in jobs if job.target.name == target.name]
            for job in mine:
                session = fleet.session(target)
                answer = session.call("stop", store=job.spec["store"], job=job.job)
                if answer["known"] and not answer["finished"]:
                    raise TargetError(
                        f"{job.op} cannot be ended", where=target.name, hint="see mxfleet doctor"
                    )
                counts["ended" if answer["known"] else "already over"] += 1

        for_each_host(sink, targets, end, failures)
    code = failures.code()
    context.sink(
        Summary(
            command="kill",
            exit_code=int(code),
            counts=counts,
            targets=failures.statuses(targets),
            run=folder.run,
            message="what was measured comes with `mxfleet pull`",
        )
    )
    return code
