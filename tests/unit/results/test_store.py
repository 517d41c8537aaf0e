"""The record store: a set by ``record_id``, whatever comes in and in which order."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.records import Record
from orchestrator.results.store import add_records, load_records, read_records, store_path

MakeRecord = Callable[..., Record]


@given(st.lists(st.lists(st.integers(0, 9), max_size=6), max_size=5))
def test_any_parts_in_any_order_are_one_set(
    tmp_path_factory: pytest.TempPathFactory, parts: list[list[int]]
) -> None:
    folder = tmp_path_factory.mktemp("store")
    for part in parts:
        add_records([record_of(number) for number in part], folder)
    wanted = {str(number) for part in parts for number in part}
    found = load_records(folder)
    assert len(found) == len(wanted)
    assert {record.record_id for record in found} == wanted


def record_of(number: int) -> Record:
    return Record.model_validate(
        {
            "schema": "mxfleet-result/1",
            "record_id": str(number),
            "suite": "mcoplib",
            "op": "op",
            "status": "PASSED",
            "run": f"run-{number % 3}",
        }
    )


def test_unknown_keys_survive(make_record: MakeRecord, tmp_path: Path) -> None:
    add_records([make_record(power={"mean": 300.5}, target="é 中")], tmp_path)
    [record] = load_records(tmp_path)
    assert json.loads(record.to_line())["power"] == {"mean": 300.5}
    assert record.target == "é 中"


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param(b'{"schema": "mxfleet-result/1", "rec', id="cut off"),
        pytest.param(b'{"schema": "mxfleet-result/9"}', id="another schema"),
        pytest.param(b"\xff\xfe\x00", id="not UTF-8"),
        pytest.param(b"[]", id="no object"),
    ],
)
@pytest.mark.parametrize("end", [b"\n", b""])
def test_a_broken_line_is_reported_and_kept(
    make_record: MakeRecord, tmp_path: Path, broken: bytes, end: bytes
) -> None:
    first, second = make_record(), make_record()
    [path] = add_records([first], tmp_path)
    data = path.read_bytes() + broken + end
    path.write_bytes(data)
    heard: list[str] = []
    add_records([second], tmp_path, report=heard.append)
    assert path.read_bytes().startswith(data)
    assert [text.partition(": ")[0] for text in heard] == [f"{path}:2"]
    heard.clear()
    assert load_records(tmp_path, report=heard.append) == [first, second]
    assert read_records(path, report=heard.append) == [first, second]
    assert len(heard) == 2


@pytest.mark.parametrize(
    ("run", "name"),
    [
        ("20261130-2100-ab", "20261130-2100-ab.jsonl"),
        ("../../etc/cron.d/x", "_.._etc_cron.d_x.jsonl"),
        ("", "no-run.jsonl"),
        (None, "no-run.jsonl"),
        ("..", "no-run.jsonl"),
    ],
)
def test_a_run_names_one_file_of_the_folder(tmp_path: Path, run: str | None, name: str) -> None:
    assert store_path(tmp_path, run) == tmp_path / name


def test_lone_surrogates_do_not_stop_the_store(make_record: MakeRecord, tmp_path: Path) -> None:
    add_records([make_record(summaries={"Shape": "\ud800"})], tmp_path)
    assert load_records(tmp_path)[0].summaries == {"Shape": "?"}
