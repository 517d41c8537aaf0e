"""Runs that go on in the background: start one, see what it says, end it.

A detached run is the same command once more, in a session of its own, with its events as JSON lines
in the run's folder, for whoever attaches to show. Its jobs are held for long when their link is
lost, so that this machine may sleep.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from orchestrator.errors import ExitCode, InterruptedRun, TargetError, UnusableError, UsageError
from orchestrator.events import Event, Note, RunLine, Sink, Summary, event_of
from orchestrator.execute.folder import RunFolder, not_kept, still_going_on
from orchestrator.inventory.model import Target
from orchestrator.plan.jobs import new_run_id
from orchestrator.workflows.activity import Activity
from orchestrator.workflows.context import Context
from orchestrator.workflows.fleet import Fleet, for_each_host
from orchestrator.workflows.pull import plan_again, saved_plan
from orchestrator.workflows.push import Failures
from orchestrator.workflows.runs import line_of

_VARIABLE = "MXFLEET_DETACHED_RUN"
CONSOLE = "console.jsonl"
_START_SECONDS = 120.0  # for the plan; asking targets for their models may take a while
_END_SECONDS = 60.0
_POLL = 0.1
_CHUNK = 1 << 16
# As `mxfleet` itself: what lies in the folder that it is called in is no part of it.
_ROOT = str(Path(__file__).resolve().parents[2])
_PROGRAM = (
    f"import sys; sys.path[:] = [*filter(None, sys.path), {_ROOT!r}]; "
    "from orchestrator.cli.main import main; main()"
)


def run_of_this_process() -> str | None:
    """The id of the detached run that this process is; None when it is none. Asked once."""
    return os.environ.pop(_VARIABLE, None) or None  # not for the processes that it starts


def start(runs: Path, sink: Sink, resumed: str | None = None) -> ExitCode:
    """Start this very command in the background; return once its run has begun.

    ``resumed`` is the run that it goes on with. What keeps it from beginning is told here.
    """
    run = new_run_id() if resumed is None else RunFolder.open(runs, resumed).run
    code = _begin(runs, run, sys.argv[1:], sink)
    if code is None:
        text = f"goes on in the background; see: mxfleet attach {run}; end it: mxfleet kill {run}"
        folder = str(runs / run)
        sink(Summary(command="detach", exit_code=0, run=run, folder=folder, message=text))
    return code or ExitCode.OK


def _begin(runs: Path, run: str, words: Sequence[str], sink: Sink) -> ExitCode | None:
    """Start a run, or go on with it, in the background.

    Returns its exit code, and tells what it said, when it ended before it was seen at work.
    """
    folder = RunFolder(runs / run)
    if folder.is_held():
        raise still_going_on(folder)
    lasting = folder.path / CONSOLE  # a run that goes on tells more in the same place
    console = lasting if folder.path.is_dir() else runs / f".console-{run}.jsonl"
    with _open_console(console) as stream:
        told = os.fstat(stream.fileno()).st_size
        process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, *words, "--output", "json"],
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            start_new_session=True,
            env={**os.environ, _VARIABLE: run},
        )
    try:
        if not _at_work(process, folder):
            with console.open("rb") as said:
                said.seek(told)
                _Console(said, sink).show(over=True)
            code = process.returncode
            if told == console.stat().st_size:
                raise UsageError(
                    f"the run ended before it began, with exit code {code}, and left no word",
                    where=str(console.parent),
                    hint="is there room? Without --detach it says what is wrong",
                )
            return ExitCode(code) if code in list(ExitCode) else ExitCode.INTERNAL
    except KeyboardInterrupt:
        process.terminate()
        raise
    finally:
        if console != lasting and folder.path.is_dir():
            console.replace(lasting)
        elif console != lasting:
            console.unlink()
    return None


def _open_console(console: Path) -> IO[bytes]:
    try:
        console.parent.mkdir(parents=True, exist_ok=True)
        return console.open("ab")
    except OSError as error:
        raise not_kept(console, error) from None


def _at_work(process: subprocess.Popen[bytes], folder: RunFolder) -> bool:
    limit = time.monotonic() + _START_SECONDS
    while folder.holder() != process.pid:
        if process.poll() is not None:
            return False
        if time.monotonic() > limit:
            process.terminate()
            raise UsageError(
                f"the run did not begin within {_START_SECONDS:.0f} s",
                hint="try it without --detach, to see what it waits for",
            )
        time.sleep(_POLL)
    return True


class _Console:
    """What a run said, as it comes: events to a sink.

    A summary is held back until the end: one that is followed by more is not the last.
    """

    def __init__(self, stream: IO[bytes], sink: Sink) -> None:
        self._stream = stream
        self._sink = sink
        self._rest = b""
        self._summary: Event | None = None

    def show(self, over: bool) -> None:
        """Pass on what is there; ``over``: nothing more comes."""
        while data := self._stream.read(_CHUNK):
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                self._pass_on(line)
        if over:
            self._pass_on(self._rest)
            if self._summary is not None:
                self._sink(self._summary)

    def _pass_on(self, line: bytes) -> None:
        text = line.decode("utf-8", "replace")
        try:
            told = json.loads(text)
            event = event_of(told if isinstance(told, dict) else {})
        except ValueError:
            # Its standard error: what it complains of when it cannot work is in its summary, too.
            if text.strip() and not text.startswith("mxfleet: "):
                self._sink(Note(text, level="warning"))
            return
        self._summary = event if isinstance(event, Summary) else None
        if self._summary is None:
            self._sink(event)


def attach(context: Context, run: str | None) -> ExitCode:
    """Show what a run says, from its first word on, until it has ended; its exit code.

    A run whose process is gone before its end is gone on with, in the background.
    """
    folder = RunFolder.open(context.runs, run)
    console = folder.path / CONSOLE
    ended = line_of(folder).exit_code is not None
    if not console.exists() and (folder.is_held() or ended):
        raise UsageError(
            "this run was not detached: it said what it did where it was started",
            where=str(folder.path),
            hint=f"its jobs' output: mxfleet logs {folder.run}",
        )
    if not (folder.is_held() or ended):
        context.sink(Note("the run's process is gone before its end, going on with it"))
        words = ["testall", "--resume", folder.run, "--inventory", str(context.inventory.path)]
        code = _begin(context.runs, folder.run, words, context.sink)
        if code is not None:
            return code
    with console.open("rb") as stream:
        shown = _Console(stream, context.sink)
        try:
            while folder.is_held():
                shown.show(over=False)
                time.sleep(_POLL)
        except KeyboardInterrupt:
            way = f"attach again, or end it: mxfleet kill {folder.run}"
            raise InterruptedRun("only watching ends here, the run goes on", hint=way) from None
        shown.show(over=True)
    code_of = line_of(folder).exit_code
    if code_of is None:
        raise UnusableError(
            "the run's process went away before the run's end",
            where=str(folder.path),
            hint=f"go on with it: mxfleet attach {folder.run}; "
            f"or end its jobs: mxfleet kill {folder.run}",
        )
    return ExitCode(code_of)


def is_of_many(folder: RunFolder) -> bool:
    """Whether a run is a ``testall``, whose lines are too many to read."""
    try:
        return bool(folder.read_json("plan.json").get("command") == "testall")
    except (UsageError, AttributeError):
        return False


def kill(context: Context, run: str | None) -> ExitCode:
    """End a run: through its process, and where that is gone, through its hosts."""
    folder = RunFolder.open(context.runs, run)
    pid = folder.holder()
    if pid is not None:
        _interrupt(folder, pid)
        text = f"run {folder.run} is ended, what was measured is merged"
        return _told(context, folder, line_of(folder), text)
    if folder.is_held():
        raise UnusableError(
            "the run's process is not known here",
            where=str(folder.path),
            hint="end it where it was started",
        )
    line = line_of(folder)
    if line.exit_code is not None and "NOT_RUN" not in line.counts:
        text = f"run {folder.run} has already ended (exit code {line.exit_code})"
        return _told(context, folder, line, text)
    return _end_jobs(context, folder)


def _told(context: Context, folder: RunFolder, line: RunLine, text: str) -> ExitCode:
    context.sink(Summary("kill", exit_code=0, counts=line.counts, run=folder.run, message=text))
    return ExitCode.OK


def _interrupt(folder: RunFolder, pid: int) -> None:
    try:
        os.kill(pid, signal.SIGTERM)  # SIGINT is ignored in what a script starts with &
        os.kill(pid, signal.SIGCONT)
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
                hint=f"kill -9 it, then `mxfleet kill {folder.run}` ends its jobs on their hosts",
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
                left = (answer.get("outcome") or {}).get("unkillable") or ()
                if left or (answer["known"] and not answer["finished"]):
                    pids = ", ".join(str(process["pid"]) for process in left)
                    raise TargetError(
                        f"{job.op} cannot be ended{f': UNKILLABLE {pids}' if pids else ''}",
                        where=target.name,
                        hint="its device is left alone until that is gone; see mxfleet doctor",
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
            message=f"run {folder.run}; what was measured comes with `mxfleet pull {folder.run}`",
        )
    )
    return code
