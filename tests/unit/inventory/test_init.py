"""``mxfleet init``: a whole working folder or none, and nothing of the user's lost."""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
import sys
from pathlib import Path

import pytest

from orchestrator.cli.main import main
from orchestrator.errors import ExitCode, UsageError
from orchestrator.inventory.load import load
from orchestrator.inventory.select import select
from orchestrator.workflows import bundled
from orchestrator.workflows.init import init
from orchestrator.workflows.inventory_text import inventory_text


@pytest.fixture
def source(tmp_path, monkeypatch) -> Path:
    """A small bundle with what may and what may not be laid out."""
    root = tmp_path / "source"
    for name, text in {
        "benchmark/front.py": "front",
        "benchmark/config/op.json": "{}",
        "benchmark/halops/statistics/kept.csv": "not the results folder",
        "benchmark/statistics/rows.csv": "results",
        "benchmark/__pycache__/front.pyc": "cache",
        "benchmark/config/.mxfleet-lock": "",
        "env/env.sh": "export A=1",
        "env/tool.sh": "tool",
        "env/loopback/fleet.py": "for mxfleet's own tests",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / "env/tool.sh").chmod(0o755)
    monkeypatch.setattr(bundled, "locate", lambda: root)
    return root


CARRIED = {
    "benchmark/front.py",
    "benchmark/config/op.json",
    "benchmark/halops/statistics/kept.csv",
    "env/env.sh",
    "env/tool.sh",
}
WHOLE = CARRIED | {"inventory.yaml", "inventory.schema.json"}


def files(folder: Path) -> set[str]:
    return {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}


def snapshot(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in files(folder)}


@pytest.mark.parametrize("made", [False, True], ids=["new folder", "folder that is there"])
def test_lays_out_a_working_folder(source, tmp_path, made):
    folder = tmp_path / "a" / "b"
    if made:
        folder.mkdir(parents=True)
        (folder / "mine.txt").touch()
    done = init(folder)
    assert files(folder) - {"mine.txt"} == WHOLE
    assert done.folder == folder and {path.name for path in done.written} == {
        "benchmark",
        "env",
        "inventory.yaml",
        "inventory.schema.json",
    }
    assert os.access(folder / "env/tool.sh", os.X_OK)
    assert not os.access(folder / "env/env.sh", os.X_OK)
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE((folder / "benchmark").stat().st_mode) == 0o777 & ~umask
    assert stat.S_IMODE(folder.stat().st_mode) == 0o777 & ~umask
    assert not list(tmp_path.rglob(".mxfleet-init-*"))
    inventory = load(folder / "inventory.yaml")
    (target,) = inventory.targets
    assert (target.name, target.host.transport, target.container) == ("local", "local", None)


def test_the_real_bundle(tmp_path):
    """What this checkout carries: the front door and the env script; no results, no caches."""
    folder = init(tmp_path / "work").folder
    assert (folder / "benchmark" / "mcoplib_mxbenchmark_ops.py").is_file()
    assert [path.name for path in (folder / "env").iterdir()] == ["env.sh"]
    assert not (folder / "benchmark" / "statistics").exists()
    assert not list(folder.rglob("__pycache__"))


@pytest.mark.parametrize(
    ("torch", "python"), [(object(), sys.executable), (None, "python3")], ids=["torch", "no torch"]
)
def test_python_is_this_one_where_it_has_torch(source, tmp_path, monkeypatch, torch, python):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: torch)
    init(tmp_path / "work")
    assert load(tmp_path / "work" / "inventory.yaml").targets[0].python == python


@pytest.mark.parametrize(
    "name", ["inventory.yaml", "inventory.schema.json", "benchmark", "env/env.sh"]
)
def test_overwrites_nothing(source, tmp_path, name):
    folder = tmp_path / "work"
    (folder / name).parent.mkdir(parents=True)
    (folder / name).write_text("mine")
    before = snapshot(folder)
    with pytest.raises(UsageError) as caught:
        init(folder)
    assert name.split("/")[0] in str(caught.value) and "--force" in str(caught.value)
    assert caught.value.code == ExitCode.USAGE
    assert snapshot(folder) == before


def test_a_dangling_link_is_in_the_way_too(source, tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "env").symlink_to(tmp_path / "nowhere")
    for force in (False, True):
        with pytest.raises(UsageError, match="env"):
            init(folder, force=force)
    assert not (tmp_path / "nowhere").exists() and files(folder) == set()


