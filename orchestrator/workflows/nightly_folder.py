"""What nights leave: their logs in ``nightly/``, ``nightly.json`` in their runs' folders.

A run's folder is marked as soon as there is one, so that a night that was cut off is known as one.
``nightly/.lock`` is held by the night at work and says who that is.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from orchestrator.errors import ExitCode, MxfleetError, UsageError
from orchestrator.execute.folder import RunFolder
from orchestrator.records import Record, Status
from orchestrator.results.store import read_records
from orchestrator.workflows.nightly_night import Case, Night

MARK = "nightly.json"
LOGS_KEPT = 60
_LOG = re.compile(r"\d{8}-\d{6}(\.\d+)?\.log")


@dataclass(frozen=True)
class Mark:
    """What a run's folder says of its night; without an exit code it was cut off, or goes on.

    ``left_out`` are operators that were not run and why, ``since`` is the first night of what was
    wrong before already, ``warnings`` what need not be said again while it stays.
    """

    run: str
    log: str
    exit_code: int | None = None
    targets: dict[str, str] | None = None
    message: str | None = None
    left_out: dict[str, str] = field(default_factory=dict)
    since: dict[Case, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    def write(self, runs: Path) -> None:
        """Put it into the run's folder; raises ``NotKeptError``."""
        RunFolder(runs / self.run).write_json(
            MARK,
            {
                "log": self.log,
                "exit_code": self.exit_code,
                "targets": self.targets,
                "message": self.message,
                "left_out": self.left_out,
                "since": [[*case, run] for case, run in self.since.items()],
                "warnings": self.warnings,
            },
        )

    @classmethod
    def read(cls, folder: Path) -> Mark | None:
        """What ``folder`` says; None where it is no night's, or nobody can tell."""
        if not (folder / MARK).is_file():
            return None
        try:
            told = RunFolder(folder).read_json(MARK)
            code = told.get("exit_code")
            return cls(
                folder.name,
                str(told["log"]),
                None if code is None else int(code),
                _words(told.get("targets")),
                told.get("message"),
                _words(told.get("left_out")),
                {
                    (str(target), str(op), case and str(case)): str(run)
                    for target, op, case, run in told.get("since") or ()
                },
                tuple(str(text) for text in told.get("warnings") or ()),
            )
        except (UsageError, AttributeError, KeyError, TypeError, ValueError):
            return None


class NightFolder:
    """The folder ``nightly/`` of a working folder."""

    def __init__(self, working: Path) -> None:
        self.path = working / "nightly"
        self.runs = working / "runs"

    @contextmanager
    def held(self) -> Iterator[None]:
        """Be the night at work. Raises ``UsageError`` that names the one that is already."""
        try:
            self.path.mkdir(exist_ok=True)
            handle = os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise self._unwritable(error) from None
        try:
            if not _taken(handle):
                raise UsageError(
                    f"a night is at work already{_by(self._holder())}",
                    where=str(self.path),
                    hint="wait for it, or end it with Ctrl-C or `kill`",
                )
            me = {
                "pid": os.getpid(),
                "host": socket.gethostname(),
                "since": time.strftime("%Y-%m-%d %H:%M:%S"),
            }
            with suppress(OSError):  # a full disk: nobody is told who, the log says the rest
                os.ftruncate(handle, 0)
                os.pwrite(handle, json.dumps(me).encode("ascii"), 0)
            yield
        finally:
            os.close(handle)

    def running(self) -> dict[str, Any] | None:
        """Who is at work right now, None when nobody is."""
        try:
            handle = os.open(self.path / ".lock", os.O_RDONLY)
        except OSError:
            return None
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return self._holder()
        finally:
            os.close(handle)
        return None

    def new_log(self) -> TextIO:
        """The log of a night that begins, open for writing."""
        stamp = time.strftime("%Y%m%d-%H%M%S")
        try:
            for number in range(100):
                path = self.path / (f"{stamp}.{number}.log" if number else f"{stamp}.log")
                with suppress(FileExistsError):
                    return path.open("x", encoding="utf-8", errors="backslashreplace")
        except OSError as error:
            raise self._unwritable(error) from None
        raise UsageError("a hundred nights began this second", where=str(self.path))

    def logs(self) -> list[Path]:
        """The logs of the nights that are kept, the newest first."""
        if not self.path.is_dir():
            return []
        found = [path for path in self.path.iterdir() if _LOG.fullmatch(path.name)]
        return sorted(found, key=lambda path: path.name, reverse=True)

    def marks(self) -> Iterator[Mark]:
        """What the runs of nights say of them, the newest first."""
        if self.runs.is_dir():
            for name in sorted((path.name for path in self.runs.iterdir()), reverse=True):
                if (mark := Mark.read(self.runs / name)) is not None:
                    yield mark

    def night(self, mark: Mark) -> Night:
        """What a night's run left."""
        targets = mark.targets or {}
        whole = mark.exit_code is not None and mark.exit_code != ExitCode.INTERRUPTED
        records = self._records(mark.run)
        return Night.of(mark.run, records, targets, whole, left_out=mark.left_out, since=mark.since)

    def warned(self, run: str) -> tuple[str, ...]:
        """What the last night before ``run`` that came to its end had said already."""
        ended = (mark for mark in self.marks() if mark.run < run and mark.exit_code is not None)
        return next((mark.warnings for mark in ended), ())

    def earlier(self, run: str) -> Iterator[Night]:
        """The nights but ``run`` that have results, the newest first."""
        for mark in self.marks():
            if mark.run == run:
                continue
            night = self.night(mark)
            if any(record.status is not Status.NOT_RUN for record in night.cases.values()):
                yield night

    def prune(self) -> None:
        """Remove logs beyond the newest 60, never that of the last night that went well."""
        old = self.logs()[LOGS_KEPT:]
        if not old:
            return
        good = next((mark.log for mark in self.marks() if mark.exit_code == 0), None)
        for path in old:
            if path.name != good:
                with suppress(OSError):
                    path.unlink()

    def _records(self, run: str) -> list[Record]:
        found: list[Record] = []
        for path in sorted((self.runs / run / "records").rglob("*.jsonl")):
            with suppress(MxfleetError):  # a file that cannot be read has nothing to compare
                found += read_records(path, report=lambda _: None)
        return found

    def _holder(self) -> dict[str, Any]:
        try:
            told = json.loads((self.path / ".lock").read_bytes())
            return {key: told[key] for key in ("pid", "host", "since")}
        except (OSError, ValueError, KeyError, TypeError):
            return {}  # it has not written it yet

    def _unwritable(self, error: OSError) -> UsageError:
        return UsageError(
            f"cannot keep a night's log: {error.strerror}",
            where=str(error.filename or self.path),
            hint="check permissions and free space of the working folder",
        )


def _words(told: dict[str, Any] | None) -> dict[str, str]:
    return {str(name): str(text) for name, text in (told or {}).items()}


def _by(holder: dict[str, Any]) -> str:
    if not holder:
        return ""
    return f" since {holder['since']} (process {holder['pid']} on {holder['host']})"


def _taken(handle: int) -> bool:
    """Whether the lock is ours; tried again, since asking who is at work takes it a moment."""
    for pause in (0.1, 0.3, None):
        with suppress(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        if pause is not None:
            time.sleep(pause)
    return False
