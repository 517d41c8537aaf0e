"""Run one planned job through a session: stream its output, keep its log, take its files in."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from typing import Any, BinaryIO

from orchestrator.errors import (
    LinkLostError,
    MxfleetError,
    PlaceLostError,
    ProtocolError,
    TargetError,
    UnreachableError,
)
from orchestrator.events import JobStarted, Note, OutputLine, Sink
from orchestrator.execute.folder import NotKeptError, RunFolder, not_kept
from orchestrator.execute.lines import LONGEST_LINE, LineSplitter
from orchestrator.plan.jobs import PlannedJob
from orchestrator.suites.markers import Markers, MarkerScanner, together
from orchestrator.transport.agent.made import MOST_BYTES, MOST_FILES
from orchestrator.transport.agent.spool import SpoolParser
from orchestrator.transport.session import AgentSession, Request

_STREAMS = {1: "stdout", 2: "stderr"}


@dataclass
class Attempt:
    """What one attempt left: how it ended and what was taken in.

    ``outcome`` is the agent's word on the command's end, None when the link was lost or the
    command never began; then ``error`` says why.
    """

    job: PlannedJob
    log: Path
    outcome: dict[str, Any] | None = None
    error: MxfleetError | None = None
    records: Path | None = None
    csv: Path | None = None
    seconds: float = 0.0
    last_words: str = ""  # the last line on standard error, else on standard output
    markers: Markers = field(default_factory=Markers)  # what its output says of it
    started: bool = False
    files: dict[str, int] = field(default_factory=dict)  # name and size of what came back
    left_out: dict[str, str] = field(default_factory=dict)  # what did not, and why
    # Of a profiled job: what else it wrote, by name there, and what of it did not come.
    made: dict[str, Path] = field(default_factory=dict)
    made_left_out: dict[str, str] = field(default_factory=dict)
    unlocked: bool = False  # nobody could lock its device
    beside: tuple[str, ...] = ()  # what else of the run was at work on its host, as lane: operator


def _write_all(stream: FileIO, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[stream.write(view) :]


class _Output:
    """Takes spool bytes: raw into the log, lines to the sink."""

    def __init__(self, job: PlannedJob, log: FileIO, sink: Sink) -> None:
        self._job = job
        self._log = log
        self._sink = sink
        self._parser = SpoolParser()
        self._splitters = {1: LineSplitter(), 2: LineSplitter()}
        self._scanners = {stream: MarkerScanner(LONGEST_LINE) for stream in self._splitters}
        self._last = {1: "", 2: ""}
        self.taken = 0  # bytes of the spool

    def feed(self, data: bytes) -> None:
        self.taken += len(data)
        for stream, piece in self._parser.feed(data):
            try:
                _write_all(self._log, piece)
            except OSError as error:
                raise not_kept(Path(str(self._log.name)), error) from None
            self._lines(stream, piece, final=False)

    def finish(self, attempt: Attempt) -> None:
        """Take what is left of unfinished lines; tell ``attempt`` what the output says."""
        for stream in self._splitters:
            self._lines(stream, b"", final=True)
        attempt.markers = together(scanner.found for scanner in self._scanners.values())
        attempt.last_words = self._last[2] or self._last[1]

    def _lines(self, stream: int, piece: bytes, final: bool) -> None:
        for text in self._splitters[stream].feed(piece, final):
            if text.strip():
                self._last[stream] = text
            self._scanners[stream].feed(text)
            self._sink(OutputLine(self._job.target.name, self._job.op, _STREAMS[stream], text))


# A new session to where a lost one led; raises what prevents it.
Again = Callable[[], AgentSession]


def run_job(
    session: AgentSession,
    job: PlannedJob,
    folder: RunFolder,
    sink: Sink,
    again: Again | None = None,
) -> Attempt:
    """Run ``job`` to its end. Errors of the target end up in the attempt, not as exceptions.

    When the link is lost, ``again`` is asked for another one: the job is attached to where its
    output broke off, and followed to its end, or what became of it meanwhile is brought back.
    """
    return _attempt(session, job, folder, sink, again, attached=False)


def attach_job(
    session: AgentSession,
    job: PlannedJob,
    folder: RunFolder,
    sink: Sink,
    again: Again | None = None,
) -> Attempt:
    """Follow a job that was started before, by whomever, from its first byte on to its end."""
    return _attempt(session, job, folder, sink, again, attached=True)


def _attempt(
    session: AgentSession,
    job: PlannedJob,
    folder: RunFolder,
    sink: Sink,
    again: Again | None,
    *,
    attached: bool,
) -> Attempt:
    began = time.monotonic()
    attempt = Attempt(job, folder.log(job.target.name, job.op, job.attempt))
    files = _Files(attempt, folder)
    with _open_log(attempt.log) as log:
        output = _Output(job, log, sink)
        try:
            if attached:
                _follow(session, attempt, output, files, sink, again)
            else:
                _start(session, attempt, output, files, sink, again)
        except NotKeptError as error:
            attempt.error = error
            # What the job leaves there can be pulled later.
            with contextlib.suppress(MxfleetError):
                session.call("stop", store=job.spec["store"], job=job.job)
        except MxfleetError as error:
            attempt.error = error
        finally:
            files.give_up()
            output.finish(attempt)
    attempt.seconds = time.monotonic() - began
    return attempt


def _start(
    session: AgentSession,
    attempt: Attempt,
    output: _Output,
    files: _Files,
    sink: Sink,
    again: Again | None,
) -> None:
    try:
        with session.request("run", **attempt.job.spec) as request:
            result = _receive(
                request, output.feed, files, lambda message: _on_message(message, attempt, sink)
            )
        attempt.outcome = result["outcome"]
    except LinkLostError as lost:
        if again is None:
            raise
        files.give_up()
        _follow(_renewed(lost, attempt.job, sink, again), attempt, output, files, sink, again, lost)


def _renewed(lost: LinkLostError, job: PlannedJob, sink: Sink, again: Again) -> AgentSession:
    """Another session after a lost one; raises the loss when there is none to be had."""
    sink(Note(f"{lost.message}; {job.op}: connecting again", job.target.name, level="warning"))
    try:
        return again()
    except TargetError as error:
        if not isinstance(error, UnreachableError):
            # What is wrong there is also why the link was lost: a container that stopped, say.
            raise PlaceLostError(
                f"{error.message} ({lost.message})", where=lost.where, hint=error.hint
            ) from None
        raise LinkLostError(
            f"{lost.message}, and there is no way back ({error.message})",
            where=lost.where,
            hint="`mxfleet pull` brings what was measured once the host answers again",
        ) from None


def _follow(
    session: AgentSession,
    attempt: Attempt,
    output: _Output,
    files: _Files,
    sink: Sink,
    again: Again | None,
    lost: LinkLostError | None = None,
) -> None:
    """Attach to the job and take what it brings; ``lost`` is why that is necessary."""
    job = attempt.job
    while True:
        try:
            with session.request(
                "attach",
                store=job.spec["store"],
                job=job.job,
                offset=output.taken,
                hold=job.spec.get("hold"),
                made=_is_profiled(job),
            ) as request:
                status = _receive(
                    request, output.feed, files, lambda message: _on_message(message, attempt, sink)
                )
            break
        except LinkLostError as error:
            if again is None:
                raise
            files.give_up()
            session, lost = _renewed(error, job, sink, again), error
    if status["state"] == "absent":
        # Nothing of it runs or ever ran: the request was lost with the link.
        raise lost or LinkLostError("the job is not there", where=job.target.name)
    attempt.started = True
    attempt.outcome = status["outcome"]


def _open_log(path: Path) -> FileIO:
    try:
        return path.open("wb", buffering=0)
    except OSError as error:
        raise not_kept(path, error) from None


def fetch_job(session: AgentSession, job: PlannedJob, folder: RunFolder) -> Attempt:
    """Take in again what lies of a job on its target: output, records, CSV."""
    attempt = Attempt(job, folder.log(job.target.name, job.op, job.attempt))
    temporary = attempt.log.with_name(f".{attempt.log.name}.{os.getpid()}.part")
    files = _Files(attempt, folder)
    try:
        with _open_log(temporary) as log:
            output = _Output(job, log, lambda event: None)
            files.on_output = output.feed
            with session.request(
                "fetch", store=job.spec["store"], job=job.job, made=_is_profiled(job)
            ) as request:
                status = _receive(
                    request,
                    files.data,
                    files,
                    lambda message: _on_message(message, attempt, lambda event: None),
                )
            output.finish(attempt)
        attempt.started = status["state"] != "absent"
        attempt.outcome = status.get("outcome")
        attempt.seconds = (attempt.outcome or {}).get("seconds") or 0.0
        if "output" in attempt.files:
            temporary.replace(attempt.log)
    except MxfleetError as error:
        attempt.error = error
    finally:
        files.give_up()
        temporary.unlink(missing_ok=True)
    return attempt


def _on_message(message: dict[str, Any], attempt: Attempt, sink: Sink) -> None:
    if message.get("type") == "started":
        attempt.started = True
        job = attempt.job
        sink(JobStarted(job.target.name, job.op, job.job, job.attempt))
    elif message.get("type") == "left_out":
        left_out = attempt.made_left_out if message.get("made") else attempt.left_out
        left_out[str(message["name"])] = str(message["why"])


def _is_profiled(job: PlannedJob) -> bool:
    return bool(job.spec.get("profiler"))


class _Files:
    """Takes announced files in, each into its place in the run's folder once it is complete."""

    def __init__(self, attempt: Attempt, folder: RunFolder) -> None:
        self._attempt = attempt
        self._folder = folder
        self._name: str | None = None
        self._missing = 0
        self._path: Path | None = None  # where it will lie once it is whole
        self._made = False  # the job's own file, none of ours
        self._place = contextlib.ExitStack()
        self._stream: BinaryIO | None = None
        self.on_output: Callable[[bytes], None] | None = None
        self._sizes: dict[str, int] = {}  # of files that the job made

    def announce(self, name: str, size: int, made: bool = False) -> None:
        self._name, self._missing, self._made = name, size, made
        job = self._attempt.job
        if not made:
            self._attempt.files[name] = size
        if made:
            self._take_made(name, size)
        elif name == "records.jsonl":
            self._path = self._folder.raw(job.target.name, job.op, job.attempt)
        elif name == "result.csv":
            self._path = self._folder.csv(job.target.name, job.op)
        if self._path is not None:
            self._stream = self._place.enter_context(self._folder.replacing(self._path))
        if not size:
            self._complete()

    def _take_made(self, name: str, size: int) -> None:
        """Keep a file that the job made, unless there are more of them than an agent sends."""
        job = self._attempt.job
        self._sizes[name] = size
        too_much = sum(self._sizes.values()) > MOST_BYTES or len(self._sizes) > MOST_FILES
        if too_much or not _is_profiled(job):
            self._attempt.made_left_out[name] = "there is too much of it"
            return
        self._path = self._folder.made(job.target.name, job.op, job.attempt, name)

    @property
    def open(self) -> bool:
        return self._name is not None

    def data(self, data: bytes) -> None:
        self._missing -= len(data)
        if self._stream is None and self._name == "output" and self.on_output is not None:
            self.on_output(data)
        elif self._stream is not None:
            try:
                self._stream.write(data)
            except OSError as error:
                raise not_kept(Path(str(self._stream.name)), error) from None
        if self._missing <= 0:
            self._complete()

    def _complete(self) -> None:
        name, path = self._name, self._path
        self._name = self._stream = self._path = None
        self._place.close()
        # Only now there is something to read: not when the disk is full or the link was lost.
        if name is None or path is None:
            return
        if self._made:
            self._attempt.made[name] = path
        elif name == "records.jsonl":
            self._attempt.records = path
        else:
            self._attempt.csv = path

    def give_up(self) -> None:
        """Drop a file that did not come whole; what was there before stays."""
        self._name = self._stream = self._path = None
        error = LinkLostError("the file did not come whole")
        with contextlib.suppress(LinkLostError):
            self._place.__exit__(type(error), error, None)


def _receive(
    request: Request,
    output: Callable[[bytes], None],
    files: _Files,
    on_message: Callable[[dict[str, Any]], None],
) -> dict[str, Any]:
    """Take everything that a request brings, until its result."""
    for item in request:
        if isinstance(item, bytes):
            if files.open:
                files.data(item)
            else:
                output(item)
        elif item.get("type") == "file":
            files.announce(str(item["name"]), int(item["size"]), bool(item.get("made")))
        elif item.get("type") == "result":
            return item
        else:
            on_message(item)
    raise ProtocolError("the agent gave no result")
