"""Find an operator's configuration and runner: exact names only, errors with path and line."""

from __future__ import annotations

import difflib
import importlib.util
import json
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import absence, markers
from harness.errors import BrokenLibraryError, LibraryError, TreeError, UnavailableError

if TYPE_CHECKING:
    from harness.base import OpBenchmarkBase


def runner_path(root: Path, op: str) -> Path:
    """Where the runner of ``op`` lies in the tree ``root``."""
    return root / "runners" / f"mcoplib_mxbenchmark_{op}_runners.py"


def config_path(root: Path, op: str) -> Path:
    """Where the configuration of ``op`` lies in the tree ``root``."""
    return root / "config" / f"{op}.json"


def check_supported(op: str, operators: Sequence[str]) -> None:
    """Raise ``TreeError``, with near names, unless ``op`` is in the whitelist."""
    if op not in operators:
        raise TreeError(
            f"unknown operator {op!r}{_near(op, operators)} (a new one goes into "
            "SUPPORTED_OPERATORS of mcoplib_mxbenchmark_ops.py)"
        )


def _near(name: str, names: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(names), n=3, cutoff=0.75)
    if close:
        return f"; did you mean {', '.join(close)}?"
    return "; --list shows all operators"


def load_config(root: Path, op: str) -> dict[str, Any]:
    """Read ``config/<op>.json``; raises ``TreeError`` with path and line."""
    path = config_path(root, op)
    shown = path.relative_to(root)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        names = [found.stem for found in path.parent.glob("*.json")]
        raise TreeError(f"{shown}: no such file{_near(op, names)}") from None
    except UnicodeDecodeError as error:
        raise TreeError(f"{shown}: not UTF-8 text ({error.reason} at byte {error.start})") from None
    except OSError as error:
        raise TreeError(f"{shown}: cannot be read: {error.strerror}") from None
    try:
        config = json.loads(text, object_pairs_hook=lambda pairs: _unique(pairs, text, str(shown)))
    except json.JSONDecodeError as error:
        raise TreeError(f"{shown}:{error.lineno}: not JSON: {error.msg}") from None
    except (ValueError, RecursionError) as error:
        raise TreeError(f"{shown}: beyond what Python reads as JSON: {error}") from None
    if not isinstance(config, dict):
        raise TreeError(f'{shown}:1: holds no JSON object; write {{"dtype": ..., ...}}')
    return config


def _unique(pairs: list[tuple[str, Any]], text: str, shown: str) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    for key, value in pairs:
        if key in seen:
            places = [m.start() for m in re.finditer(re.escape(json.dumps(key)), text)]
            line = text.count("\n", 0, places[-1]) + 1 if places else 1
            raise TreeError(f"{shown}:{line}: {key!r} stands twice; only one value can hold")
        seen[key] = value
    return seen


def check_runner(root: Path, op: str) -> str:
    """Check that the runner of ``op`` exists and parses, without running it; return its source."""
    path = runner_path(root, op)
    shown = path.relative_to(root)
    try:
        source = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        names = [p.name for p in path.parent.glob("*_runners.py")]
        raise TreeError(f"{shown}: no such file{_near(path.name, names)}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise TreeError(f"{shown}: cannot be read: {error}") from None
    try:
        compile(source, str(path), "exec", dont_inherit=True)
    except SyntaxError as error:
        raise TreeError(f"{shown}:{error.lineno}: {error.msg}") from None
    return source


def load_runner(
    root: Path, op: str, absent: Callable[[BaseException], str | None] = absence.absence
) -> type[OpBenchmarkBase]:
    """Import the runner of ``op`` and return its class: the first subclass defined there.

    ``absent`` says whether an error means that a library is absent. Raises ``TreeError`` when the
    file is at fault, ``UnavailableError`` when a library that it imports is absent,
    ``LibraryError`` when one is broken or would be a second provider.
    """
    from harness.base import OpBenchmarkBase

    path = runner_path(root, op)
    shown = path.relative_to(root)
    name = f"runners.{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise TreeError(f"{shown}: cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except LibraryError:
        raise
    except ImportError as error:
        line = _line_in(error, path)
        if absence.broken_import(error):
            raise BrokenLibraryError(f"{shown}:{line}: {error}") from error
        if (error.name or "").split(".")[0] in {"harness", "mcoplib_mxbenchmark_op_wrapper"}:
            raise TreeError(f"{shown}:{line}: {error}") from error
        raise UnavailableError(f"{shown}:{line}: {error}") from error
    except Exception as error:
        line = _line_in(error, path)
        wrong = absence.named(error)
        if wrong is not None:
            raise wrong from error
        missing = absent(error)
        if missing is not None:
            raise UnavailableError(f"{shown}:{line}: {missing}") from error
        raise TreeError(f"{shown}:{line}: {type(error).__name__}: {error}") from error
    classes = [
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, OpBenchmarkBase)
        and value.__module__ == name
    ]
    if not classes:
        raise TreeError(
            f"{shown}:1: defines no subclass of OpBenchmarkBase; derive the runner class from it"
        )
    if len(classes) > 1:
        others = ", ".join(cls.__name__ for cls in classes[1:])
        markers.warn(f"{shown}: several runner classes; {classes[0].__name__} runs, not {others}")
    return classes[0]


def _line_in(error: BaseException, path: Path) -> int:
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(path)]
    return next((line for line in reversed(lines) if line), 1)
