"""What ``gen op`` writes: all files or none, only the tree's own, and no line lost."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import MxfleetError, TreeError, UsageError
from orchestrator.events import Drafted, Event
from orchestrator.results import files as results_files
from orchestrator.suites import mcoplib, whitelist
from orchestrator.workflows import gen_files, gen_op
from orchestrator.workflows.gen_op import Wish

ROOT = Path(__file__).parents[3]
TREES = Path(__file__).parents[1] / "author" / "trees"
CONFIG = "config/segment_mean.json"
RUNNER = "runners/mcoplib_mxbenchmark_segment_mean_runners.py"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A benchmark folder with the harness and an empty list of operators."""
    tree = tmp_path / "benchmark"
    caches = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "benchmark" / "harness", tree / "harness", ignore=caches)
    for name in ("mcoplib_mxbenchmark_op_wrapper.py", mcoplib.SCRIPT):
        shutil.copy(ROOT / "benchmark" / name, tree / name)
    for name in ("config", "runners"):
        (tree / name).mkdir()
    return tree


def wish(op: str = "segment_mean", **more: Any) -> Wish:
    kind = "torchlib" if op == "segment_mean" else "mcoplib"
    folder = TREES / kind
    return Wish(op, (folder,), (folder / "unit_test" / f"test_{op}.py",), **more)


def state(tree: Path) -> dict[str, Any]:
    """Everything in the tree but its lock: contents, folders, links."""
    found: dict[str, Any] = {}
    for path in tree.rglob("*"):
        name = str(path.relative_to(tree))
        if path.name != ".mxfleet.lock" and "harness" not in name:
            found[name] = path.read_bytes() if path.is_file() else path.is_dir()
    return found


def quiet(event: Event) -> None:
    """A sink that forgets."""


def listed(tree: Path) -> list[str]:
    script = tree / mcoplib.SCRIPT
    return whitelist.names(script.read_text(), str(script))


def _generate(tree: Path, op: str, force: bool, barrier: Any, ends: Any) -> None:
    """In a process of its own: everything is read before any of them writes."""
    true_generate = gen_op.generate

    def both(*args: Any) -> Any:
        made = true_generate(*args)
        barrier.wait(100)
        return made

    gen_op.generate = both  # type: ignore[assignment]
    try:
        ends.put(int(gen_op.gen_op(tree, wish(op), quiet, force=force)))
    except Exception as error:  # noqa: BLE001 - it is the test's to judge
        ends.put(str(error) or repr(error))


def at_once(tree: Path, *ops: str) -> list[Any]:
    fork = multiprocessing.get_context("fork")
    barrier, ends = fork.Barrier(len(ops)), fork.Queue()
    processes = [
        fork.Process(target=_generate, args=(tree, op, False, barrier, ends)) for op in ops
    ]
    for process in processes:
        process.start()
    found = [ends.get(timeout=120) for _ in processes]
    for process in processes:
        process.join(60)
    return found


def test_two_at_once_lose_no_line_of_the_whitelist(tree: Path) -> None:
    before = listed(tree)
    assert at_once(tree, "segment_mean", "silu_and_mul") == [0, 0]
    assert listed(tree) == sorted({*before, "segment_mean", "silu_and_mul"})


def test_of_two_of_one_operator_one_is_refused(tree: Path) -> None:
    found = at_once(tree, "segment_mean", "segment_mean")
    assert 0 in found
    (refusal,) = [one for one in found if one != 0]
    assert "there already is config/segment_mean.json" in refusal


