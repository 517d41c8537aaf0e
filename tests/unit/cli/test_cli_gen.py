"""``mxfleet gen op`` on the command line: what it takes, refuses and prints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orchestrator.cli.app import main

TREES = Path(__file__).parents[1] / "author" / "trees"
ROOT = Path(__file__).parents[3]
SOURCE = ["--source", str(TREES / "mcoplib")]
TEST = ["--unit-test", str(TREES / "mcoplib" / "unit_test" / "test_silu_and_mul.py")]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MXFLEET_INVENTORY", raising=False)
    with pytest.raises(SystemExit) as ended:
        main(["init", "."])
    assert ended.value.code == 0
    for name in (
        "config/silu_and_mul.json",
        "runners/mcoplib_mxbenchmark_silu_and_mul_runners.py",
    ):
        (tmp_path / "benchmark" / name).unlink()
    door = tmp_path / "benchmark" / "mcoplib_mxbenchmark_ops.py"
    door.write_text(door.read_text().replace('    "silu_and_mul",\n', ""))
    return tmp_path


def mxfleet(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(["gen", "op", *words])
    said = capsys.readouterr()
    return int(ended.value.code or 0), said.out, said.err


def test_text_names_files_and_what_is_next(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = mxfleet(capsys, "silu_and_mul", *SOURCE, *TEST)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "created benchmark/config/silu_and_mul.json"
    assert lines[2] == "changed benchmark/mcoplib_mxbenchmark_ops.py"
    assert lines[3].startswith("inferred silu_and_mul: num_tokens: the unit test has at most")
    assert lines[-1].endswith("next: mxfleet verify --op silu_and_mul")


def test_json_has_an_event_a_file_and_ends_with_the_summary(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, out, _ = mxfleet(capsys, "silu_and_mul", *SOURCE, *TEST, "--output", "json")
    events = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [e["event"] for e in events] == ["drafted"] * 3 + ["open", "summary"]
    assert events[-1]["command"] == "gen op" and events[-1]["counts"]["todos"] == 0


def test_a_dry_run_is_a_diff(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    code, out, _ = mxfleet(capsys, "silu_and_mul", *SOURCE, *TEST, "--dry-run")
    assert code == 0 and "would create benchmark/config/silu_and_mul.json" in out
    assert '+    "silu_and_mul",' in out and out.rstrip().endswith("nothing was written")
    assert not (folder / "benchmark" / "config" / "silu_and_mul.json").exists()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["silu_and_mul", *SOURCE], "--unit-test"),
        (["silu_and_mul", *TEST], "--source"),
        (["silu_and_mull", *SOURCE, *TEST], "silu_and_mul"),
        (["silu_and_mul", *SOURCE, *TEST, "--set", "d"], "no KEY=VALUE"),
        (["silu_and_mul", *SOURCE, *TEST, "--set", "dd=1"], 'did you mean "d"'),
        (["silu_and_mul", *SOURCE, *TEST, "--framework", "sgl"], "sgl"),
        (["silu_and_mul", *SOURCE, "--unit-test", "nowhere.py"], "nowhere.py"),
        (["silu_and_mul", "--source", "nowhere", *TEST], "nowhere"),
        (["silu_and_mul", *SOURCE, *TEST, "--root", "nowhere"], "no benchmark folder"),
        (["silu_and_mul", *SOURCE, *TEST, "--run", "--dry-run"], "exclude each other"),
        (["silu_and_mul", *SOURCE, *TEST, "--run", "--root", "benchmark"], "--root"),
        (["os.system", *SOURCE, *TEST], "no operator's name"),
    ],
)
def test_mistakes_are_one_line_and_change_nothing(
    capsys: pytest.CaptureFixture[str], folder: Path, words: list[str], expected: str
) -> None:
    door = folder / "benchmark" / "mcoplib_mxbenchmark_ops.py"
    before = door.read_bytes()
    code, out, err = mxfleet(capsys, *words)
    assert code == 2 and expected in err and err.count("\n") == 1 and out == ""
    assert door.read_bytes() == before


@pytest.mark.parametrize(
    "content", [b"\x00" * 100, b"\xff\xfe", b"def test(:\n", b"(" * 5000, b"", b"x = 1\n"]
)
def test_a_unit_test_of_any_kind_is_told_in_a_line(
    capsys: pytest.CaptureFixture[str], folder: Path, content: bytes
) -> None:
    path = folder / "test_odd.py"
    path.write_bytes(content)
    code, _, err = mxfleet(capsys, "silu_and_mul", *SOURCE, "--unit-test", str(path))
    assert code == 2 and err.count("\n") == 1 and "Traceback" not in err
