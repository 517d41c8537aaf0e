"""``mxfleet nightly install``, ``status`` and ``remove``: the crontab entry of a working folder.

cron starts a command with next to nothing: no PATH to speak of, no ssh-agent, no terminal. The
entry therefore starts a script, ``nightly/cron.sh``, that sets what this shell has.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from orchestrator.errors import ExitCode, UsageError
from orchestrator.events import NightlyState, Note, Sink, Summary
from orchestrator.inventory.load import load
from orchestrator.results.files import replace
from orchestrator.workflows.nightly_crontab import SCRIPT, Crontab, Entry, time_of_day
from orchestrator.workflows.nightly_folder import NightFolder

# What else a night may need of the environment. An agent's socket is no use: it ends with a login.
_KEPT = ("HOME", "PATH", "PYTHONPATH", "DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG")
_TIME = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)")


def install(inventory: Path, sink: Sink, at: str) -> ExitCode:
    """Have cron run a night every day at ``at`` (``HH:MM``, this machine's time), and show how.

    Again with another time changes it. Raises ``UsageError`` for an invalid time, without a crontab
    command or where it is not allowed, ``ConfigError`` when the inventory is wrong.
    """
    clock = _TIME.fullmatch(at.strip())
    if clock is None:
        raise UsageError(f"--at {at!r} is no time of day", hint="for example: --at 02:00")
    hour, minute = int(clock[1]), int(clock[2])
    load(inventory)
    inventory = inventory.absolute()
    entry, crontab = Entry(inventory.parent), Crontab()
    script = entry.folder / SCRIPT
    with crontab.alone():
        before = crontab.read()
        _write_script(script, inventory)
        after = entry.put(before, hour, minute)
        if after != before:
            crontab.write(after)
    sink(_state(entry, after, NightFolder(entry.folder)))
    if not _daemon_runs():
        text = "no cron daemon was seen on this machine: without one no night will begin"
        sink(Note(text, level="warning"))
    tried = f"env -i /bin/sh {shlex.quote(str(script))}"
    sink(
        Summary(
            command="nightly install",
            exit_code=0,
            files=(str(script),),
            message=f"{'installed' if after != before else 'installed already'}; "
            f"a night as cron begins it: {tried}",
        )
    )
    return ExitCode.OK


def remove(inventory: Path, sink: Sink) -> ExitCode:
    """Take the entry out; logs and runs stay. A night that is at work goes on."""
    entry, crontab = Entry(inventory.absolute().parent), Crontab()
    with crontab.alone():
        before = crontab.read()
        after = entry.taken_out(before)
        if after != before:
            crontab.write(after)
    (entry.folder / SCRIPT).unlink(missing_ok=True)
    message = "removed" if after != before else "nothing was installed"
    sink(Summary(command="nightly remove", exit_code=0, message=message))
    return ExitCode.OK


def status(inventory: Path, sink: Sink) -> ExitCode:
    """Tell what is installed, what runs and how the last night went."""
    entry = Entry(inventory.absolute().parent)
    folder = NightFolder(entry.folder)
    installed = b""
    try:
        installed = Crontab().read()
    except UsageError as error:
        sink(Note(str(error), level="warning"))
    state = _state(entry, installed, folder)
    sink(state)
    for text in _doubts(entry, installed, folder):
        sink(Note(text, level="warning"))
    sink(
        Summary(
            command="nightly status",
            exit_code=0,
            message="installed" if state.installed else "not installed: mxfleet nightly install",
        )
    )
    return ExitCode.OK


def _state(entry: Entry, crontab: bytes, folder: NightFolder) -> NightlyState:
    line = entry.installed(crontab)
    clock = time_of_day(line) if line is not None else None
    running = folder.running()
    return NightlyState(
        folder=str(entry.folder),
        installed=line is not None,
        entry=os.fsdecode(line) if line is not None else None,
        next_start=_due(*clock, after=datetime.now()).timestamp() if clock else None,
        running=running,
        last=_last(folder, running is not None),
    )


def _last(folder: NightFolder, running: bool) -> dict[str, Any] | None:
    """The last night that is over, however it ended."""
    logs = folder.logs()[1 if running else 0 :]
    if not logs:
        return None
    log = logs[0]
    told: dict[str, Any] = {"log": str(log), "run": None, "exit_code": None, "message": None}
    mark = next((mark for mark in folder.marks() if mark.log == log.name), None)
    if mark is not None:
        return {**told, "run": mark.run, "exit_code": mark.exit_code, "message": mark.message}
    with suppress(OSError):  # it ended before it had a run: its last line says why
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        told["message"] = lines[-1] if lines else None
        code = re.search(r", exit code (\d+)$", lines[-1]) if lines else None
        told["exit_code"] = int(code[1]) if code else None
    return told


def _doubts(entry: Entry, crontab: bytes, folder: NightFolder) -> list[str]:
    """Why nights may not begin although they are installed."""
    line = entry.installed(crontab)
    if line is None:
        return []
    doubts = []
    script = entry.folder / SCRIPT
    try:
        since = datetime.fromtimestamp(script.stat().st_mtime)
    except OSError:
        return [f"{script} is gone; mxfleet nightly install writes it again"]
    if not _daemon_runs():
        doubts.append("no cron daemon was seen on this machine: no night will begin")
    clock = time_of_day(line)
    now = datetime.now()
    if clock is not None:
        due = _due(*clock, after=now - timedelta(days=1))
        begun = any(path.name >= due.strftime("%Y%m%d-%H%M%S") for path in folder.logs()[:1])
        if since < due < now - timedelta(minutes=2) and not begun:
            doubts.append(
                f"no night began at {due:%Y-%m-%d %H:%M}; was the machine on, and what does "
                f"/bin/sh {shlex.quote(str(script))} say?"
            )
    return doubts


def _due(hour: int, minute: int, *, after: datetime) -> datetime:
    today = after.replace(hour=hour, minute=minute, second=0, microsecond=0)
    return today if today > after else today + timedelta(days=1)


def _write_script(script: Path, inventory: Path) -> None:
    kept = {name: value for name in _KEPT if (value := os.environ.get(name))}
    words = [*_command(), "nightly", "run", "--brief", "--inventory", str(inventory)]
    text = "\n".join(
        [
            "#!/bin/sh",
            "# Written by `mxfleet nightly install`; `mxfleet nightly remove` deletes it.",
            *(f"export {name}={shlex.quote(value)}" for name, value in kept.items()),
            f"cd {shlex.quote(str(inventory.parent))} || exit 2",
            f"exec {shlex.join(words)} </dev/null",
            "",
        ]
    )
    content = os.fsencode(text)
    try:
        script.parent.mkdir(exist_ok=True)
        if script.is_file() and script.read_bytes() == content:
            return
    except OSError as error:
        raise UsageError(
            f"the script for cron cannot be written: {error.strerror}", where=str(script)
        ) from None
    replace(script, content)


def _command() -> list[str]:
    """How cron starts this mxfleet: by its own Python, wherever the search path leads then."""
    program = Path(sys.argv[0])
    if program.name == "mxfleet" and program.is_file():
        return [sys.executable, str(program.absolute())]
    return [sys.executable, "-m", "orchestrator"]


def _daemon_runs() -> bool:
    """Whether a cron daemon is seen; where that cannot be told (macOS starts it itself), yes."""
    pgrep = shutil.which("pgrep")
    if sys.platform != "linux" or pgrep is None:
        return True
    done = subprocess.run(
        [pgrep, "-x", "cron|crond|fcron|cronie"], capture_output=True, check=False
    )
    return done.returncode != 1
