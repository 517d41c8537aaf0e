"""A working folder in which tests run the real `mxfleet` command against the loopback fleet.

The folder starts with the suite below `plain/` (no torch, so a job takes a fraction of a second)
and gets an inventory from `inventory()`. Everything on the targets lies in a store of its own.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .conftest import LoopbackFleet

HERE = Path(__file__).resolve().parent
PLAIN = HERE / "plain"
MXFLEET = Path(sys.executable).with_name("mxfleet")


@dataclass(frozen=True)
class Result:
    """How a command ended and what it said."""

    code: int
    stdout: str
    stderr: str

    def events(self) -> list[dict[str, Any]]:
        """The lines of `--output json`."""
        return [json.loads(line) for line in self.stdout.splitlines()]

    def said(self, target: str) -> list[str]:
        """The lines on standard output that carry `target` in front."""
        pairs = (line.partition("|") for line in self.stdout.splitlines())
        return [text.removeprefix(" ") for name, _, text in pairs if name.strip() == target]

    def __str__(self) -> str:
        return f"exit code {self.code}\n--- stdout\n{self.stdout}\n--- stderr\n{self.stderr}"


@dataclass
class Running:
    """A command that was started: its lines with their time of arrival."""

    process: subprocess.Popen[bytes]
    lines: list[tuple[float, str]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._threads = [
            threading.Thread(target=self._read, daemon=True),
            threading.Thread(target=self._read_errors, daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append((time.monotonic(), line.decode()))

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.errors.append(line.decode())

    def wait_for(self, text: str, count: int = 1, seconds: float = 60) -> None:
        """Return once `count` lines hold `text`."""

        def seen() -> bool:
            return sum(text in line for _, line in self.lines) >= count

        if not wait_until(lambda: seen() or self.process.poll() is not None, seconds) or not seen():
            raise AssertionError(f"{text!r} was not said {count} times:\n{self.result()}")

    def signal_group(self, number: int) -> None:
        """Send a signal as a terminal does: to all processes of the group."""
        os.killpg(self.process.pid, number)

    def result(self, seconds: float = 60) -> Result:
        """Wait for the end."""
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.signal_group(signal.SIGKILL)
            code = self.process.wait()
            self.errors.append(f"(killed: it did not end within {seconds} s)\n")
        for thread in self._threads:
            thread.join(10)
        return Result(code, "".join(line for _, line in self.lines), "".join(self.errors))


class Bench:
    """The working folder and what can be done in it."""

    def __init__(self, fleet: LoopbackFleet, folder: Path, suite: Path | None = PLAIN) -> None:
        self.fleet = fleet
        self.folder = folder
        self.store = f"/tmp/mxfleet-test-{secrets.token_hex(4)}"
        self.locks = f"{self.store}-locks"  # with the host's name behind it
        self.within: tuple[str, ...] = ()  # a command that mxfleet is run by
        if suite is not None:
            shutil.copytree(suite, folder, dirs_exist_ok=True)
            self.inventory()

    def inventory(
        self,
        hosts: dict[str, Any] | None = None,
        groups: dict[str, Any] | None = None,
        **defaults: Any,
    ) -> None:
        """Write inventory.yaml; `defaults` go over those that reach the fleet."""
        users = {"loop1": {"user": "root"}, "loop2": {"user": self.fleet.user}}
        common = {
            "ssh_config": str(self.fleet.ssh_config),
            "container": self.fleet.container,
            "store": self.store,
        }
        # All hosts are this one machine: with one folder for the locks they would wait in turn.
        named = {
            name: {"lock_folder": f"{self.locks}-{name}", **(settings or {})}
            for name, settings in (users if hosts is None else hosts).items()
        }
        text = {"defaults": {**common, **defaults}, "groups": groups or {}, "hosts": named}
        # JSON is YAML.
        (self.folder / "inventory.yaml").write_text(json.dumps(text, indent=1))

    def start(self, *arguments: str, **environment: str) -> Running:
        """Start `mxfleet` in the folder, as the leader of a process group, into pipes."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("MXFLEET", "NO_COLOR"))}
        process = subprocess.Popen(
            [*self.within, MXFLEET, *arguments],
            cwd=self.folder,
            env={**kept, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        return Running(process)

    def mxfleet(self, *arguments: str, code: int | None = 0, seconds: float = 120) -> Result:
        """Run `mxfleet` to its end; `code` None takes any exit code."""
        result = self.start(*arguments).result(seconds)
        assert code is None or result.code == code, f"{arguments}: {result}"
        assert "Traceback" not in result.stderr, result
        return result

    def config(self, op: str, **values: Any) -> None:
        """Overwrite some values of an operator's config."""
        path = self.folder / "benchmark" / "config" / f"{op}.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **values}))

    def runs(self) -> list[Path]:
        """The folders of the runs so far, the oldest first."""
        folder = self.folder / "runs"
        return sorted(folder.iterdir()) if folder.is_dir() else []

    def records(self, run: Path, target: str, op: str) -> list[dict[str, Any]]:
        """What a run keeps of an operator on a target."""
        path = run / "records" / target / f"{op}.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()]

    def tables(self) -> dict[str, list[str]]:
        """The device CSVs: name to lines."""
        folder = self.folder / "benchmark" / "statistics"
        return {path.name: path.read_text().splitlines() for path in sorted(folder.glob("*.csv"))}

    def trees(self, host: str, container: str | None = None) -> list[str]:
        """What lies in the store's trees folder in a host's container, stages included."""
        done = self.fleet.docker(
            host,
            "exec",
            container or self.fleet.container,
            "ls",
            "-A",
            f"{self.store}/trees",
            check=False,
        )
        return [name for name in done.stdout.decode().split() if not name.endswith(".lock")]

    def clean(self) -> None:
        """Remove the store from the containers, and the locks from this machine."""
        for folder in Path(self.locks).parent.glob(f"{Path(self.locks).name}-*"):
            shutil.rmtree(folder)
        for host in self.fleet.hosts:
            self.fleet.in_container(host, "rm", "-rf", self.store, check=False)


def wait_until(ready: Callable[[], bool], seconds: float) -> bool:
    """Poll; whether it became true in time."""
    limit = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > limit:
            return False
        time.sleep(0.1)
    return True


def napping(fleet: LoopbackFleet, nap: int) -> list[str]:
    """Where `sleep NAP` still runs: the mark of what a lingering job started."""
    found = []
    for host in fleet.hosts:
        done = fleet.in_container(host, "pgrep", "-f", f"^sleep {nap}$", check=False)
        found += [f"{host}:{pid}" for pid in done.stdout.decode().split()]
    return found


def snapshot(folder: Path) -> dict[str, bytes]:
    """All files below a folder with their contents."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@contextmanager
def workbench(fleet: LoopbackFleet, folder: Path, suite: Path | None = PLAIN) -> Iterator[Bench]:
    """A `Bench` whose traces on the targets go away with it."""
    bench = Bench(fleet, folder, suite)
    try:
        yield bench
    finally:
        bench.clean()
