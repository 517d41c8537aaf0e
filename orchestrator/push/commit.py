"""Which commit a tree is of: git's word on the working folder, or nothing.

A fact for the records and never a failure: without git, outside of a checkout, or where git takes
too long, nothing is known.
"""

from __future__ import annotations

import os
import subprocess
import time
from functools import partial
from pathlib import Path

from orchestrator.push.tree import Tree, excluded
from orchestrator.suites import mcoplib

LIMIT_SECONDS = 5.0
_DIRTY = "+dirty"


def commit_of(folder: Path, tree: Tree) -> str | None:
    """HEAD of the checkout that ``folder`` is part of, ``+dirty`` when ``benchmark/`` differs.

    What is not in the tree (results, caches) makes nothing dirty; what git ignores and the tree
    has, does. None where HEAD has no ``benchmark/`` of ours: ``folder`` may merely lie in somebody
    else's checkout.
    """
    benchmark = f"{mcoplib.SUBFOLDER}/"
    script = benchmark + mcoplib.SCRIPT
    git = partial(_git, folder, time.monotonic() + LIMIT_SECONDS)
    try:
        head = git("rev-parse", "--verify", "HEAD").strip()
        if not git("ls-tree", "--name-only", "HEAD", "--", script):
            return None
        status = git(
            *("status", "--porcelain=v1", "-z", "--no-renames"),
            *("--untracked-files=all", "--ignored=matching", "--", benchmark),
        )
        top = git("rev-parse", "--show-prefix").rstrip("\n")
    except (OSError, subprocess.SubprocessError):
        return None
    sent = {entry.path for entry in tree.entries}
    for line in status.split("\0"):
        state, path = line[:2], line[3:].removeprefix(top)
        gone = "D" in state and not excluded(path, tree.exclude)
        if gone or path in sent or (path.endswith("/") and any(s.startswith(path) for s in sent)):
            return head + _DIRTY
    return head


def _git(folder: Path, deadline: float, *words: str) -> str:
    # Where git looks is the folder's affair, not that of a hook or an alias that called us.
    environment = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    done = subprocess.run(
        ["git", "--no-optional-locks", "-C", str(folder), *words],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        encoding="utf-8",
        errors="surrogateescape",
        timeout=max(deadline - time.monotonic(), 0.0),
        check=True,
    )
    return done.stdout