def test_force_replaces_what_is_carried_and_loses_nothing(source, tmp_path):
    folder = tmp_path / "work"
    init(folder)
    mine = {
        "inventory.yaml": "hosts: {mine: }\n",
        "benchmark/front.py": "changed",
        "env/env.sh": "export MINE=1",
        "benchmark/config/mine.json": "mine",
        "benchmark/statistics/rows.csv": "my rows",
    }
    (folder / "benchmark/statistics").mkdir()
    for name, text in mine.items():
        (folder / name).write_text(text)
    (folder / "benchmark/config/op.json").unlink()
    (folder / "env/env.sh").chmod(0o700)
    same = folder / "benchmark/halops/statistics/kept.csv"
    os.utime(same, (1, 1))
    done = init(folder, force=True)

    replaced = ["benchmark/front.py", "env/env.sh", "inventory.yaml"]
    assert [(one.relative_to(folder).as_posix(), other.name) for one, other in done.kept] == [
        ("benchmark/front.py", "front.py.old"),
        ("env/env.sh", "env.sh.old"),
        ("inventory.yaml", "inventory.yaml.old"),
    ]
    assert [path.relative_to(folder).as_posix() for path in done.written] == sorted(
        ["benchmark/config/op.json", *replaced]
    )
    assert files(folder) == WHOLE | set(mine) | {f"{name}.old" for name in replaced}
    for name, text in mine.items():
        assert (folder / (f"{name}.old" if name in replaced else name)).read_text() == text
    assert stat.S_IMODE((folder / "env/env.sh.old").stat().st_mode) == 0o700
    assert (folder / "benchmark/front.py").read_text() == "front"
    assert same.stat().st_mtime == 1, "an identical file is left untouched"
    assert load(folder / "inventory.yaml").targets[0].name == "local"


def test_no_kept_file_is_overwritten(source, tmp_path):
    folder = tmp_path / "work"
    init(folder)
    front = folder / "benchmark/front.py"
    for edition in ("first", "second", "third"):
        front.write_text(edition)
        ((_, old),) = init(folder, force=True).kept
        assert old.read_text() == edition
    assert {path.name: path.read_text() for path in front.parent.glob("front.py*")} == {
        "front.py": "front",
        "front.py.old": "first",
        "front.py.old.1": "second",
        "front.py.old.2": "third",
    }
    again = init(folder, force=True)
    assert (again.written, again.kept) == ((), ())


def test_a_forced_layout_that_fails_is_taken_back_whole(source, tmp_path, monkeypatch):
    folder = tmp_path / "work"
    init(folder)
    (folder / "benchmark/front.py").write_text("mine")
    (folder / "benchmark/config/op.json").unlink()
    (folder / "inventory.yaml").write_text("hosts: {mine: }\n")
    before = snapshot(folder)
    rename = Path.rename

    def fails_at_last(self, target):
        if self.parent.name == "folder" and self.name == "inventory.yaml":
            raise OSError(errno.EIO, "Input/output error", str(target))
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fails_at_last)
    with pytest.raises(UsageError, match="Input/output error"):
        init(folder, force=True)
    assert snapshot(folder) == before


@pytest.mark.parametrize("argument", ["work", "."], ids=["another folder", "this folder"])
def test_the_command_says_what_it_wrote_once_and_what_is_next(
    source, tmp_path, monkeypatch, capsys, argument
):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "work"
    if argument == ".":
        folder.mkdir()
        monkeypatch.chdir(folder)
    before = "work/" if argument == "work" else ""
    go = "cd work, " if argument == "work" else ""
    following = f"init: next: {go}edit inventory.yaml, then mxfleet hosts --check"

    said = command(capsys, argument)
    assert said.err == ""
    assert said.out.split("\n") == [
        *(f"file: {before}{name}" for name in ("benchmark", "env")),
        *(f"file: {before}{name}" for name in ("inventory.schema.json", "inventory.yaml")),
        "",
        following,
        "",
    ]

    (folder / "benchmark/front.py").write_text("mine")
    (folder / "env/env.sh").write_text("mine")
    said = command(capsys, argument, "--force")
    assert said.err.splitlines() == [
        f"kept the former {name} as {folder / name}.old"
        for name in ("benchmark/front.py", "env/env.sh")
    ]
    assert said.out.splitlines() == [
        f"file: {before}benchmark/front.py",
        f"file: {before}env/env.sh",
        "",
        following,
    ]
    said = command(capsys, argument, "--force")
    assert said.out == following.replace("next", "all was there already; next") + "\n"


def command(capsys, *arguments: str):
    with pytest.raises(SystemExit) as ended:
        main(["init", *arguments])
    assert ended.value.code == 0
    return capsys.readouterr()


