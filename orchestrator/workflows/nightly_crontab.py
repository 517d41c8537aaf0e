"""Our entry in the user's crontab: every other line stays byte by byte.

An entry is a comment line that names the working folder and the line below it, which starts the
folder's ``nightly/cron.sh``: a line of a crontab may be too short for a PATH.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import UsageError

SCRIPT = Path("nightly") / "cron.sh"
_LONGEST = 900  # of a command: cron takes less than 1000 bytes, and some cut the rest off silently
_AT = re.compile(rb"(\d{1,2})\s+(\d{1,2})\s+\*\s+\*\s+\*\s+")


@dataclass(frozen=True)
class Entry:
    """The crontab entry of one working folder."""

    folder: Path

    def __post_init__(self) -> None:
        text = str(self.folder)
        if not text.isprintable() or "\\" in text:
            raise UsageError(
                "cron cannot carry a path with a backslash or a control character",
                where=text,
                hint="rename the folder",
            )
        if len(self._command) > _LONGEST:
            raise UsageError(
                "the path is longer than cron can carry", where=text, hint="move the folder"
            )

    @property
    def marker(self) -> bytes:
        """The comment line above the entry."""
        return b"# mxfleet nightly of " + os.fsencode(self.folder)

    @property
    def _command(self) -> bytes:
        # Unescaped, a percent sign ends the command: the rest would be its input.
        script = shlex.quote(str(self.folder / SCRIPT)).replace("%", "\\%")
        return b"/bin/sh " + os.fsencode(script)

    def line(self, hour: int, minute: int) -> bytes:
        """The entry itself."""
        return b"%d %d * * * %s" % (minute, hour, self._command)

    def installed(self, crontab: bytes) -> bytes | None:
        """The entry as it is in ``crontab``, its schedule maybe edited; None when there is none."""
        found = [line for line in crontab.split(b"\n") if self._is_ours(line)]
        return next((line for line in found if not line.lstrip().startswith(b"#")), None)

    def put(self, crontab: bytes, hour: int, minute: int) -> bytes:
        """``crontab`` with the entry, in its former place or at the end."""
        ours = [self.marker, self.line(hour, minute)]
        lines = crontab.split(b"\n")
        if not any(self._is_ours(line) or line == self.marker for line in lines):
            if lines[-1]:
                lines.append(b"")
            return b"\n".join([*lines[:-1], *ours, b""])
        kept: list[bytes] = []
        for line in lines:
            if self._is_ours(line) or line == self.marker:
                kept += ours
                ours = []
            else:
                kept.append(line)
        return b"\n".join(kept)

    def taken_out(self, crontab: bytes) -> bytes:
        """``crontab`` without the entry."""
        return b"\n".join(
            line for line in crontab.split(b"\n") if not self._is_ours(line) and line != self.marker
        )

    def _is_ours(self, line: bytes) -> bool:
        return line.rstrip().endswith(b" " + self._command)


def time_of_day(line: bytes) -> tuple[int, int] | None:
    """Hour and minute of a line's schedule, None where it was edited to something else."""
    found = _AT.match(line.lstrip())
    return (int(found[2]), int(found[1])) if found else None


class Crontab:
    """The user's crontab, through the ``crontab`` command."""

    def __init__(self) -> None:
        program = shutil.which("crontab")
        if program is None:
            raise UsageError(
                "there is no crontab command here",
                hint="install cron (apt-get install cron), or let another scheduler run "
                "`mxfleet nightly run` in the working folder",
            )
        self._program = program

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Read and write with no other mxfleet in between; the program itself is what is locked."""
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(OSError):  # not readable: then without
                handle = os.open(self._program, os.O_RDONLY)
                stack.callback(os.close, handle)
                fcntl.flock(handle, fcntl.LOCK_EX)
            yield

    def read(self) -> bytes:
        """What the user has, empty when nothing. Raises ``UsageError`` when it is not allowed."""
        done = self._run("-l")
        if done.returncode == 0:
            return done.stdout
        said = done.stderr.decode(errors="replace")
        if re.search(r"no crontab|no such file", said, re.IGNORECASE):
            return b""
        raise self._refused("read", said)

    def write(self, content: bytes) -> None:
        """Replace it; an empty one goes. Raises ``UsageError`` when cron does not take it."""
        done = self._run("-", content) if content else self._run("-r")
        if done.returncode:
            raise self._refused("written", done.stderr.decode(errors="replace"))

    def _run(self, argument: str, content: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        try:
            return subprocess.run(
                [self._program, argument],
                input=content,
                capture_output=True,
                env={**os.environ, "LC_ALL": "C"},
                check=False,
            )
        except OSError as error:
            raise self._refused("used", error.strerror or str(error)) from None

    def _refused(self, verb: str, said: str) -> UsageError:
        return UsageError(
            f"the crontab cannot be {verb}: {' '.join(said.split())[:300] or 'no reason given'}",
            where=self._program,
            hint="may this user have one (cron.allow, cron.deny)?",
        )
