"""``gen op`` as a workflow: what is written, refused, told; and what goes on to the targets."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from orchestrator.errors import ExitCode, TreeError, UsageError
from orchestrator.events import Drafted, Event, LeftOpen, Note, Row, Summary
from orchestrator.workflows.gen_op import Wish, gen_op, generate

AUTHOR = Path(__file__).parents[1] / "author"
TREES = AUTHOR / "trees"
ROOT = Path(__file__).parents[3]


class Told(list[Event]):
    """A sink that keeps what it hears."""

    def __call__(self, event: Event) -> None:
        self.append(event)

    def of(self, kind: type[Event]) -> list[Event]:
        return [event for event in self if isinstance(event, kind)]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A benchmark folder with the harness and an empty list of operators."""
    tree = tmp_path / "benchmark"
    shutil.copytree(
        ROOT / "benchmark" / "harness",
        tree / "harness",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    for name in ("mcoplib_mxbenchmark_op_wrapper.py", "mcoplib_mxbenchmark_ops.py"):
        shutil.copy(ROOT / "benchmark" / name, tree / name)
    for name in ("config", "runners"):
        (tree / name).mkdir()
    return tree


def wish(op: str = "segment_mean", **more: object) -> Wish:
    kind = "torchlib" if op == "segment_mean" else "mcoplib"
    test = TREES / kind / "unit_test" / f"test_{op}.py"
    return Wish(op, (TREES / kind,), (test,), **more)  # type: ignore[arg-type]


def state(tree: Path) -> dict[str, bytes]:
    files = [p for p in tree.rglob("*") if p.is_file() and "__pycache__" not in p.parts]
    return {str(path.relative_to(tree)): path.read_bytes() for path in files}


def test_files_are_written_and_told(tree: Path) -> None:
    told = Told()
    assert gen_op(tree, wish(), told) is ExitCode.OK
    drafted = [(Path(e.path).name, e.action) for e in told.of(Drafted)]  # type: ignore[attr-defined]
    assert drafted == [
        ("segment_mean.json", "created"),
        ("mcoplib_mxbenchmark_segment_mean_runners.py", "created"),
        ("mcoplib_mxbenchmark_ops.py", "changed"),
    ]
    summary = told[-1]
    assert isinstance(summary, Summary) and summary.command == "gen op"
    assert summary.counts == {"todos": 0, "inferred": 0, "errors": 0, "warnings": 0}
    assert [Path(path).exists() for path in summary.files] == [True] * 3


def test_nothing_is_overwritten_and_nothing_is_written_then(tree: Path) -> None:
    (tree / "runners" / "mcoplib_mxbenchmark_segment_mean_runners.py").write_text("# mine\n")
    before, told = state(tree), Told()
    with pytest.raises(UsageError, match=r"there already is runners/.*--force"):
        gen_op(tree, wish(), told)
    assert state(tree) == before and not told.of(Summary)
    gen_op(tree, wish(), told, force=True)
    assert state(tree) != before


def test_a_dry_run_shows_all_and_writes_nothing(tree: Path) -> None:
    before, told = state(tree), Told()
    gen_op(tree, wish(), told, dry_run=True)
    assert state(tree) == before
    diffs = {Path(e.path).name: e.diff for e in told.of(Drafted)}  # type: ignore[attr-defined]
    assert '+    "segment_mean",' in diffs["mcoplib_mxbenchmark_ops.py"]
    assert diffs["segment_mean.json"].startswith(
        "--- /dev/null\n+++ b/benchmark/config/segment_mean.json\n"
    )
    # What is there already may be compared, too.
    gen_op(tree, wish(), told)
    told.clear()
    gen_op(tree, wish(settings={"hidden": 64}), told, dry_run=True)
    actions = {e.action for e in told.of(Drafted)}  # type: ignore[attr-defined]
    assert actions == {"would_change"}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written(tree: Path) -> None:
    (tree / "runners").chmod(0o500)
    before = state(tree)
    with pytest.raises(TreeError):
        gen_op(tree, wish(), Told())
    assert state(tree) == before


def test_what_is_open_is_told_with_its_operator(tree: Path) -> None:
    told = Told()
    gen_op(tree, wish("silu_and_mul"), told)
    (event,) = told.of(LeftOpen)
    assert isinstance(event, LeftOpen)
    assert (event.op, event.sort) == ("silu_and_mul", "inferred") and "2048" in event.what


def test_of_two_frameworks_the_one_without_its_test_is_named(tree: Path) -> None:
    made = generate(tree, wish("topk_softmax"))
    assert made.names == ["vllm_topk_softmax"]
    assert any("vllm_topk_softmax and sgl_topk_softmax" in note for note in made.notes)
    assert any(note.startswith("sgl_topk_softmax is not generated") for note in made.notes)


def test_a_framework_that_does_not_have_it_is_refused(tree: Path) -> None:
    with pytest.raises(UsageError, match="sgl"):
        generate(tree, wish("silu_and_mul", framework="sgl"))
    with pytest.raises(UsageError, match="no --unit-test is of sgl"):
        generate(tree, wish("topk_softmax", framework="sgl"))


def test_a_folder_that_is_no_tree_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no benchmark folder"):
        generate(tmp_path, wish())


def test_places_and_files_say_nothing_of_this_machine(tree: Path) -> None:
    made = generate(tree, wish("gptq_shuffle"))
    text = "".join(made.files.values())
    assert str(ROOT) not in text and "unit_test/test_gptq_shuffle.py" in text


# On to the targets: the operator is one of torch's own library, so it runs here.


@pytest.fixture
def work(tree: Path) -> Path:
    environment = {
        "PYTHONPATH": os.pathsep.join(map(str, (TREES / "torchlib", AUTHOR))),
        "CUDA_VISIBLE_DEVICES": "",
    }
    inventory = {
        "defaults": {
            "transport": "local",
            "python": sys.executable,
            "env": environment,
            "env_script": "none",
            "lock_folder": str(tree.parent / "locks"),
        },
        "hosts": {"here": {"store": str(tree.parent / "store")}},
    }
    path = tree.parent / "inventory.yaml"
    path.write_text(json.dumps(inventory))
    return path


def run(inventory: Path, asked: Wish, *, force: bool = False) -> tuple[ExitCode, Told]:
    from orchestrator.inventory.load import load
    from orchestrator.workflows.context import Context
    from orchestrator.workflows.gen_run import gen_and_run

    told = Told()
    loaded = load(inventory)
    return gen_and_run(Context(loaded, loaded.targets, told), asked, force=force), told


def test_it_goes_on_to_push_verify_and_run(work: Path) -> None:
    pytest.importorskip("torch")
    small = {"num_rows": 32, "hidden": 16}
    code, told = run(work, wish(settings=small))
    assert code is ExitCode.OK
    (summary,) = told.of(Summary)
    assert summary is told[-1] and isinstance(summary, Summary)
    assert summary.counts["PASSED"] == 1 and summary.run is not None
    (row,) = told.of(Row)
    assert isinstance(row, Row) and row.status == "PASSED" and row.seconds is not None


def test_what_fails_is_led_back_to_the_reference(work: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    sources = tmp_path / "torchlib"
    shutil.copytree(TREES / "torchlib", sources)
    test = sources / "unit_test" / "test_segment_mean.py"
    test.write_text(test.read_text().replace(".mean(dim=0)", ".sum(dim=0)"))
    asked = Wish("segment_mean", (sources,), (test,), settings={"num_rows": 32, "hidden": 16})
    code, told = run(work, asked)
    assert code is ExitCode.FAILED
    notes = [event.message for event in told.of(Note)]  # type: ignore[attr-defined]
    assert any("out (16 16) bfloat16 differs from _ref_segment_mean" in text for text in notes)
    (row,) = told.of(Row)
    assert isinstance(row, Row) and row.status == "FAILED" and row.seconds is None


def test_what_is_left_open_is_not_run(work: Path, tmp_path: Path) -> None:
    sources = tmp_path / "torchlib"
    shutil.copytree(TREES / "torchlib", sources)
    test = sources / "unit_test" / "test_segment_mean.py"
    kept = [line for line in test.read_text().splitlines() if "assert_close" not in line]
    test.write_text("\n".join(kept) + "\n")
    code, told = run(work, Wish("segment_mean", (sources,), (test,)))
    assert code is ExitCode.USAGE and not told.of(Row)
    (summary,) = told.of(Summary)
    assert isinstance(summary, Summary) and summary.counts["todos"] >= 1


def test_what_check_refuses_is_not_run(work: Path, tmp_path: Path) -> None:
    sources = tmp_path / "torchlib"
    shutil.copytree(TREES / "torchlib", sources)
    test = sources / "unit_test" / "test_segment_mean.py"
    text = test.read_text()
    assert "\n    return " in text
    test.write_text(text.replace("\n    return ", "\n    print('here')\n    return ", 1))
    code, told = run(work, Wish("segment_mean", (sources,), (test,)))
    assert code is ExitCode.USAGE and not told.of(Row)
    (summary,) = told.of(Summary)
    assert isinstance(summary, Summary) and summary.counts["todos"] == 0
    assert summary.counts["errors"] >= 1 and "see to what is open" in (summary.message or "")
