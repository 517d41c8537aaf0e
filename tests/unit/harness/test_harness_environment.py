"""What a record says of its surroundings: the expected device, the commit of the tree."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from harness import environment
from harness_tree import Tree, records_of

H200 = {"kind": "cuda", "name": "NVIDIA H200", "index": 0, "uuid": None}
C500 = {"kind": "maca", "name": "MetaX C500", "index": 0, "uuid": None}
XEON = {"kind": "cpu", "name": "Intel(R) Xeon(R) CPU @ 2.0GHz", "index": 0, "uuid": None}


@pytest.mark.parametrize(
    ("device", "expected", "fits"),
    [
        (H200, None, True),
        (H200, "", True),
        (H200, [], True),
        (H200, "NVIDIA H200", True),
        (H200, "nvidia h200", True),
        (H200, "H200", True),
        (H200, ["MetaX C500", "H200"], True),
        (C500, "c500", True),
        (XEON, "Intel(R) Xeon(R) CPU @ 3.1GHz", True),
        (H200, "NVIDIA H200 NVL", False),
        (H200, "H20", False),
        (H200, ["MetaX C500", "NVIDIA A100"], False),
        (H200, 200, False),
        (XEON, "MetaX C500", False),
    ],
)
def test_mismatch(device: dict[str, Any], expected: Any, fits: bool) -> None:
    odd = environment.mismatch(device, expected)
    assert (odd is None) is fits
    if odd is not None:
        assert device["name"] in odd
        assert str(expected[0] if isinstance(expected, list) else expected) in odd


def git(folder: Path, *words: str) -> str:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    done = subprocess.run(
        ["git", *identity, "-C", str(folder), *words], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with a tree in ``benchmark/``, all of it committed."""
    root = tmp_path / "repository" / "benchmark"
    for name in ("config/a.json", "runners/a.py", "harness/a.py", "statistics/a.csv"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("{}")
    (root / "README.md").write_text("text")
    git(tmp_path, "init", "-q", str(root.parent))
    git(root, "add", ".")
    git(root, "commit", "-qm", "first")
    return root


@pytest.mark.parametrize(
    ("path", "dirty"),
    [
        (None, False),
        ("statistics/a.csv", False),
        ("README.md", False),
        ("runners/__pycache__/a.pyc", False),
        ("config/a.json", True),
        ("config/new.json", True),
        ("runners/a.py", True),
        ("harness/a.py", True),
    ],
)
def test_commit(checkout: Path, path: str | None, dirty: bool) -> None:
    if path is not None:
        (checkout / path).parent.mkdir(exist_ok=True)
        (checkout / path).write_text("changed")
    head = git(checkout, "rev-parse", "HEAD")
    assert environment.commit(checkout) == head + ("+dirty" if dirty else "")


def test_a_deleted_runner_is_dirty(checkout: Path) -> None:
    (checkout / "runners/a.py").unlink()
    assert str(environment.commit(checkout)).endswith("+dirty")


def test_a_hook_that_called_us_changes_nothing(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_WORK_TREE", str(tmp_path))
    found = environment.commit(checkout)
    monkeypatch.undo()
    assert found == git(checkout, "rev-parse", "HEAD")


def test_no_commit_where_there_is_none(tmp_path: Path) -> None:
    assert environment.commit(tmp_path) is None
    assert environment.commit(tmp_path / "absent") is None
    git(tmp_path, "init", "-q")
    assert environment.commit(tmp_path) is None


def test_somebody_elses_checkout_around_the_tree_says_nothing(checkout: Path) -> None:
    tree = checkout.parent / "store" / "benchmark"
    (tree / "harness").mkdir(parents=True)
    (tree / "harness/a.py").write_text("{}")
    assert environment.commit(tree) is None


@pytest.mark.parametrize(
    "script",
    [
        "echo 'fatal: detected dubious ownership' >&2; exit 128",
        "exec sleep 60",
        "kill -9 $$",
    ],
)
def test_a_git_that_refuses_or_hangs_is_no_failure(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/git").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "bin/git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setattr(environment, "_GIT_SECONDS", 0.3)
    assert environment.commit(checkout) is None


def test_without_git(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    assert environment.commit(checkout) is None


def test_facts_of_a_tree(checkout: Path) -> None:
    facts = environment.facts(checkout)
    assert facts["commit"] == git(checkout, "rev-parse", "HEAD")
    assert {"python", "torch", "host", "driver", "nvbench", "cpu", "threads"} <= set(facts)


def test_a_cpu_run_records_its_surroundings(tree: Tree, tmp_path: Path) -> None:
    records = tmp_path / "r.jsonl"
    ran = tree.run(
        *("--op", "torch_softmax", "--repeats", "1", "--records", str(records)),
        *("--set", "samples=2", "--set", "device_name=MetaX C500"),
        *("--lock-clocks", "1500", "--cool-down", "50"),
    )
    assert ran.code == 0, ran.err
    (record,) = records_of(records)
    surroundings = record["environment"]
    assert "the config is for MetaX C500" in surroundings["device_expected"]
    assert "the config is for MetaX C500" in ran.err
    assert surroundings["clocks_locked"] == {
        "requested_mhz": 1500,
        "locked": False,
        "reason": "it is a CPU",
        "released": None,
    }
    assert surroundings["cooled_down"]["reached"] is None
    assert surroundings["board"] == {"before": None, "after": None, "foreign": [None, None]}
    assert record["flags"] == []
    assert record["roofline"] is None


def test_wrong_peaks_stop_the_front_door(tree: Tree) -> None:
    ran = tree.run("--op", "torch_softmax", "--specs", '{"C600": {"bandwidth": 1843.2}}')
    assert ran.code == 2
    assert "2e12 for 2 tera bytes" in ran.err
