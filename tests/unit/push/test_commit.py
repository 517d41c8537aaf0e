"""The commit of a tree: what git says of it, and silence where git cannot know."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.push import commit
from orchestrator.push.commit import commit_of
from orchestrator.push.tree import build

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")

CONFIG = "benchmark/config/a_op.json"


def git(folder: Path, *words: str) -> str:
    settings = ("-c", "user.name=n", "-c", "user.email=e", "-c", "init.defaultBranch=main")
    done = subprocess.run(
        ["git", *settings, *words], cwd=folder, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def commit_all(folder: Path, ignored: str = "__pycache__/\n*.log\n") -> str:
    (folder / ".gitignore").write_text(ignored)
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "all")
    return git(folder, "rev-parse", "HEAD")


def write(path: str, text: str = "{ }") -> Callable[[Path], None]:
    def act(work: Path) -> None:
        (work / path).parent.mkdir(parents=True, exist_ok=True)
        (work / path).write_text(text)

    return act


def nothing(work: Path) -> None:
    """As it was committed."""


def touch(work: Path) -> None:
    os.utime(work / CONFIG, (1, 1))


def remove(path: str) -> Callable[[Path], None]:
    return lambda work: (work / path).unlink()


def stage(work: Path) -> None:
    (work / CONFIG).write_text("[]")
    git(work, "add", CONFIG)


def make_executable(work: Path) -> None:
    (work / CONFIG).chmod(0o755)


CHANGES = [
    (nothing, False),
    (touch, False),
    (write("env/env.sh", "false\n"), False),
    (write("inventory.yaml", "hosts: {}\n"), False),
    (write("benchmark/statistics/results.csv", "new rows\n"), False),
    (write("benchmark/statistics/records/new.jsonl", "{}\n"), False),
    (remove("benchmark/statistics/results.csv"), False),
    (write("benchmark/runners/__pycache__/x.pyc"), False),
    (write("benchmark/config/a_op.json~"), False),
    (write(CONFIG), True),
    (stage, True),
    (make_executable, True),
    (remove(CONFIG), True),
    (write("benchmark/config/new \u4e2d.json"), True),
    (write("benchmark/ignored.log"), True),  # git does not see it, the tree has it
    (write("benchmark/data/deep/x.json"), True),
]


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize(("change", "dirty"), CHANGES)
def test_dirty_is_what_the_tree_has_and_head_has_not(
    work: Path, tmp_path: Path, change: Callable[[Path], None], dirty: bool, deep: bool
) -> None:
    head = commit_all(tmp_path if deep else work)
    change(work)
    assert commit_of(work, build(work)) == head + ("+dirty" if dirty else "")


def test_there_is_no_commit_without_a_checkout(work: Path, tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()  # nothing above it counts either
    assert commit_of(work, build(work)) is None
    git(work, "init", "-q")
    assert commit_of(work, build(work)) is None  # no HEAD yet


def test_another_ones_checkout_around_it_says_nothing(work: Path, tmp_path: Path) -> None:
    """``mxfleet init build/demo`` in a repository: its commit is not that of the demo."""
    (tmp_path / "other.py").write_text("")
    commit_all(tmp_path, ignored="work/\n")
    assert commit_of(work, build(work)) is None


def test_variables_of_a_hook_do_not_lead_elsewhere(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = commit_all(work)
    other = tmp_path / "other"
    shutil.copytree(work, other, ignore=shutil.ignore_patterns(".git"))
    (other / "more").write_text("more")
    assert commit_all(other) != head
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other))
    assert commit_of(work, build(work)) == head


@pytest.mark.parametrize("body", ["exec sleep 60", "exit 1", "kill -9 $$", None])
def test_a_git_that_does_not_answer_costs_no_run(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str | None
) -> None:
    commit_all(work)
    tools = tmp_path / "tools"
    tools.mkdir()
    if body is not None:
        (tools / "git").write_text(f"#!/bin/sh\n{body}\n")
        (tools / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin" if body is not None else str(tools))
    monkeypatch.setattr(commit, "LIMIT_SECONDS", 0.2)
    assert commit_of(work, build(work)) is None
