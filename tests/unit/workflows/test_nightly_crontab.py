"""The crontab entry: every other line stays, and what is installed really starts a night."""

from __future__ import annotations

import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest

from orchestrator.errors import ExitCode, UsageError
from orchestrator.events import Event, NightlyState, Note, Summary
from orchestrator.workflows.nightly_cron import install, remove, status
from orchestrator.workflows.nightly_crontab import Entry

# Keeps the crontab in a file beside itself, and what it refuses in another.
_CRONTAB = """#!/bin/sh
here=$(dirname "$0")
test -e "$here/refusal" && { cat "$here/refusal" >&2; exit 1; }
case $1 in
  -l) test -e "$here/tab" || { echo "no crontab for $USER" >&2; exit 1; }; cat "$here/tab" ;;
  -) test -e "$here/readonly" && { echo "disk full" >&2; exit 1; }; cat >"$here/tab" ;;
  -r) rm "$here/tab" ;;
esac
"""
OTHERS = [
    b"",
    b"MAILTO=me@example.org\n\n  */5 * * * *\tfoo \xff % bar\n# a comment\n",
    b"PATH=/usr/bin\r\n0 3 * * * x",  # without a line end
    b"\n\n\n",
    b"# mxfleet nightly of /another/folder\n5 5 * * * /bin/sh /another/folder/nightly/cron.sh\n",
]
NAMES = ["plain", "two words", "100%", 'it\'s "q" $HOME `x`', "nächte-夜", "50% of 'it'; #&"]


