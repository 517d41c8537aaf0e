"""The mcoplib operator suite: where its files are, what its operators are, how one is run.

All of it is read from the tree itself each time. An operator that is asked for is checked here,
on the controller and without importing anything: a typo or a broken file should cost a second,
not a round over all hosts.
"""

from __future__ import annotations

import ast
import difflib
import json
import re
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.errors import TreeError, UsageError
from orchestrator.suites import accuracy_step, whitelist
from orchestrator.suites.cases import check_cases
from orchestrator.suites.markers import ABSENT
from orchestrator.suites.measuring import Measuring
from orchestrator.suites.profilers import nvbench_words

NAME = "mcoplib"
SCRIPT = "mcoplib_mxbenchmark_ops.py"
SYNC_FOLDERS = ("config", "runners")
SUBFOLDER = "benchmark"  # of a pushed tree: where jobs run
BASE_CLASS = "OpBenchmarkBase"
_OPERATOR_FILE = re.compile(r"config/[^/]+\.json|runners/mcoplib_mxbenchmark_[^/]+_runners\.py")
WRAPPER = "mcoplib_mxbenchmark_op_wrapper"
# What the agent replaces by the job's own folder.
JOB = "@JOB@"


def files_of(op: str) -> tuple[str, str]:
    """An operator's config and runner, relative to ``benchmark/``."""
    return f"config/{op}.json", f"runners/mcoplib_mxbenchmark_{op}_runners.py"


def is_operator_file(path: str) -> bool:
    """Whether ``path``, relative to ``benchmark/``, is an operator's config or runner."""
    return bool(_OPERATOR_FILE.fullmatch(path))


@dataclass(frozen=True)
class McoplibSuite:
    """The suite as it lies in ``folder``, the ``benchmark/`` folder of a working folder."""

    folder: Path

    @property
    def script(self) -> Path:
        """The front door."""
        return self.folder / SCRIPT

    def config_path(self, op: str) -> Path:
        """The operator's config."""
        return self.folder / files_of(op)[0]

    def runner_path(self, op: str) -> Path:
        """The operator's runner."""
        return self.folder / files_of(op)[1]

    def operators(self) -> list[str]:
        """The names in the front door's whitelist."""
        return whitelist.names(read_text(self.script), str(self.script))

    def check(self, ops: Sequence[str], cases: Sequence[str] = ()) -> None:
        """Raise unless each operator is listed and its config and runner can be read.

        ``cases`` are ``KEY=VALUE`` filters, each operator's config has to have a case for them.
        """
        known = self.operators()
        unknown = [op for op in ops if op not in known]
        if unknown:
            names = ", ".join(repr(op) for op in unknown)
            near = list(dict.fromkeys(n for op in unknown for n in _nearest(op, known)))
            raise UsageError(
                f"unknown operator{'s' if len(unknown) > 1 else ''} {names}",
                where=str(self.script),
                hint=f"did you mean {' or '.join(near)}?"
                if near
                else f"write its config and runner and add it to {whitelist.NAME}",
            )
        for op in ops:
            check_cases(self.read_config(op), cases, str(self.config_path(op)))
            self._check_runner(op)

    def read_config(self, op: str) -> dict[str, Any]:
        """The operator's config; broken JSON is an error with its line."""
        path = self.config_path(op)
        if not path.is_file():
            raise TreeError(
                f"the config of {op!r} is missing",
                where=str(path),
                hint=_near(
                    path.name, _names(path.parent, "*.json"), "write it, see benchmark/README.md"
                ),
            )
        text = read_text(path)
        try:
            value = json.loads(text)
        except RecursionError:
            raise TreeError("nested too deeply", where=f"{path}:1", hint="fix it") from None
        except json.JSONDecodeError as error:
            raise TreeError(
                f"broken JSON: {error.msg}",
                where=f"{path}:{error.lineno}",
                hint=f"look at column {error.colno}",
            ) from None
        if not isinstance(value, dict):
            raise TreeError("the config is not a JSON object", where=f"{path}:1", hint="use {...}")
        return value

    def _check_runner(self, op: str) -> None:
        path = self.runner_path(op)
        if not path.is_file():
            raise TreeError(
                f"the runner of {op!r} is missing",
                where=str(path),
                hint=_near(
                    path.name,
                    _names(path.parent, "*_runners.py"),
                    "write it, see benchmark/README.md",
                ),
            )
        module = whitelist.parse(read_text(path), str(path))
        if not _derives(module):
            raise TreeError(
                f"the runner defines no subclass of {BASE_CLASS}",
                where=f"{path}:1",
                hint=f"derive its class from {BASE_CLASS} of {WRAPPER}",
            )

    def command(
        self,
        op: str,
        *,
        measuring: Measuring,
        established: bool,
        gpu_specs: Mapping[str, Any] | None = None,
        library: Sequence[str] = (),
    ) -> list[str]:
        """The script and its arguments for one operator.

        The CSV is private to the job, so the script always appends; what the shared one takes in
        is decided at the merge. Our own front door also writes records and takes ``measuring`` and
        the ``gpu_specs`` and ``library`` of the target; an established one does none of it, and
        cannot only verify: a program is sent that does.
        """
        records = f"{JOB}/records.jsonl"
        if measuring.verify_only and established:
            return ["-c", _accuracy_step(), op, records, ABSENT, *measuring.cases]
        words = [SCRIPT, "--op", op]
        if not measuring.verify_only:
            words += ["--csv", f"{JOB}/result.csv", "--generate"]
            words += nvbench_words(measuring.profiler)
        if not established:
            words += ["--records", records, *measuring.words()]
            for name in library:
                words += ["--library", name]
            if gpu_specs:
                words += ["--specs", json.dumps(gpu_specs, sort_keys=True)]
        return words


