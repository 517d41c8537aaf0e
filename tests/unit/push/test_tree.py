"""What becomes part of a tree, under which name, and what is refused."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.errors import TreeError
from orchestrator.push.tree import (
    ALWAYS_EXCLUDED,
    Symlinks,
    Tree,
    build,
    contents,
    excluded,
    subset,
)


def paths(tree: Tree) -> list[str]:
    return [entry.path for entry in tree.entries]


def test_what_is_pushed(work: Path) -> None:
    for noise in (
        "benchmark/__pycache__/x.cpython-311.pyc",
        "benchmark/runners/__pycache__/y.pyc",
        "benchmark/.git/HEAD",
        "benchmark/runners/.x.py.swp",
        "benchmark/runners/x.py~",
        "benchmark/runners/mcoplib_mxbenchmark_a_op_runners.py.old",
        "benchmark/config/a_op.json.old.12",
        "benchmark/.mxfleet-lock",
        "benchmark/out.nvbench.json",
    ):
        (work / noise).parent.mkdir(parents=True, exist_ok=True)
        (work / noise).write_text("noise")
    assert paths(build(work)) == [
        "benchmark/config/a_op.json",
        "benchmark/config/b_op.json",
        "benchmark/mcoplib_mxbenchmark_ops.py",
        "benchmark/runners/mcoplib_mxbenchmark_a_op_runners.py",
        "benchmark/runners/mcoplib_mxbenchmark_b_op_runners.py",
        "env/env.sh",
    ]


def change_nothing(work: Path) -> None:
    for path in work.rglob("*"):
        os.utime(path, (1, 1))


def change_noise(work: Path) -> None:
    (work / "benchmark" / "statistics" / "new.csv").write_text("x")
    (work / "env" / "README").write_text("y")
    (work / "benchmark" / "empty folder").mkdir()


def change_modes(work: Path) -> None:
    (work / "env" / "env.sh").chmod(0o600)


def add_empty(work: Path) -> None:
    (work / "benchmark" / "empty").touch()


def make_executable(work: Path) -> None:
    (work / "env" / "env.sh").chmod(0o755)


def rename(work: Path) -> None:
    (work / "env" / "env.sh").rename(work / "env" / "fnv.sh")


def edit(work: Path) -> None:
    (work / "env" / "env.sh").write_text("true;")


def swap(work: Path) -> None:
    one, two = work / "benchmark" / "config" / "a_op.json", work / "env" / "env.sh"
    a, b = one.read_text(), two.read_text()
    one.write_text(b)
    two.write_text(a)


def link(work: Path) -> None:
    (work / "benchmark" / "a_link").symlink_to("config/a_op.json")


@pytest.mark.parametrize(
    ("change", "same"),
    [
        (change_nothing, True),
        (change_noise, True),
        (change_modes, True),
        (add_empty, False),
        (make_executable, False),
        (rename, False),
        (edit, False),
        (swap, False),
        (link, False),
    ],
)
def test_the_name_follows_from_the_content(
    work: Path, change: Callable[[Path], None], same: bool
) -> None:
    before = build(work).name
    change(work)
    assert (build(work).name == before) is same


def test_a_line_end_in_a_name_fakes_no_other_file(tmp_path: Path) -> None:
    """Two different trees whose listings would read alike, line by line."""
    empty = build_of(tmp_path / "a", {"x": b"", "y": b""})
    fake = f"x\n644 {empty.entries[1].sha256} benchmark/y"
    (tmp_path / "b" / "benchmark" / os.path.dirname(fake)).mkdir(parents=True)  # noqa: PTH120
    assert build_of(tmp_path / "b", {fake: b""}).name != empty.name


def build_of(folder: Path, files: dict[str, bytes]) -> Tree:
    (folder / "benchmark").mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / "benchmark" / name).write_bytes(data)
    return build(folder)


@pytest.mark.parametrize(
    ("patterns", "gone"),
    [
        (["config"], ["config"]),
        (["config/"], ["config"]),
        (["benchmark/config"], ["config"]),
        (["benchmark/c*"], ["config"]),
        (["config/a*"], []),
        (["*.json"], ["config"]),
        (["benchmark"], []),
        (["bench*"], []),
        (["runners", "env.sh"], ["runners", "env.sh"]),
        (["a_op.json"], ["a_op.json"]),
    ],
)
def test_excludes(work: Path, patterns: list[str], gone: list[str]) -> None:
    expected = [p for p in paths(build(work)) if not any(g in p.split("/") for g in gone)]
    assert paths(build(work, exclude=patterns)) == expected


def test_excluded_looks_at_folders_on_the_way() -> None:
    assert excluded("benchmark/runners/.git/HEAD", (".git",))
    assert excluded("benchmark/statistics/x/y.csv", ("benchmark/statistics",))
    assert not excluded("benchmark/config/x.older.json", ALWAYS_EXCLUDED)
    assert not excluded("benchmark/halops/statistics/x.csv", ("benchmark/statistics",))


def outside(work: Path) -> Path:
    folder = work.parent / "outside"
    folder.mkdir()
    (folder / "data.txt").write_text("far away")
    return folder


# Name of the link in benchmark/, where it leads to, and what each policy makes of it: the path
# of a file that is pushed then, or the error.
LINKS = [
    ("file.json", "config/a_op.json", "file.json", "file.json"),
    ("folder", "config", "folder", "folder/a_op.json"),
    ("config/sibling.json", "a_op.json", "config/sibling.json", "config/sibling.json"),
    ("up.sh", "../env/env.sh", "up.sh", "up.sh"),
    ("twice", "./config/../config//a_op.json", "twice", "twice"),
    ("out", "{outside}/data.txt", "leads out of the tree", "out"),
    ("out", "../../outside/data.txt", "leads out of the tree", "out"),
    ("out", "{outside}", "leads out of the tree", "out/data.txt"),
    ("dangling", "nowhere", "which is not pushed", "dangling symbolic link"),
    ("dangling", "../../nowhere", "leads out of the tree", "dangling symbolic link"),
    ("left", "statistics/results.csv", "which is not pushed", "left"),
    ("left", "../env/README", "which is not pushed", "left"),
    ("self", "self", "to itself", "dangling symbolic link"),
    ("config/round", "..", "config/round", "leads back up"),
    ("whole", "..", "leads out of the tree", "leads back up"),
    ("here", ".", "here", "leads back up"),
]


@pytest.mark.parametrize("policy", ["keep", "follow", "refuse"])
@pytest.mark.parametrize(("name", "to", "kept", "followed"), LINKS)
def test_symbolic_links(
    work: Path, policy: Symlinks, name: str, to: str, kept: str, followed: str
) -> None:
    away = outside(work)
    link = work / "benchmark" / name
    link.symlink_to(to.format(outside=away))
    expected = {"keep": kept, "follow": followed, "refuse": "is a symbolic link"}[policy]
    if " " in expected:
        with pytest.raises(TreeError, match=expected) as caught:
            build(work, symlinks=policy)
        assert caught.value.where is not None
        assert Path(caught.value.where).is_relative_to(work / "benchmark")
        assert caught.value.hint
        return
    tree = build(work, symlinks=policy)
    entry = tree.entries[paths(tree).index(f"benchmark/{expected}")]
    assert (entry.link is not None) is (policy == "keep")


def test_links_over_links(work: Path) -> None:
    benchmark = work / "benchmark"
    (benchmark / "one").symlink_to("config")
    (benchmark / "two").symlink_to("one/a_op.json")
    build(work)
    # Textually inside, but one/.. is not where it seems to be once links are followed.
    (benchmark / "deep").mkdir()
    (benchmark / "deep" / "er").symlink_to("../../env")
    with pytest.raises(TreeError, match="which is not pushed"):
        (benchmark / "three").symlink_to("deep/er/../../x")
        build(work)


def test_a_ring_of_links(work: Path) -> None:
    (work / "benchmark" / "a").symlink_to("b")
    (work / "benchmark" / "b").symlink_to("a")
    with pytest.raises(TreeError, match="to itself"):
        build(work)


def test_strange_files(work: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(work / "benchmark" / "socket"))
        with pytest.raises(TreeError, match="neither a file"):
            build(work)


def test_without_a_benchmark_folder(tmp_path: Path) -> None:
    with pytest.raises(TreeError, match="has no benchmark/ folder"):
        build(tmp_path)


@pytest.mark.parametrize(
    ("folders", "only", "expected"),
    [
        (["config"], [], ["config/a_op.json", "config/b_op.json"]),
        (
            ["config", "runners"],
            ["a_op"],
            ["config/a_op.json", "runners/mcoplib_mxbenchmark_a_op_runners.py"],
        ),
        (["config", "runners"], ["config/b*"], ["config/b_op.json"]),
        (["config"], ["nobody"], []),
        (["conf"], [], []),
        (["halops/configs"], [], ["halops/configs/x.yaml"]),
    ],
)
def test_subset(work: Path, folders: list[str], only: list[str], expected: list[str]) -> None:
    (work / "benchmark" / "halops" / "configs").mkdir(parents=True)
    (work / "benchmark" / "halops" / "configs" / "x.yaml").write_text("{}")
    (work / "benchmark" / "halops" / "other.yaml").write_text("{}")
    assert paths(subset(build(work), folders, only)) == expected


@pytest.mark.parametrize(
    "data", [b"", b"{", b"{ }", b"[]"], ids=["emptied", "cut", "grown", "edited"]
)
def test_a_file_that_changes_while_it_is_pushed(work: Path, data: bytes) -> None:
    tree = build(work)
    (work / "benchmark" / "config" / "b_op.json").write_bytes(data)
    with pytest.raises(TreeError, match="changed while it was pushed"):
        list(contents(tree, range(len(tree.entries))))


def test_a_file_that_vanishes_while_it_is_pushed(work: Path) -> None:
    tree = build(work)
    (work / "benchmark" / "config" / "b_op.json").unlink()
    with pytest.raises(TreeError, match="cannot be read"):
        list(contents(tree, range(len(tree.entries))))
