"""One operator of ``testall``: run its front door, keep its records, say what became of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import files, record, warm
from harness.cli import PARENT
from harness.errors import ForeignFileError
from harness.session import EXIT_CODES, UNDECIDED, exit_code

GRACE = 5.0
# Lines of an operator's output shown when it did not succeed, and characters of each.
TAIL, WIDTH = 20, 500
# Of what an operator prints, so many of the last bytes are looked at: it may print gigabytes.
LOOKED_AT = 1 << 20
_CODES = {*EXIT_CODES.values(), 2, UNDECIDED} - {0}
# Worst first: the status that stands for an operator with several cases.
_SEVERITY = ("ERROR", "TIMEOUT", "FAILED", "NOT_RUN", "UNAVAILABLE", "UNVERIFIED", "PASSED")
_DONE = {
    "[APPEND]": "appended",
    "[NEW]": "appended",
    "[UPDATE]": "updated",
    "[SKIP]": "exists",
    "[KEEP]": "kept",
    "Result:": "compared",
}


@dataclass(frozen=True)
class Result:
    """What became of one operator; ``note`` says more in a few words."""

    status: str
    note: str
    code: int
    output: bytes = b""
    records: tuple[dict[str, Any], ...] = ()
    # After it the device answers no more, so nothing else can run there.
    device_dead: bool = False

    def tail(self) -> list[str]:
        """The last lines of ``output``, long ones cut."""
        lines = self.output.decode("utf-8", "replace").splitlines()[-TAIL:]
        return [line if len(line) <= WIDTH else f"{line[:WIDTH]} ..." for line in lines]


class Job:
    """One operator's front door: forked by a warm server, else in a fresh Python."""

    def __init__(self, root: Path, argv: Sequence[str], server: warm.Server | None) -> None:
        self._root = root
        self._argv = argv
        self._server = server
        self._process: subprocess.Popen[bytes] | None = None
        self._killed = False
        self._starting = threading.Lock()

    def run(self, output: int, limit: float) -> int | None:
        """The exit code, negative for a signal; None when it was killed after ``limit`` s."""
        if self._server is not None:
            started = self._server.start(self._argv, output)
            if isinstance(started, int):
                return self._forked(started, limit)
            os.write(output, f"warning: not forked from the warm process: {started}\n".encode())
        return self._fresh(output, limit)

    def kill(self) -> None:
        """End a front door that no server will end, and start none; for another thread."""
        with self._starting:
            self._killed = True
        if self._process is not None:
            warm.end_group(self._process.pid, GRACE)

    def _forked(self, pid: int, limit: float) -> int | None:
        assert self._server is not None
        status: int | None = None
        try:
            status = self._server.wait(limit)
        except ConnectionError:
            return -signal.SIGKILL
        finally:
            warm.end_group(pid, GRACE)
        if status is None:
            # One that comes later still is passed over by the next start.
            with suppress(ConnectionError):
                self._server.wait(GRACE)
            return None
        return os.waitstatus_to_exitcode(status)

    def _fresh(self, output: int, limit: float) -> int | None:
        with self._starting:
            if self._killed:
                return -signal.SIGTERM
            self._process = process = subprocess.Popen(
                [sys.executable, "-u", str(self._root / warm.FRONT_DOOR), *self._argv],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, PARENT: str(os.getpid())},
            )
        reaper = threading.Thread(target=process.wait)
        reaper.start()
        try:
            reaper.join(limit)
            timed_out = reaper.is_alive()
        finally:
            warm.end_group(process.pid, GRACE)
            reaper.join()
        return None if timed_out else process.returncode


def end_of(output: Path) -> bytes:
    """The last ``LOOKED_AT`` bytes of a file, from the first whole line on where there is one."""
    with output.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - LOOKED_AT))
        text = file.read(LOOKED_AT)
    return text if size <= LOOKED_AT else text.partition(b"\n")[2] or text


def keep(own: Path, records: Path) -> list[dict[str, Any]]:
    """Move the operator's records to those of the run; an unfinished last line is not one."""
    try:
        lines = files.read_regular(own).split(b"\n")[:-1]
    except FileNotFoundError:
        return []
    kept = []
    for number, line in enumerate(lines, start=1):
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            found = None
        status = found.get("status") if isinstance(found, dict) else None
        if not isinstance(status, str) or status not in EXIT_CODES:
            raise ForeignFileError(
                f"{own}:{number}: the operator wrote into its own records; none of them is kept"
            )
        kept.append(found)
    record.append(records, *kept)
    return kept


def judge(code: int, kept: Sequence[dict[str, Any]], text: bytes, *, strict: bool) -> Result:
    """What became of an operator, by its exit code, its records and what it printed."""
    records = tuple(kept)
    statuses = [str(r["status"]) for r in records]
    if code < 0:
        return Result("ERROR", f"killed by {signal.Signals(-code).name}", 1, text, records)
    if not statuses:
        said = text.decode("utf-8", "replace").strip().splitlines()
        why = said[-1].removeprefix("error: ") if said else f"exit code {code}, no result"
        if code == EXIT_CODES["UNAVAILABLE"]:  # the machine is at fault, not the operator
            return Result("NOT_RUN", why, code, text)
        return Result("ERROR", why, 2 if code == 2 else 1, text)
    status = next(s for s in _SEVERITY if s in statuses)
    due = exit_code(records, strict=strict)
    dead = code == EXIT_CODES["UNAVAILABLE"] != due
    if code != due and (status == "PASSED" or not dead):
        # It is not for its cases that it ended so, but for what came after: the table, say.
        told = code if code in _CODES else 1
        return Result("ERROR", f"exit code {code}", told, text, records, dead)
    if status == "PASSED":
        done = [word for mark, word in _DONE.items() if mark.encode() in text]
        if b"Performance verify:None" in text:
            done = ["no row to compare with"]
        lines = text.decode("utf-8", "replace").splitlines()
        gone = [line for line in lines if line.startswith("[KNOWN]")]
        return Result(status, ", ".join([*done, *gone]) or "measured", 0, b"", records)
    # An unavailable operator only counts.
    counting = [r for r in records if strict or r["status"] != "UNAVAILABLE"]
    counted = exit_code(counting, strict=strict)
    note = f"{statuses.count(status)} of {len(statuses)} cases" if len(statuses) > 1 else ""
    known = [r["known_failure"]["reason"] for r in records if r.get("known_failure")]
    if known and counted == 0 and status != "UNAVAILABLE":
        note = f"known: {known[0]}"
    counted = counted or (code if dead else 0)
    return Result(status, note or f"exit code {code}", counted, text, records, dead)
