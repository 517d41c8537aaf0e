"""``mxfleet logs``: what a run's jobs printed, also while they still print."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from orchestrator.errors import ExitCode, UsageError
from orchestrator.events import LogHead, Note, OutputLine, Sink, Summary
from orchestrator.execute.folder import RunFolder, safe_name
from orchestrator.execute.lines import LineSplitter

_CHUNK = 1 << 20
_POLL = 0.2  # seconds between looks at a log that may grow


class _Log:
    """One attempt's log, read as far as it goes; ``ended`` is what the diary says of its end."""

    def __init__(
        self, path: Path, target: str, op: str, attempt: int, ended: Mapping[str, Any]
    ) -> None:
        self._path = path
        self._target = target
        self._op = op
        self._head = LogHead(
            target, op, attempt, str(path), ended.get("status"), ended.get("message")
        )
        self._headed = False
        self._offset = 0
        self._lines = LineSplitter()

    def tell(self, sink: Sink, *, final: bool) -> None:
        """Emit what has come since the last time; with ``final`` an unfinished line too."""
        try:
            with self._path.open("rb") as stream:
                stream.seek(self._offset)
                while data := stream.read(_CHUNK):
                    self._offset += len(data)
                    self._emit(self._lines.feed(data), sink)
        except OSError as error:
            raise UsageError(
                f"the log cannot be read: {error.strerror}",
                where=str(self._path),
                hint="check its permissions; the events of the run lie beside its folder logs/",
            ) from None
        if final:
            self._emit(self._lines.feed(b"", final=True), sink)

    def _emit(self, lines: Iterator[str], sink: Sink) -> None:
        for text in lines:
            if not self._headed:
                self._headed = True
                sink(self._head)
            sink(OutputLine(self._target, self._op, "stdout", text))


def logs(
    folder: RunFolder,
    sink: Sink,
    *,
    ops: Sequence[str],
    targets: Sequence[str] | None,
    follow: bool,
) -> ExitCode:
    """Tell the logs of ``ops`` (names or globs, none: all) on ``targets`` (None: all), job by job.

    With ``follow`` until no command is at work on the run any more; the lines of jobs that run side
    by side then come as they are printed. Raises ``UsageError`` when the run has no such job.
    """
    wanted = _wanted(folder, ops, targets)
    known: dict[Path, _Log] = {}
    ended = _ends(folder)
    if follow and folder.is_held():
        text = f"following run {folder.run} until it ends, or Ctrl-C"
        sink(Note(f"{text}; {len(ended)} of {len(folder.planned())} jobs have ended"))
    while True:
        # Asked first: what is printed before the end is there when it is over.
        final = not (follow and folder.is_held())
        for target, op in wanted:
            for path in folder.logs(target, op):
                if path not in known:
                    number = path.stem.removeprefix(f"{safe_name(op)}.")
                    attempt = int(number) if number.isdecimal() else 1
                    end = ended.get((path.parent.name, path.name), {})
                    known[path] = _Log(path, target, op, attempt, end)
                known[path].tell(sink, final=final)
        if final:
            break
        time.sleep(_POLL)
    message = None if known else "none of the jobs has printed anything"
    sink(Summary(command="logs", exit_code=0, run=folder.run, message=message))
    return ExitCode.OK


def _ends(folder: RunFolder) -> dict[tuple[str, str], dict[str, Any]]:
    """What the diary says of the ends of attempts, by the folder and the name of their logs."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    path = folder.path / "events.jsonl"
    for line in path.read_bytes().splitlines() if path.exists() else ():
        try:
            event = json.loads(line)
            if event["event"] == "job_ended" and event["log"]:
                log = Path(event["log"])  # the run's folder may have been moved since
                found[log.parent.name, log.name] = event
        except (ValueError, KeyError, TypeError):
            continue  # cut off by a crash
    return found


def _wanted(
    folder: RunFolder, ops: Sequence[str], targets: Sequence[str] | None
) -> list[tuple[str, str]]:
    jobs = [(job["target"], job["op"]) for job in folder.planned()]
    had = {op for _, op in jobs}
    missing = [op for op in ops if not any(fnmatchcase(each, op) for each in had)]
    if missing:
        raise UsageError(
            f"the run had no operator {missing[0]!r}",
            where=str(folder.path),
            hint=f"it had {', '.join(sorted(had))}",
        )
    found = [
        (target, op)
        for target, op in dict.fromkeys(jobs)
        if (not ops or any(fnmatchcase(op, name) for name in ops))
        and (targets is None or target in targets)
    ]
    if not found:
        raise UsageError(
            "the run has no such job",
            where=str(folder.path),
            hint=f"it ran on {', '.join(dict.fromkeys(target for target, _ in jobs))}",
        )
    return found