def _accuracy_step() -> str:
    """The program as one line, so that a person can paste the command."""
    return f"exec({Path(accuracy_step.__file__).read_text(encoding='utf-8')!r})"


def _derives(module: ast.Module) -> bool:
    """Whether a class of the module derives from the base class, directly or through another.

    A base that comes from another module of the suite gets the benefit of the doubt.
    """
    good = {BASE_CLASS}
    for node in ast.walk(module):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            theirs = "mxbenchmark" in node.module
            good |= {a.asname or a.name for a in node.names if theirs or a.name == BASE_CLASS}
    classes = [node for node in ast.walk(module) if isinstance(node, ast.ClassDef)]
    return any(
        (isinstance(base, ast.Name) and base.id in good)
        or (isinstance(base, ast.Attribute) and base.attr == BASE_CLASS)
        for found in classes
        for base in found.bases
    )


def read_text(path: Path) -> str:
    """Read a text file of the tree; what prevents it is a ``TreeError``, also a FIFO or device."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # opening one may never end
            kind = "a folder" if path.is_dir() else "no regular file"
            raise TreeError(f"is {kind}", where=str(path), hint="put the file itself there")
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        raise TreeError(
            "the file is missing", where=str(path), hint="run `mxfleet init` or restore it"
        ) from None
    except UnicodeDecodeError as error:
        line = path.read_bytes()[: error.start].count(b"\n") + 1
        raise TreeError("not UTF-8 text", where=f"{path}:{line}", hint="convert it") from None
    except OSError as error:
        raise TreeError(
            f"cannot be read: {error.strerror}", where=str(path), hint="check its permissions"
        ) from None


def _names(folder: Path, pattern: str) -> list[str]:
    return sorted(path.name for path in folder.glob(pattern)) if folder.is_dir() else []


def _nearest(name: str, known: Iterable[str], cutoff: float = 0.6) -> list[str]:
    """The known names that ``name`` may have meant, upper or lower case."""
    by_lower = {other.lower(): other for other in known}
    close = difflib.get_close_matches(name.lower(), list(by_lower), n=3, cutoff=cutoff)
    return [by_lower[other] for other in close]


def _near(name: str, known: Iterable[str], otherwise: str) -> str:
    # File names share their beginnings and ends: only a real misspelling counts.
    close = _nearest(name, known, cutoff=0.9)
    return f"did you mean {' or '.join(close)}?" if close else otherwise