def test_force_writes_through_no_link(source, tmp_path):
    folder = tmp_path / "work"
    init(folder)
    elsewhere = tmp_path / "elsewhere"
    shutil.move(folder / "benchmark/config", elsewhere)
    (folder / "benchmark/config").symlink_to(elsewhere)
    (elsewhere / "op.json").write_text("precious")
    before = snapshot(folder)
    with pytest.raises(UsageError, match="config: a symbolic link"):
        init(folder, force=True)
    assert (elsewhere / "op.json").read_text() == "precious" and snapshot(folder) == before


def test_in_the_source_checkout_only_the_inventory_is_written(source):
    done = init(source)
    assert [path.name for path in done.written] == ["inventory.schema.json", "inventory.yaml"]
    assert (source / "benchmark/statistics/rows.csv").exists()
    assert load(source / "inventory.yaml").folder == source


def test_a_file_in_the_place_of_the_folder(source, tmp_path):
    (tmp_path / "work").touch()
    with pytest.raises(UsageError, match="a file, not a folder"):
        init(tmp_path / "work")
    with pytest.raises(UsageError, match="cannot be laid out"):
        init(tmp_path / "work" / "below")


@pytest.mark.parametrize("made", [False, True], ids=["new folder", "folder that is there"])
def test_a_full_disk_leaves_nothing(source, tmp_path, monkeypatch, made):
    folder = tmp_path / "work"
    if made:
        folder.mkdir()
    copied = []

    def copyfile(one, other):
        if len(copied) == 3:
            raise OSError(errno.ENOSPC, "No space left on device", str(other))
        copied.append(other)
        return other.write_bytes(one.read_bytes())

    monkeypatch.setattr("orchestrator.workflows.init.shutil.copyfile", copyfile)
    with pytest.raises(UsageError, match="No space left on device"):
        init(folder)
    assert folder.exists() == made and not files(tmp_path / "work")
    assert not list(tmp_path.rglob(".mxfleet-init-*"))


def test_what_was_moved_in_is_taken_back(source, tmp_path, monkeypatch):
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "mine.txt").touch()
    rename = Path.rename

    def fails_at_last(self, target):
        if self.name == "inventory.yaml":
            raise KeyboardInterrupt
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fails_at_last)
    with pytest.raises(KeyboardInterrupt):
        init(folder)
    assert [path.name for path in folder.iterdir()] == ["mine.txt"]


def test_from_the_logins_ssh_config(source, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh/config").write_text(
        "Host c500-01 c500-02\n  User secret\nHost h200 git@x\nHost *.lab\nHost 7 on\n"
    )
    done = init(tmp_path / "work", from_ssh_config=True)
    text = (tmp_path / "work/inventory.yaml").read_text()
    assert "secret" not in text  # names only
    inventory = load(tmp_path / "work/inventory.yaml")
    assert {target.name for target in select(inventory)} == {
        "c500-01",
        "c500-02",
        "h200",
        "7",
        "on",
    }
    assert {host.ssh_config for host in inventory.hosts.values()} == {None}
    assert "c500-[01-02]" in done.hosts and done.left_out == ("git@x",)
    same = init(tmp_path / "again", from_ssh_config=tmp_path / ".ssh/config")
    assert same.hosts == done.hosts
    assert (tmp_path / "again/inventory.yaml").read_text() == text


def test_from_another_ssh_config_names_it(source, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("fleet #1.conf").write_text("Host gpu1 gpu2\n")
    init(tmp_path / "work", from_ssh_config=Path("fleet #1.conf"))
    inventory = load(tmp_path / "work/inventory.yaml")
    assert {host.ssh_config for host in inventory.hosts.values()} == {tmp_path / "fleet #1.conf"}


def test_a_missing_ssh_config_lays_out_nothing(source, tmp_path):
    with pytest.raises(UsageError, match="No such file"):
        init(tmp_path / "work", from_ssh_config=tmp_path / "nowhere")
    assert not (tmp_path / "work").exists()


@pytest.mark.parametrize("ranges", [(), ("c500-[01-08]", "h200", "lab")])
def test_every_example_works_when_switched_on(loaded, ranges):
    """Remarks start with `# `, settings with `#`: without it the whole file is an inventory."""
    text = inventory_text(python='/odd path/"py"', ranges=ranges)
    on = re.sub(r"(?m)^( *)#(?! |$)", r"\1", re.sub(r"(?m)^( *)#(  +\S)", r"\1\2", text))
    inventory = loaded(on)
    assert {"c500-01", "h200"} <= set(inventory.hosts)
    assert set(inventory.groups) == {"c500", "lab"}
    assert inventory.hosts["local"].transport == "local"
    assert loaded(text).targets