class Striking:
    """Raises ``error`` at the ``at``-th call of what changes something, before or after it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, error: BaseException, at: int) -> None:
        self.calls, self.error, self.at = 0, error, at
        self.struck = False
        self._wrap(monkeypatch, os, "fsync")
        self._wrap(monkeypatch, os, "fchmod")
        self._wrap(monkeypatch, os, "fdopen")
        self._wrap(monkeypatch, Path, "replace")
        self._wrap(monkeypatch, Path, "mkdir")
        self._wrap(monkeypatch, results_files, "_sync_folder")
        self._wrap(monkeypatch, gen_files, "replace")
        self._wrap(monkeypatch, gen_files, "read_bytes")

    def _wrap(self, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
        true: Callable[..., Any] = getattr(owner, name)

        def wrapped(*args: Any, **more: Any) -> Any:
            self._count()
            result = true(*args, **more)
            self._count()
            return result

        monkeypatch.setattr(owner, name, wrapped)

    def _count(self) -> None:
        self.calls += 1
        if self.calls == self.at:
            self.struck = True
            raise self.error


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), OSError(28, "No space left on device")], ids=["ctrl-c", "full"]
)
@pytest.mark.parametrize("there", [False, True], ids=["new", "replaced"])
def test_wherever_it_is_struck_all_is_as_it_was(
    tree: Path, error: BaseException, there: bool
) -> None:
    made = gen_op.generate(tree, wish())
    if there:
        for name in (CONFIG, RUNNER):
            (tree / name).write_text("# mine\n")
    else:
        for name in ("config", "runners"):
            (tree / name).rmdir()
    before = state(tree)
    at = 0
    while True:
        at += 1
        with pytest.MonkeyPatch.context() as monkeypatch:
            striking = Striking(monkeypatch, error, at)
            try:
                gen_files.write_all(made.files, tree)
            except (KeyboardInterrupt, TreeError):
                assert striking.struck
            else:
                assert not striking.struck
                break
        assert state(tree) == before, f"struck at call {at}"
    assert at > 30  # three files, a dozen places each
    assert state(tree) != before


def test_a_second_ctrl_c_waits_until_all_is_put_back(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = gen_op.generate(tree, wish())
    before = state(tree)
    true_unlink = Path.unlink

    def unlink(path: Path, missing_ok: bool = False) -> None:
        if path.suffix in (".json", ".py"):
            os.kill(os.getpid(), signal.SIGINT)
        true_unlink(path, missing_ok)

    def sync(folder: Path) -> None:
        if folder.name == "runners":
            raise KeyboardInterrupt

    monkeypatch.setattr(Path, "unlink", unlink)
    monkeypatch.setattr(results_files, "_sync_folder", sync)
    with pytest.raises(KeyboardInterrupt):
        gen_files.write_all(made.files, tree)
    assert state(tree) == before


def test_what_cannot_be_put_back_is_named(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tree / CONFIG).write_text("{}\n")
    made = gen_op.generate(tree, wish())
    true_replace, calls = gen_files.replace, []

    def full(path: Path, data: bytes) -> None:
        calls.append(path)
        if len(calls) > 1:
            raise TreeError("No space left on device", where=str(path))
        true_replace(path, data)

    monkeypatch.setattr(gen_files, "replace", full)
    with pytest.raises(TreeError, match=r"segment_mean\.json: cannot be put back.*No space left"):
        gen_files.write_all(made.files, tree)


def test_nothing_is_told_before_it_is_written(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there: list[bool] = []

    def sink(event: Event) -> None:
        if isinstance(event, Drafted):
            there.extend((tree / name).exists() for name in (CONFIG, RUNNER))

    gen_op.gen_op(tree, wish(), sink)
    assert there == [True] * 6

    def broken(path: Path, data: bytes) -> None:
        raise results_files._unwritable(path, OSError(28, "No space left on device"))

    monkeypatch.setattr(gen_files, "replace", broken)
    there.clear()
    with pytest.raises(TreeError, match="No space left") as caught:
        gen_op.gen_op(tree, wish("silu_and_mul"), sink)
    assert not there and "merge" not in str(caught.value)


def _dangling(path: Path) -> None:
    path.symlink_to(path.parent / "nothing.txt")


def _outside(path: Path) -> None:
    other = path.parents[2] / "precious.txt"
    other.write_text("precious\n")
    path.symlink_to(other)


def _dangling_outside(path: Path) -> None:
    path.symlink_to(path.parents[2] / "new.txt")


def _folder_outside(path: Path) -> None:
    other = path.parents[2] / "elsewhere"
    other.mkdir()
    path.parent.rmdir()
    path.parent.symlink_to(other)


def _loop(path: Path) -> None:
    path.symlink_to(path.name)


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _folder(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize(
    "put", [_dangling, _outside, _dangling_outside, _folder_outside, _loop, _fifo, _folder]
)
@pytest.mark.parametrize("name", [CONFIG, RUNNER])
def test_only_files_of_the_tree_are_written(
    tree: Path, put: Callable[[Path], None], name: str
) -> None:
    put(tree / name)
    before = state(tree.parent)
    for options in ({}, {"force": True}, {"dry_run": True}):
        with pytest.raises(MxfleetError):
            gen_op.gen_op(tree, wish(), quiet, **options)
        assert state(tree.parent) == before


def test_a_link_within_the_tree_stays_one(tree: Path) -> None:
    real = tree / "config" / "real.txt"
    real.write_text("{}\n")
    (tree / CONFIG).symlink_to("real.txt")
    with pytest.raises(UsageError, match="there already is"):
        gen_op.gen_op(tree, wish(), quiet)
    gen_op.gen_op(tree, wish(), quiet, force=True)
    assert (tree / CONFIG).is_symlink() and "num_rows" in real.read_text()


def test_a_front_door_elsewhere_is_not_changed(tree: Path) -> None:
    script, other = tree / mcoplib.SCRIPT, tree.parent / "front.py"
    script.rename(other)
    script.symlink_to(other)
    before = state(tree.parent)
    with pytest.raises(TreeError, match="leads out of the tree"):
        gen_op.gen_op(tree, wish(), quiet)
    assert state(tree.parent) == before


@pytest.mark.parametrize("place", ["unit test", "front door", "lock"])
def test_a_fifo_is_not_waited_for(tree: Path, tmp_path: Path, place: str) -> None:
    def hangs(number: int, frame: object) -> None:
        pytest.fail("it waits for the FIFO")

    signal.signal(signal.SIGALRM, hangs)
    signal.alarm(20)
    asked = wish()
    try:
        if place == "unit test":
            os.mkfifo(tmp_path / "test_it.py")
            asked = Wish("segment_mean", asked.sources, (tmp_path / "test_it.py",))
        elif place == "front door":
            (tree / mcoplib.SCRIPT).unlink()
            os.mkfifo(tree / mcoplib.SCRIPT)
        else:
            os.mkfifo(tree / ".mxfleet.lock")
            gen_op.gen_op(tree, asked, quiet)
            return
        with pytest.raises(TreeError, match="no regular file"):
            gen_op.gen_op(tree, asked, quiet)
    finally:
        signal.alarm(0)


def test_text_that_no_file_can_hold_is_refused(tree: Path) -> None:
    before = state(tree)
    with pytest.raises(UsageError, match="UTF-8"):
        gen_op.gen_op(tree, wish(device_name="C500\udcff"), quiet)
    assert state(tree) == before
