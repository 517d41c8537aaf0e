"""Run one planned job through a session: stream its output, keep its log, take its files in."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from typing import Any

from orchestrator.errors import MxfleetError, ProtocolError, UsageError
from orchestrator.events import JobStarted, OutputLine, Sink
from orchestrator.execute.folder import RunFolder
from orchestrator.execute.lines import LineSplitter
from orchestrator.plan.jobs import PlannedJob
from orchestrator.transport.agent.spool import SpoolParser
from orchestrator.transport.session import AgentSession, Request

_STREAMS = {1: "stdout", 2: "stderr"}


class _NotKeptError(UsageError):
    """The run's folder cannot take in what came."""


def _not_kept(path: Path, error: OSError) -> _NotKeptError:
    return _NotKeptError(
        f"cannot keep what the job sends: {error.strerror}",
        where=str(path),
        hint="free some space there, then `mxfleet pull`",
    )


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
    started: bool = False
    files: dict[str, int] = field(default_factory=dict)  # name and size of what came back


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
        self.last = {1: "", 2: ""}

    def feed(self, data: bytes) -> None:
        for stream, piece in self._parser.feed(data):
            try:
                _write_all(self._log, piece)
            except OSError as error:
                raise _not_kept(Path(str(self._log.name)), error) from None
            self._lines(stream, piece, final=False)

    def finish(self) -> None:
        for stream in self._splitters:
            self._lines(stream, b"", final=True)

    def _lines(self, stream: int, piece: bytes, final: bool) -> None:
        for text in self._splitters[stream].feed(piece, final):
            if text.strip():
                self.last[stream] = text
            self._sink(OutputLine(self._job.target.name, self._job.op, _STREAMS[stream], text))


def run_job(session: AgentSession, job: PlannedJob, folder: RunFolder, sink: Sink) -> Attempt:
    """Run ``job`` to its end. Errors of the target end up in the attempt, not as exceptions."""
    began = time.monotonic()
    attempt = Attempt(job, folder.log(job.target.name, job.op, job.attempt))
    with attempt.log.open("wb", buffering=0) as log:
        output = _Output(job, log, sink)
        request: Request | None = None
        try:
            request = session.request("run", **job.spec)
            result = _receive(
                request,
                output.feed,
                _Files(attempt, folder),
                lambda message: _on_message(message, attempt, sink),
            )
            attempt.outcome = result["outcome"]
        except _NotKeptError as error:
            attempt.error = error
            _give_up(session, request, job.job)
        except MxfleetError as error:
            attempt.error = error
        finally:
            output.finish()
    attempt.last_words = output.last[2] or output.last[1]
    attempt.seconds = time.monotonic() - began
    return attempt


def _give_up(session: AgentSession, request: Request | None, job: str) -> None:
    """End a job whose output cannot be kept here; what it leaves there can be pulled later."""
    with contextlib.suppress(MxfleetError):
        session.request("stop", job=job)
        if request is not None:
            request.result()


def fetch_job(session: AgentSession, job: PlannedJob, folder: RunFolder) -> Attempt:
    """Take in again what lies of a job on its target: output, records, CSV."""
    attempt = Attempt(job, folder.log(job.target.name, job.op, job.attempt))
    temporary = attempt.log.with_name(attempt.log.name + ".part")
    files = _Files(attempt, folder)
    try:
        with temporary.open("wb", buffering=0) as log:
            output = _Output(job, log, lambda event: None)
            files.on_output = output.feed
            request = session.request("fetch", store=job.spec["store"], job=job.job)
            try:
                status = _receive(request, files.data, files, lambda message: None)
            except _NotKeptError:
                request.result()  # what is not taken would hold up the requests after it
                raise
            output.finish()
        attempt.last_words = output.last[2] or output.last[1]
        attempt.started = status["state"] != "absent"
        attempt.outcome = status.get("outcome")
        attempt.seconds = (attempt.outcome or {}).get("seconds") or 0.0
        if "output" in attempt.files:
            temporary.replace(attempt.log)
    except MxfleetError as error:
        attempt.error = error
    finally:
        temporary.unlink(missing_ok=True)
    return attempt


def _on_message(message: dict[str, Any], attempt: Attempt, sink: Sink) -> None:
    if message.get("type") == "started":
        attempt.started = True
        job = attempt.job
        sink(JobStarted(job.target.name, job.op, job.job, job.attempt))


class _Files:
    """Takes announced files in, each into its place in the run's folder once it is complete."""

    def __init__(self, attempt: Attempt, folder: RunFolder) -> None:
        self._attempt = attempt
        self._folder = folder
        self._name: str | None = None
        self._missing = 0
        self._data = bytearray()
        self.on_output: Callable[[bytes], None] | None = None

    def announce(self, name: str, size: int) -> None:
        self._name, self._missing = name, size
        self._data.clear()
        self._attempt.files[name] = size
        if not size:
            self._complete()

    @property
    def open(self) -> bool:
        return self._name is not None

    def data(self, data: bytes) -> None:
        self._missing -= len(data)
        if self._name == "output" and self.on_output is not None:
            self.on_output(data)
        else:
            self._data += data
        if self._missing <= 0:
            self._complete()

    def _complete(self) -> None:
        job, name, self._name = self._attempt.job, self._name, None
        if name == "records.jsonl":
            path = self._folder.records(job.target.name, job.op)
            self._attempt.records = path
        elif name == "result.csv":
            path = self._folder.csv(job.target.name, job.op)
            self._attempt.csv = path
        else:
            return
        try:
            self._folder.write_bytes(path, bytes(self._data))
        except OSError as error:
            raise _not_kept(path, error) from None


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
            files.announce(str(item["name"]), int(item["size"]))
        elif item.get("type") == "result":
            return item
        else:
            on_message(item)
    raise ProtocolError("the agent gave no result")
