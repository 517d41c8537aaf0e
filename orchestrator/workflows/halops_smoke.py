"""The smoke test of a HALOps config: one backend, one iteration, or why it was not run."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orchestrator.errors import ExitCode
from orchestrator.events import OutputLine, Sink

BACKEND = "halops"
_LIMIT_S, _PROBE_LIMIT_S = 900.0, 120.0
# Asks the Python that would run it; find_spec imports nothing.
_PROBE = """
import importlib.util, json
found = {name: importlib.util.find_spec(name) is not None for name in ("torch", "halops", "yaml")}
if found["torch"]:
    import torch
    found["gpu"] = torch.cuda.is_available()
print(json.dumps(found))
"""
_NEEDS = {"torch": "torch is not installed", "halops": "halops is not installed"}
_NEEDS |= {"yaml": "PyYAML is not installed", "gpu": "torch sees no GPU"}


def smoke(
    root: Path, op: str, path: Path, values: Mapping[str, Any], sink: Sink
) -> tuple[ExitCode, str]:
    """Run ``benchmark.py`` with ``--backend=halops`` once; the exit code and what to say.

    ``root``: the folder of ``benchmark.py``; ``path``: the config, ``configs/<op>/<name>.yaml``.
    Skipped, it is no failure: the sentence says why, and that only the code was checked.
    """
    why = _why_not(root, values)
    if why is not None:
        return ExitCode.OK, f"written; smoke test skipped: {why}; only checked against the code"
    command = [
        sys.executable,
        "benchmark.py",
        f"--config={op}/{path.name}",
        f"--backend={BACKEND}",
        "--dry-run-iters=1",
        "--repeat-iters=1",
    ]
    try:
        ended = subprocess.run(
            command, cwd=root, capture_output=True, text=True, timeout=_LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return ExitCode.TIMEOUT, f"written; the smoke test did not end within {_LIMIT_S:g} s"
    for name, text in (("stdout", ended.stdout), ("stderr", ended.stderr)):
        for line in text.splitlines():
            sink(OutputLine("local", op, name, line))
    if ended.returncode != 0:
        return ExitCode.FAILED, f"written; the smoke test failed with exit code {ended.returncode}"
    return ExitCode.OK, f"written; the smoke test ran with {BACKEND}"


def _why_not(root: Path, values: Mapping[str, Any]) -> str | None:
    """What is missing for the smoke test; the first thing only."""
    backends = values.get("backends")
    if isinstance(backends, list) and BACKEND not in backends:
        return f"{BACKEND} is none of the backends"
    try:
        ended = subprocess.run(
            [sys.executable, "-c", _PROBE],
            cwd=root,
            capture_output=True,
            text=True,
            timeout=_PROBE_LIMIT_S,
            check=True,
        )
        found = json.loads(ended.stdout.splitlines()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        return f"{sys.executable} cannot be asked ({type(error).__name__})"
    return next((text for name, text in _NEEDS.items() if not found.get(name)), None)
