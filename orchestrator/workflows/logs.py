"""``mxfleet logs``: what a run's jobs printed, also while they still print."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from orchestrator.errors import ExitCode, UsageError
from orchestrator.events import OutputLine, Sink, Summary
from orchestrator.execute.folder import RunFolder
from orchestrator.execute.lines import LineSplitter

_CHUNK = 1 << 20
_POLL = 0.2  # seconds between looks at a log that may grow


class _Log:
    """One attempt's log, read as far as it goes."""

    def __init__(self, path: Path, target: str, op: str) -> None:
        self._path = path
        self._target = target
        self._op = op
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
            sink(OutputLine(self._target, self._op, "stdout", text))


def logs(
    folder: RunFolder,
    sink: Sink,
    *,
    ops: Sequence[str],
    targets: Sequence[str] | None,
    follow: bool,
) -> ExitCode:
    """Tell the logs of ``ops`` (none: all) on ``targets`` (None: all), job by job.

    With ``follow`` until no command is at work on the run any more; the lines of jobs that run side
    by side then come as they are printed. Raises ``UsageError`` when the run has no such job.
    """
    wanted = _wanted(folder, ops, targets)
    known: dict[Path, _Log] = {}
    while True:
        # Asked first: what is printed before the end is there when it is over.
        final = not (follow and folder.is_held())
        for target, op in wanted:
            for path in folder.logs(target, op):
                known.setdefault(path, _Log(path, target, op)).tell(sink, final=final)
        if final:
            break
        time.sleep(_POLL)
    message = None if known else "none of the jobs has printed anything"
    sink(Summary(command="logs", exit_code=0, run=folder.run, message=message))
    return ExitCode.OK


def _wanted(
    folder: RunFolder, ops: Sequence[str], targets: Sequence[str] | None
) -> list[tuple[str, str]]:
    jobs = [(job["target"], job["op"]) for job in folder.planned()]
    had = {op for _, op in jobs}
    missing = [op for op in ops if op not in had]
    if missing:
        raise UsageError(
            f"the run had no operator {missing[0]!r}",
            where=str(folder.path),
            hint=f"it had {', '.join(sorted(had))}",
        )
    found = [
        (target, op)
        for target, op in dict.fromkeys(jobs)
        if (not ops or op in ops) and (targets is None or target in targets)
    ]
    if not found:
        raise UsageError(
            "the run has no such job",
            where=str(folder.path),
            hint=f"it ran on {', '.join(dict.fromkeys(target for target, _ in jobs))}",
        )
    return found
