"""Hosts of a test's own and operators of any number, for runs with much going on.

A host is this machine through an sshd of its own, so that its links can be cut and its login
environment chosen; jobs run on it without a container. Operators are told by their configs what to
do, and each notes in a ledger when it begins and when it is done: what really ran, whatever is said
about it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from .conftest import LoopbackFleet
from .sshd import Sshd
from .workbench import Bench

RUNNER = """
import os, sys, time
from pathlib import Path
from mcoplib_mxbenchmark_op_wrapper import OpBenchmarkBase


class Runner(OpBenchmarkBase):
    def note(self, what):
        line = f"{what} {self.name} {os.environ.get('HOST_NAME', '')}\\n"
        handle = os.open(self.config["ledger"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(handle, line.encode())
        os.close(handle)

    def run(self, records):
        config = self.config
        self.note("begin")
        for number in range(config.get("early", 0)):
            records.measured(1000 + number, 3)
        if config.get("wrong"):
            records._write(parameters={"size": 1}, status="FAILED", verification={"passed": False})
        elif config.get("missing"):
            records._write(parameters={"size": 1}, status="UNAVAILABLE")
        for number in range(config.get("lines", 0)):
            print(f"{self.name} line {number}", flush=True)
            time.sleep(config.get("pause", 0.05))
        hung = Path(config["hangs"]) if "hangs" in config else None
        if hung is not None and not (config.get("once") and hung.exists()):
            hung.touch()
            time.sleep(3600)
        until = config.get("until")
        while until and not Path(until).exists():
            time.sleep(0.05)
        if config.get("shows"):
            print("shows", {n: os.environ.get(n) for n in config["shows"]}, sys.argv, flush=True)
        if not (config.get("wrong") or config.get("missing")):
            records.measured(4096, 3)
        self.note("done")
"""


class Many:
    """A working folder with hosts h1, h2, … and the operators that ``ops`` makes."""

    def __init__(self, bench: Bench, sshds: Mapping[str, Sshd], folder: Path) -> None:
        self.bench = bench
        self.sshds = sshds
        self.folder = folder
        self.ledger = folder / "ledger"

    def inventory(
        self, hosts: Mapping[str, Mapping[str, Any] | None] | None = None, **defaults: Any
    ) -> None:
        """Write the inventory: all hosts, or those named with what is set for them."""
        named = {
            name: {
                "ssh_config": str(self.sshds[name].endpoint(name=name).ssh_config),
                "store": self.store(name),
                "lock_folder": str(self.folder / f"locks-{name}"),
                "env": {"HOST_NAME": name},
                **(settings or {}),
            }
            for name, settings in (hosts or dict.fromkeys(self.sshds)).items()
        }
        common = {"container": "none", "env_script": "none", **defaults}
        self.bench.inventory(hosts=named, **common)

    def store(self, name: str) -> str:
        """Where a host keeps its jobs."""
        return str(self.folder / f"store-{name}")

    def ops(self, **ops: Mapping[str, Any]) -> None:
        """Make these, with their configs, the operators of the working folder."""
        benchmark = self.bench.folder / "benchmark"
        for folder in ("config", "runners"):
            for path in (benchmark / folder).iterdir():
                path.unlink() if path.is_file() else None
        for op, config in ops.items():
            self.op(op, **config)
        script = benchmark / "mcoplib_mxbenchmark_ops.py"
        head, _, rest = script.read_text().partition("SUPPORTED_OPERATORS = [")
        listed = f"SUPPORTED_OPERATORS = {json.dumps(list(ops))}"
        script.write_text(head + listed + rest.partition("]")[2])

    def op(self, op: str, **config: Any) -> None:
        """Write one operator's config and runner."""
        benchmark = self.bench.folder / "benchmark"
        told = {"ledger": str(self.ledger), **config}
        (benchmark / "config" / f"{op}.json").write_text(json.dumps(told))
        (benchmark / "runners" / f"mcoplib_mxbenchmark_{op}_runners.py").write_text(RUNNER)

    def noted(self, what: str) -> Counter[str]:
        """How often each operator noted that: "begin" or "done"."""
        return Counter(op for told, op, _ in self._lines() if told == what)

    def done_by(self) -> dict[str, list[str]]:
        """Which hosts got done with each operator."""
        found: dict[str, list[str]] = {}
        for told, op, host in self._lines():
            if told == "done":
                found.setdefault(op, []).append(host)
        return found

    def _lines(self) -> list[list[str]]:
        text = self.ledger.read_text() if self.ledger.exists() else ""
        return [line.split(" ") for line in text.splitlines()]

    def jobs(self, name: str) -> list[str]:
        """The job folders on a host as OP.aN, in the order of their names."""
        folder = Path(self.store(name)) / "jobs"
        names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
        return sorted(f"{n.split('.')[2]}.{n.split('.')[-1]}" for n in names)

    def rows(self, run: Path) -> Counter[tuple[str, str, str]]:
        """Target, operator and status of all records that a run keeps."""
        found: Counter[tuple[str, str, str]] = Counter()
        for path in run.glob("records/*/*.jsonl"):
            for line in path.read_text().splitlines():
                found[path.parent.name, path.stem, json.loads(line)["status"]] += 1
        return found

    def csv_rows(self) -> list[str]:
        """The operators of the device CSV's lines."""
        ((_, lines),) = self.bench.tables().items()
        return [line.split(",")[0] for line in lines[1:]]

    def alive(self, name: str = "h") -> list[int]:
        """Processes of any job of these hosts, or of one of them."""
        found = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                if f"{self.folder}/store-{name}".encode() in path.read_bytes():
                    found.append(int(path.parent.name))
        return found

    def cut(self, name: str) -> None:
        """End a host's connections and nothing else; it takes new ones at once."""
        for pid in self.carriers(name):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def down(self, name: str) -> None:
        """The same, and it takes no new ones until ``sshds[name].start()``."""
        os.kill(self.sshds[name].listener, signal.SIGSTOP)  # nothing gets in between
        self.cut(name)
        os.kill(self.sshds[name].listener, signal.SIGKILL)

    def signal_carriers(self, name: str, number: int) -> list[int]:
        """SIGSTOP: a host's connections carry nothing any more, though they stand."""
        pids = self.carriers(name)
        for pid in pids:
            os.kill(pid, number)
        return pids

    def carriers(self, name: str) -> list[int]:
        """The processes that carry a host's connections: what runs over them lives on."""
        return [pid for pid in self.sshds[name].sessions() if _is_sshd(pid)]


def _is_sshd(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().startswith("sshd")
    return False


@contextmanager
def many(
    fleet: LoopbackFleet,
    folder: Path,
    count: int = 1,
    options: Mapping[str, Mapping[str, str]] | None = None,
) -> Iterator[Many]:
    """``count`` hosts and a working folder; ``options`` are their sshd's settings, by host."""
    with ExitStack() as stack:
        bench = Bench(fleet, folder / "work")
        sshds = {}
        for number in range(1, count + 1):
            name = f"h{number}"
            sshds[name] = Sshd(folder / f"sshd-{name}", (options or {}).get(name))
            stack.callback(sshds[name].stop)
        made = Many(bench, sshds, folder)
        made.inventory()
        yield made
