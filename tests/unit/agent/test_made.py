"""What a profiled job made is sent within bounds, and what is not sent is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from agent_kit import Jobs, receive

from orchestrator.transport.agent import made
from orchestrator.transport.session import AgentSession


def sent(folder: Path) -> tuple[dict[str, bytes], dict[str, str]]:
    """The files that are sent, and why others are not."""
    files: dict[str, bytes] = {}
    left_out: dict[str, str] = {}

    def announce(message: dict[str, Any]) -> None:
        assert message["made"] is True
        if message["type"] == "file":
            files[message["name"]] = b""
        else:
            left_out[message["name"]] = message["why"]

    def data(part: bytes) -> None:
        files[list(files)[-1]] += part

    made.send_made(str(folder), announce, data)
    return files, left_out


def test_ours_are_not_sent_again(tmp_path: Path) -> None:
    for name in (*sorted(made.OURS - {"shadow"}), ".result.csv.lock", "records.jsonl.1.tmp"):
        (tmp_path / name).write_text(name)
    (tmp_path / "shadow" / "config").mkdir(parents=True)
    (tmp_path / "shadow" / "config" / "x.json").write_text("{}")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "output").write_text("theirs")
    assert sent(tmp_path) == ({"deep/output": b"theirs"}, {})


def test_no_more_files_than_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(made, "MOST_FILES", 3)
    for number in range(5):
        (tmp_path / f"part{number}").write_text("x")
    files, left_out = sent(tmp_path)
    assert list(files) == ["part0", "part1", "part2"]
    why = f"only 3 files are sent back; it lies in {tmp_path}"
    assert left_out == {"part3": why, "part4": why}


def test_no_more_bytes_than_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(made, "MOST_BYTES", 10)
    for name, size in (("a", 6), ("b", 5), ("c", 4), ("d", 0), ("e", 1)):
        (tmp_path / name).write_bytes(b"x" * size)
    files, left_out = sent(tmp_path)
    assert {name: len(data) for name, data in files.items()} == {"a": 6, "c": 4, "d": 0}
    assert left_out["b"] == f"it has 5 bytes, and at most 10 come back; it lies in {tmp_path}"
    assert left_out.keys() == {"b", "e"}


def test_what_is_no_file_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc/passwd")
    (tmp_path / "folder").symlink_to("/etc")
    (tmp_path / "way").mkdir()
    (tmp_path / "way" / "up").symlink_to("..")
    assert sent(tmp_path) == ({}, {})
    assert sent(tmp_path / "gone") == ({}, {})


@pytest.mark.parametrize("profiler", [[], ["env", "A=b"]])
def test_only_of_profiled_jobs(session: AgentSession, jobs: Jobs, profiler: list[str]) -> None:
    source = "import os; open(os.environ['MXFLEET_JOB'] + '/report', 'w').write(os.environ['A'])"
    more: dict[str, Any] = {"env": {"A": "c"}}
    if profiler:  # a job of a warm worker's would not be the profiler's child
        more = {"profiler": profiler, "warm": True}
    spec = jobs.spec(source, name="one", **more)
    ran = receive(session, spec)
    assert ran.outcome["exit_code"] == 0
    assert ran.files == ({"report": b"b"} if profiler else {})
    again = receive(session, {"store": str(jobs.store), "job": "one", "made": True}, op="fetch")
    assert again.files["report"] == (b"b" if profiler else b"c")
