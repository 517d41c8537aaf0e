"""``mxfleet gen halops`` on the command line: JSON for scripts, prompts at a terminal."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from orchestrator.cli.app import main
from orchestrator.cli.dialogue import Script, Terminal, make_dialogue

CHECKOUT = Path(__file__).parents[1] / "author" / "halops" / "checkouts" / "plain"
DENSE = "dense gemm bf16 128x256x512, backends halops, cublas"
NAME = "benchmark/configs/gemm/dense_128x256x512_bf16.yaml"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(CHECKOUT, tmp_path / "repo", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.chdir(tmp_path / "repo")
    monkeypatch.delenv("MXFLEET_INVENTORY", raising=False)
    return tmp_path / "repo"


def mxfleet(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(["gen", "halops", *words])
    said = capsys.readouterr()
    return int(ended.value.code or 0), said.out, said.err


def test_questions_are_a_json_list(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = mxfleet(capsys, "加一组 w4a4-nvfp4 的 dense shape")
    questions = json.loads(out)
    assert code == 2 and err.startswith("mxfleet: what to measure is open: ")
    assert sorted(one["field"] for one in questions) == ["backends", "shapes"]
    backends = next(one for one in questions if one["field"] == "backends")
    assert backends["choices"] == ["halops", "golden", "cublas"]
    assert "backend" in backends["question"] and backends["option"].startswith("--set backends=")


def test_in_json_lines_they_are_an_event(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = mxfleet(capsys, "attention", "--output", "json")
    events = [json.loads(line) for line in out.splitlines()]
    assert code == 2 and [one["event"] for one in events] == ["questions", "summary"]
    assert events[0]["questions"][0]["choices"] == ["prefill_dense", "decode_gqa"]


def test_without_yes_it_is_shown_and_not_written(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    code, out, err = mxfleet(capsys, DENSE)
    assert code == 2 and "shapes:" in out and f"# {NAME}" in out
    assert err.endswith("mxfleet: nothing was written; --yes writes what is shown\n")
    assert not (folder / NAME).exists()


def test_yes_writes_it(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    code, out, _ = mxfleet(capsys, DENSE, "--yes", "--root", str(folder), "--strip-marks")
    assert code == 0 and "written and read back; nothing was run" in out
    text = (folder / NAME).read_text()
    assert "mode: bf16" in text and "# inferred" not in text


def test_json_lines_end_with_the_summary(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = mxfleet(capsys, DENSE, "--yes", "--output", "json")
    events = [json.loads(line) for line in out.splitlines()]
    assert code == 0 and events[-1]["event"] == "summary"
    assert events[-1]["files"] == [NAME] and events[-1]["command"] == "gen halops"
    config = next(one for one in events if one["event"] == "config")
    assert config["path"] == NAME and config["text"].startswith("scenario: dense\n")


def test_all_by_flags(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    words = ["--op", "gemm", "--scenario", "dense", "--set", "mode=bf16", "--yes"]
    words += ["--set", "shapes=128x256x512", "--set", "backends=halops,cublas"]
    code, _, _ = mxfleet(capsys, *words)
    assert code == 0 and (folder / NAME).exists()


def test_a_refusal_names_the_line(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = mxfleet(capsys, "decode_gqa bf16 kv 4k batch 1 backend fa9", "--yes")
    assert code == 2 and "mxfleet: kernel/attention/scenarios/decode_gqa.py:" in err
    assert "fa9" in err


def test_marks_are_kept_or_stripped(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = mxfleet(capsys, DENSE, "--yes", "--keep-marks", "--strip-marks")
    assert code == 2 and "say the opposite" in err


def test_no_checkout(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, err = mxfleet(capsys, DENSE, "--yes")
    assert code == 2 and "no HALOps benchmark here" in err and "--root" in err


def test_who_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert isinstance(make_dialogue(json_lines=False), Terminal)
    assert isinstance(make_dialogue(json_lines=True), Script)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False, raising=False)
    assert isinstance(make_dialogue(json_lines=False), Script)
