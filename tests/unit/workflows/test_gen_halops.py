"""``gen halops`` from the sentence to the file, on a checkout of the usual spelling."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from orchestrator.author.halops.intent.question import Question
from orchestrator.author.halops.write.text import read_yaml
from orchestrator.errors import ExitCode, TreeError, UsageError
from orchestrator.events import Event, LeftOpen, Note, Summary
from orchestrator.workflows import halops_smoke
from orchestrator.workflows.gen_halops import HalopsWish, find_root, gen_halops

CHECKOUT = Path(__file__).parents[1] / "author" / "halops" / "checkouts" / "plain"
DENSE = "dense gemm bf16 128x256x512, backends halops, cublas"


@dataclass
class Person:
    """Answers from a script of a test, None where nobody is there."""

    answers: list[Mapping[str, str] | None] = field(default_factory=list)
    confirms: list[bool | None] = field(default_factory=list)
    asked: list[list[str]] = field(default_factory=list)
    confirmed: list[str] = field(default_factory=list)
    shown: list[tuple[str, str]] = field(default_factory=list)

    def ask(self, questions: Sequence[Question]) -> Mapping[str, str] | None:
        self.asked.append([one.field for one in questions])
        return self.answers.pop(0) if self.answers else None

    def confirm(self, text: str) -> bool | None:
        self.confirmed.append(text)
        return self.confirms.pop(0) if self.confirms else None

    def show(self, path: str, text: str) -> None:
        self.shown.append((path, text))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    shutil.copytree(CHECKOUT, tmp_path / "repo", ignore=shutil.ignore_patterns("__pycache__"))
    return find_root(tmp_path / "repo", None)


def run(
    root: Path, wish: HalopsWish, person: Person | None = None
) -> tuple[ExitCode, list[Event], Person]:
    events: list[Event] = []
    somebody = person or Person()
    return gen_halops(root, wish, events.append, somebody), events, somebody


def written(events: Sequence[Event]) -> list[str]:
    summary = events[-1]
    assert isinstance(summary, Summary)
    return list(summary.files)


def test_it_is_written_where_the_benchmark_looks_for_it_and_reads_back(root: Path) -> None:
    code, events, person = run(root, HalopsWish(DENSE, yes=True))
    path = root / "configs" / "gemm" / "dense_128x256x512_bf16.yaml"
    assert code == ExitCode.OK and written(events) == [str(path)]
    values = read_yaml(path.read_text(), "x")
    assert values["mode"] == "bf16" and values["shapes"] == [[128, 256, 512]]
    assert person.shown == [(str(path), path.read_text())] and person.asked == []


def test_without_anybody_there_nothing_is_written(root: Path) -> None:
    before = sorted(root.rglob("*"))
    person = Person()
    with pytest.raises(UsageError, match="nothing was written"):
        run(root, HalopsWish(DENSE), person)
    assert sorted(root.rglob("*")) == before and len(person.shown) == 1


def test_no_is_no_error(root: Path) -> None:
    before = sorted(root.rglob("*"))
    code, events, _ = run(root, HalopsWish(DENSE, marks=True), Person(confirms=[False]))
    assert code == ExitCode.OK and written(events) == []
    assert sorted(root.rglob("*")) == before


def test_what_is_missing_is_asked_for_at_once(root: Path) -> None:
    answers = {"mode": "bf16", "shapes": "128x256x512, 256x256x512", "backends": "cublas, halops"}
    person = Person(answers=[answers], confirms=[True, True])
    _, events, _ = run(root, HalopsWish("加一个 dense 的 gemm 配置"), person)
    assert sorted(person.asked[0]) == sorted(answers) and len(person.asked) == 1
    values = read_yaml(Path(written(events)[0]).read_text(), "x")
    assert values["shapes"] == [[128, 256, 512], [256, 256, 512]]
    assert values["backends"] == ["halops", "cublas"]


def test_what_stays_open_ends_it(root: Path) -> None:
    with pytest.raises(UsageError, match="open: mode") as refused:
        run(root, HalopsWish("dense gemm 128x256x512 halops"), Person(answers=[{}]))
    assert "--set mode=" in str(refused.value)


def test_the_scenario_is_asked_for_with_what_each_would_need(root: Path) -> None:
    class Asked(Person):
        needs: Mapping[str, Sequence[str]]

        def ask(self, questions: Sequence[Question]) -> Mapping[str, str] | None:
            self.needs = questions[0].needs
            return super().ask(questions)

    person = Asked()
    with pytest.raises(UsageError, match="which scenario"):
        run(root, HalopsWish("attention bf16 batch 1 halops"), person)
    assert person.asked == [["scenario"]]
    assert person.needs == {"prefill_dense": ("s_list",), "decode_gqa": ("s_kv_list",)}


def test_an_answer_names_the_scenario(root: Path) -> None:
    person = Person(answers=[{"scenario": "decode_gqa"}])
    wish = HalopsWish("attention bf16 batch 1 halops", settings={"s_kv_list": [4096]}, yes=True)
    _, events, _ = run(root, wish, person)
    assert Path(written(events)[0]).name.startswith("decode_gqa_b1_kv4k_")


@pytest.mark.parametrize(
    ("marks", "confirms", "marked", "asks"),
    [
        (None, [True, True], False, 2),
        (None, [False, True], True, 2),
        (True, [True], True, 1),
        (False, [True], False, 1),
    ],
)
def test_marks(
    root: Path, marks: bool | None, confirms: list[bool | None], marked: bool, asks: int
) -> None:
    person = Person(confirms=confirms)
    wish = HalopsWish("decode_gqa bf16 kv 4k batch 1 halops", marks=marks)
    _, events, _ = run(root, wish, person)
    assert ("# inferred" in Path(written(events)[0]).read_text()) is marked
    assert len(person.confirmed) == asks


def test_yes_keeps_the_marks_and_inferences_are_told(root: Path) -> None:
    _, events, person = run(root, HalopsWish("decode_gqa bf16 kv 4k batch 1 halops", yes=True))
    inferred = [one.what.partition(":")[0] for one in events if isinstance(one, LeftOpen)]
    text = person.shown[0][1]
    assert inferred and text.count("# inferred") == len(inferred)
    pointed = [one.message for one in events if isinstance(one, Note) and one.level == "warning"]
    assert any("values that were not given: num_q_heads" in text for text in pointed)


@pytest.mark.parametrize(
    ("wish", "message", "line"),
    [
        (HalopsWish("decode_gqa fp8 kv 4k batch 1 halops fa2"), "fa2", "decode_gqa.py:"),
        (HalopsWish("decode_gqa bf16 kv 4k batch 1 backend fa9"), "fa9", "decode_gqa.py:"),
        (HalopsWish("dense gemm w4a4-nvfp4 128x128x100 halops"), "K=100", "dense.py:"),
        (
            HalopsWish("prefill_dense seq 1k batch 1 halops", settings={"dtype": "bf16"}),
            "bf16",
            "prefill_dense.py:",
        ),
    ],
)
def test_what_the_code_would_refuse_is_refused_with_its_line(
    root: Path, wish: HalopsWish, message: str, line: str
) -> None:
    before = sorted(root.rglob("*"))
    person = Person(confirms=[True, True])
    with pytest.raises(UsageError) as refused:
        run(root, wish, person)
    assert message in refused.value.message and line in str(refused.value.where)
    assert sorted(root.rglob("*")) == before and person.shown == []


def test_another_config_of_that_name_stays(root: Path) -> None:
    path = root / "configs" / "gemm" / "dense_128x256x512_bf16.yaml"
    path.write_text("scenario: dense\n")
    _, events, _ = run(root, HalopsWish(DENSE, yes=True))
    assert written(events) == [str(path.with_name("dense_128x256x512_bf16_2.yaml"))]
    assert path.read_text() == "scenario: dense\n"


def test_the_same_once_more_is_the_same_file(root: Path) -> None:
    _, first, _ = run(root, HalopsWish(DENSE, yes=True))
    _, second, _ = run(root, HalopsWish(DENSE, yes=True))
    assert written(first) == written(second)


def test_words_that_nothing_was_made_of_are_told(root: Path) -> None:
    _, events, _ = run(root, HalopsWish(f"frobnicate 玄学, {DENSE}", yes=True))
    notes = [one.message for one in events if isinstance(one, Note)]
    assert "nothing was made of: 玄学; frobnicate" in notes


def test_a_field_that_is_not_there(root: Path) -> None:
    wish = HalopsWish(DENSE, settings={"shape": [[1, 2, 3]]}, yes=True)
    with pytest.raises(UsageError, match='unknown field "shape", did you mean "shapes"'):
        run(root, wish)


def test_the_smoke_test_says_why_it_was_skipped(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(halops_smoke, "_PROBE", 'print(\'{"torch": true, "yaml": true}\')')
    code, events, _ = run(root, HalopsWish(DENSE, yes=True, smoke=True))
    summary = events[-1]
    assert isinstance(summary, Summary) and code == ExitCode.OK
    assert "smoke test skipped: halops is not installed" in str(summary.message)


@pytest.mark.parametrize(("fails", "expected"), [(False, ExitCode.OK), (True, ExitCode.FAILED)])
def test_the_smoke_test_runs_one_backend_once(
    root: Path, monkeypatch: pytest.MonkeyPatch, fails: bool, expected: ExitCode
) -> None:
    probe = 'print(\'{"torch": true, "yaml": true, "halops": true, "gpu": true}\')'
    monkeypatch.setattr(halops_smoke, "_PROBE", probe)
    script = root / "benchmark.py"
    ended = f"import sys; print(*sys.argv[1:]); sys.exit({int(fails)})\n"
    # The facts are read before; what runs is what lies there then.
    person = Person(confirms=[True])
    person.show = lambda path, text: script.write_text(ended)  # type: ignore[assignment,method-assign,return-value]
    code, events, _ = run(root, HalopsWish(DENSE, smoke=True, marks=True), person)
    said = [getattr(one, "text", "") for one in events]
    assert code == expected
    assert (
        "--config=gemm/dense_128x256x512_bf16.yaml --backend=halops "
        "--dry-run-iters=1 --repeat-iters=1"
    ) in said


def test_no_checkout_is_told(tmp_path: Path) -> None:
    with pytest.raises(TreeError, match="no HALOps benchmark"):
        find_root(tmp_path, None)