class Heard:
    def __init__(self) -> None:
        self.events: list[Event] = []

    def __call__(self, event: Event) -> None:
        self.events.append(event)

    def state(self) -> NightlyState:
        return [event for event in self.events if isinstance(event, NightlyState)][-1]

    def summary(self) -> Summary:
        return [event for event in self.events if isinstance(event, Summary)][-1]

    def warnings(self) -> str:
        notes = [event for event in self.events if isinstance(event, Note)]
        return "\n".join(note.message for note in notes if note.level == "warning")


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def cron(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a crontab command that is found first; its ``tab`` is the crontab."""
    folder = tmp_path / "cron"
    folder.mkdir()
    (folder / "crontab").write_text(_CRONTAB)
    (folder / "crontab").chmod(0o755)
    # A daemon is there or not, whatever runs on this machine.
    (folder / "pgrep").write_text('#!/bin/sh\ntest ! -e "$(dirname "$0")/no-daemon"\n')
    (folder / "pgrep").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder


def working(tmp_path: Path, name: str = "plain") -> Path:
    folder = tmp_path / name
    folder.mkdir()
    (folder / "inventory.yaml").write_text("hosts:\n  here: {transport: local}\n")
    return folder / "inventory.yaml"


@pytest.mark.parametrize("others", OTHERS)
def test_every_other_line_stays(cron: Path, tmp_path: Path, heard: Heard, others: bytes) -> None:
    tab, one, two = cron / "tab", working(tmp_path, "one"), working(tmp_path, "two")
    tab.write_bytes(others)
    whole = others if not others or others.endswith(b"\n") else others + b"\n"
    assert install(one, heard, "02:00") == ExitCode.OK
    only_one = tab.read_bytes()
    assert only_one.startswith(whole) and only_one.count(b"\n") == whole.count(b"\n") + 2
    install(two, heard, "3:07")
    both = tab.read_bytes()
    assert both.startswith(only_one) and b"\n7 3 * * * /bin/sh " in both
    for time in ("02:00", "23:59"):  # again, and at another time, in its place
        install(one, heard, time)
        assert tab.read_bytes() == both.replace(
            b"\n0 2 *", b"\n%d %d *" % (int(time[3:]), int(time[:2]))
        )
    remove(one, heard)
    remove(two, heard)
    assert tab.read_bytes() == whole if whole else not tab.exists()
    assert not (one.parent / "nightly" / "cron.sh").exists()
    remove(two, heard)
    assert heard.summary().message == "nothing was installed"


def test_what_is_installed_already_is_not_written_again(
    cron: Path, tmp_path: Path, heard: Heard
) -> None:
    inventory = working(tmp_path)
    install(inventory, heard, "02:00")
    (cron / "readonly").touch()
    install(inventory, heard, "02:00")
    assert "installed already" in str(heard.summary().message)


@pytest.mark.parametrize("name", NAMES)
def test_the_entry_starts_a_night_in_an_empty_environment(
    cron: Path, tmp_path: Path, heard: Heard, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    inventory = working(tmp_path, name)
    program = tmp_path / "bin dir" / "mxfleet"
    program.parent.mkdir()
    program.write_text("import os, sys\nprint(sys.argv[1:], os.getcwd(), os.environ['PATH'])\n")
    monkeypatch.setattr(sys, "argv", [str(program), "nightly", "install"])
    install(inventory, heard, "02:00")
    line = next(
        line for line in (cron / "tab").read_text().splitlines() if line.startswith("0 2 * * * ")
    )
    # What cron does of a command: an unescaped % ends it, the backslash of others goes.
    command = line.removeprefix("0 2 * * * ").replace("\\%", "\0")
    assert "%" not in command
    command = command.replace("\0", "%")
    done = subprocess.run(
        ["/bin/sh", "-c", command], env={}, capture_output=True, text=True, check=True, cwd="/"
    )
    arguments = ["nightly", "run", "--brief", "--inventory", str(inventory)]
    assert done.stdout.rstrip() == f"{arguments} {inventory.parent} {cron}:/usr/bin:/bin"
    assert done.stderr == ""


def test_status_tells_what_is_there(cron: Path, tmp_path: Path, heard: Heard) -> None:
    inventory = working(tmp_path)
    status(inventory, heard)
    state = heard.state()
    assert (state.installed, state.next_start, state.last, state.running) == (
        False,
        None,
        None,
        None,
    )
    install(inventory, heard, "04:05")
    status(inventory, heard)
    state = heard.state()
    assert state.installed and state.entry and state.entry.startswith("5 4 * * * /bin/sh ")
    assert state.next_start is not None
    due = datetime.fromtimestamp(state.next_start)
    assert (due.hour, due.minute) == (4, 5) and due > datetime.now()
    assert heard.warnings() == ""


def test_an_edited_schedule_is_kept_and_told(cron: Path, tmp_path: Path, heard: Heard) -> None:
    inventory = working(tmp_path)
    install(inventory, heard, "04:05")
    tab = cron / "tab"
    tab.write_bytes(tab.read_bytes().replace(b"5 4 * * * ", b"5 4 * * 1-5 "))
    status(inventory, heard)
    assert heard.state().installed and heard.state().next_start is None
    tab.write_bytes(tab.read_bytes().replace(b"5 4 ", b"# 5 4 "))
    status(inventory, heard)
    assert not heard.state().installed
    install(inventory, heard, "04:05")
    status(inventory, heard)
    assert heard.state().installed and tab.read_bytes().count(b"\n") == 2


def test_doubts_are_told(cron: Path, tmp_path: Path, heard: Heard) -> None:
    inventory = working(tmp_path)
    (cron / "no-daemon").touch()
    install(inventory, heard, "04:05")
    assert "no cron daemon was seen" in heard.warnings()
    (cron / "no-daemon").unlink()
    (inventory.parent / "nightly" / "cron.sh").unlink()
    status(inventory, heard)
    assert "cron.sh is gone" in heard.warnings()


def refuse(cron: Path, said: str) -> None:
    (cron / "refusal").write_text(said)


@pytest.mark.parametrize(
    ("prepare", "at", "said"),
    [
        (lambda cron: (cron / "crontab").unlink(), "02:00", "there is no crontab command here"),
        (
            lambda cron: refuse(cron, "You (x) are not allowed to use this program\n"),
            "02:00",
            "the crontab cannot be read: You (x) are not allowed",
        ),
        (lambda cron: (cron / "readonly").touch(), "02:00", "cannot be written: disk full"),
        *[(lambda cron: None, at, "is no time of day") for at in ("24:00", "2", "12:60", "", "x")],
    ],
)
def test_what_prevents_it_is_one_sentence(
    cron: Path,
    tmp_path: Path,
    heard: Heard,
    monkeypatch: pytest.MonkeyPatch,
    prepare: object,
    at: str,
    said: str,
) -> None:
    inventory = working(tmp_path)
    monkeypatch.setenv("PATH", str(cron) + ":/usr/bin:/bin")
    if "no crontab" in said:
        monkeypatch.setenv("PATH", str(tmp_path))
    prepare(cron)  # type: ignore[operator]
    with pytest.raises(UsageError) as raised:
        install(inventory, heard, at)
    assert said in str(raised.value)
    assert not (cron / "tab").exists()


@pytest.mark.parametrize("name", ["a\\b", "a\nb", "x" * 1000])
def test_paths_that_cron_cannot_carry(name: str) -> None:
    with pytest.raises(UsageError):
        Entry(Path("/") / name)
