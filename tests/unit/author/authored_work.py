"""A working folder whose benchmark/ lacks the trees' operators, and the commands run in it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from authored import AUTHORED, HERE, REPOSITORY, STAND_INS, TREES, Authored

_WHITELIST = "mcoplib_mxbenchmark_ops.py"
# What tells an open point in a generated runner; ``mxfleet check`` knows the same.
TODO = "# TODO(mxfleet)"

INVENTORY = """
defaults:
  transport: local
  python: {python}
  store: {store}
  env: {env}
hosts:
  here: {{}}
"""


@dataclass(frozen=True)
class Ran:
    """What a command did, and the seconds it took as a whole process."""

    code: int
    out: str
    err: str
    seconds: float = 0.0

    def events(self) -> list[dict[str, Any]]:
        """Its JSON lines."""
        return [json.loads(line) for line in self.out.splitlines()]


class Work:
    """A working folder as ``mxfleet init`` lays it out.

    ``environment``: of the commands; by default this one, and nothing is compiled into files.
    """

    def __init__(self, folder: Path, environment: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.benchmark = folder / "benchmark"
        self._environment = environment or {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}

    def lay_out(self, env: dict[str, str] | None = None) -> Work:
        """Make it, for jobs on this machine with ``env``.

        By default on the CPU, with the stand-ins as operator libraries.
        """
        done = self._run(["init", str(self.folder)], self.folder.parent)
        assert done.code == 0, done.err
        for authored in AUTHORED:
            self.drop(authored)
        path = os.pathsep.join(map(str, (STAND_INS, HERE, TREES / "torchlib")))
        env = {"PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": ""} if env is None else env
        text = INVENTORY.format(
            python=sys.executable, store=self.folder / "store", env=json.dumps(env)
        )
        (self.folder / "inventory.yaml").write_text(text)
        return self

    def drop(self, authored: Authored) -> None:
        """Take away what the repository ships for an operator."""
        for name in authored.files()[:2]:
            (self.benchmark / name).unlink(missing_ok=True)
        door = self.benchmark / _WHITELIST
        text = re.sub(rf'^ *"{authored.name}",\n', "", door.read_text(), flags=re.M)
        door.write_text(text)

    def whitelist(self) -> list[str]:
        """The lines of the file that the whitelist stands in."""
        return (self.benchmark / _WHITELIST).read_text().splitlines()

    def runner(self, authored: Authored) -> str:
        """The source of a generated runner."""
        return (self.benchmark / authored.files()[1]).read_text()

    def todos(self, authored: Authored) -> list[str]:
        """The lines of a generated runner that say what could not be determined."""
        return [line for line in self.runner(authored).splitlines() if TODO in line]

    def state(self) -> dict[str, bytes]:
        """All files of benchmark/ by name."""
        files = [path for path in self.benchmark.rglob("*") if path.is_file()]
        return {str(path.relative_to(self.benchmark)): path.read_bytes() for path in files}

    def generate(self, authored: Authored, *flags: str) -> Ran:
        """``mxfleet gen op`` as a process."""
        return self.mxfleet(*authored.arguments(), *flags)

    def mxfleet(self, *words: str) -> Ran:
        """Any command in the working folder."""
        return self._run(words, self.folder)

    def measure(self, authored: Authored, *flags: str) -> list[dict[str, Any]]:
        """``mxfleet push`` and ``run``; the records of the operator."""
        pushed = self.mxfleet("push")
        assert pushed.code == 0, pushed.out + pushed.err
        ran = self.mxfleet("run", "--op", authored.name, "--repeats", "1", *flags)
        paths = self.benchmark.glob("statistics/records/**/*.jsonl")
        lines = [line for path in paths for line in path.read_text().splitlines()]
        records = [one for one in map(json.loads, lines) if one["op"] == authored.name]
        assert records, ran.out[-3000:] + ran.err[-2000:]
        return records

    def judge(self, names: Sequence[str]) -> list[dict[str, Any]]:
        """What ``authored_judge.py`` says of the generated benchmarks called ``names``."""
        command = [sys.executable, str(HERE / "authored_judge.py"), str(self.benchmark), *names]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        return [json.loads(line) for line in done.stdout.splitlines()]

    def _run(self, words: Sequence[str], where: Path) -> Ran:
        began = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-m", "orchestrator", *words],
            cwd=where,
            capture_output=True,
            text=True,
            timeout=600,
            env={**self._environment, "PYTHONPATH": str(REPOSITORY)},
            check=False,
        )
        return Ran(done.returncode, done.stdout, done.stderr, time.perf_counter() - began)


class Generated:
    """A benchmark of each operator, generated one after the other into a working folder.

    ``ran``: the commands, by name. ``whitelist``: the lines of its file before and after each.
    """

    def __init__(self, work: Work, operators: Sequence[Authored]) -> None:
        self.work = work
        self.ran: dict[str, Ran] = {}
        self.whitelist: dict[str, tuple[list[str], list[str]]] = {}
        for authored in operators:
            before = work.whitelist()
            self.ran[authored.name] = work.generate(authored, "--output", "json")
            self.whitelist[authored.name] = (before, work.whitelist())
