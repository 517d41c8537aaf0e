"""How the front doors end: closed streams, signals at bad moments, flags that cannot be meant."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from harness import testjob, warm
from harness_tree import BENCHMARK, Tree, make_tree, records_of, rows_of

RUNNER = """
import os, time
from pathlib import Path
import torch
from mcoplib_mxbenchmark_op_wrapper import OpBenchmarkBase

class Some_runner(OpBenchmarkBase):
    def define_metrics(self, state):
        state.add_summary("Op", self.name)

    def prepare_and_get_launcher(self, dev_id, tc_s):
        return self.make_launcher(dev_id, torch.relu, torch.randn(10))

    def run_verification(self, dev_id):
        (Path(self.config.get("folder")) / str(os.getpid())).touch()
        print("said by the runner")
        exec(self.config.get("do", ""))
        time.sleep(self.config.get("hang", 0))
        x = torch.randn(10)
        return self.check_diff(torch.relu(x), torch.relu(x.clone()))
"""
DOOR = "mcoplib_mxbenchmark_ops.py"


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """A tree with an operator whose processes leave a file each."""
    tree = make_tree(tmp_path / "benchmark")
    (tmp_path / "seen").mkdir()
    tree.add("some", {"dtype": "float32", "folder": str(tmp_path / "seen")}, RUNNER)
    return tree


def processes(tree: Tree) -> list[int]:
    """The cases' processes so far."""
    return [int(path.name) for path in (tree.root.parent / "seen").iterdir()]


def gone(pid: int) -> bool:
    """Whether a process ends soon; one that nobody has waited for yet has ended."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.02)
    return False


ARGV = ["--op", "some", "--engine", "torch", "--repeats", "1"]


@pytest.mark.parametrize("script", [DOOR, "testall.py"])
@pytest.mark.parametrize(
    "streams", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-", ">/dev/full 2>&1", "| (exec <&-; sleep 9)"]
)
def test_streams_that_are_closed_or_full_cost_no_result(
    tree: Tree, tmp_path: Path, script: str, streams: str
) -> None:
    table = tmp_path / "t.csv"
    op = "--generate --op" if script == DOOR else "--ops"
    command = f"{sys.executable} {script} {op} some --csv {table} --repeats 2 {streams}"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        cwd=tree.root,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done
    (record,) = records_of(table.with_suffix(".records.jsonl"))
    assert record["status"] == "PASSED" and len(rows_of(table)) == 2
    assert len(processes(tree)) == 2


def test_a_server_whose_client_goes_before_it_answers_leaves_nothing(tree: Tree) -> None:
    # The request waits in the socket while the server imports torch.
    script = (
        "import os; from pathlib import Path; from harness import warm\n"
        f"server = warm.Server(Path({str(tree.root)!r}))\n"
        "server._receive = lambda limit: None\n"
        f"server.start({[*ARGV, '--set', 'hang=60']!r}, 2)\n"
        "print(server._process.pid, flush=True); os._exit(0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=BENCHMARK,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert gone(int(done.stdout)) and "Traceback" not in done.stderr, done
    assert all(map(gone, processes(tree)))


@pytest.fixture
def server(tree: Tree) -> Any:
    server = warm.Server(tree.root)
    yield server
    server.close()


def test_a_front_door_does_not_outlive_its_warm_server(
    tree: Tree, server: warm.Server, tmp_path: Path
) -> None:
    with (tmp_path / "out").open("wb") as out:
        pid = server.start([*ARGV, "--set", "hang=60"], out.fileno())
    assert isinstance(pid, int)
    # Whoever is told of a process can end its group.
    assert os.getpgid(pid) == pid
    deadline = time.monotonic() + 60
    while not processes(tree) and time.monotonic() < deadline:
        time.sleep(0.02)
    server._process.send_signal(signal.SIGKILL)
    assert gone(pid) and processes(tree) and all(map(gone, processes(tree)))


def test_a_job_that_was_ended_starts_nothing_later(tree: Tree, tmp_path: Path) -> None:
    server = warm.Server(tree.root)
    with (tmp_path / "out").open("wb") as out:
        job = testjob.Job(tree.root, ARGV, server)
        job.kill()
        server.close()
        code = job.run(out.fileno(), 60.0)
    assert code is not None and code < 0 and not processes(tree)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("after", [0.3, 1.0])
def test_testall_ends_at_once_while_torch_is_imported(
    tree: Tree, number: signal.Signals, after: float
) -> None:
    command = [sys.executable, "testall.py", "--csv", "t.csv", "--ops", "some"]
    with subprocess.Popen(
        [*command, "--set", "hang=60"],
        cwd=tree.root,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as testall:
        assert testall.stdout is not None
        assert testall.stdout.read(6) == "[1/1] "
        time.sleep(after)
        testall.send_signal(number)
        said = testall.communicate(timeout=30)[0]
    assert testall.returncode == (130 if number is signal.SIGINT else -number), said
    assert "Traceback" not in said and all(map(gone, processes(tree)))


@pytest.mark.parametrize("cold", [[], ["--cold"]])
def test_ctrl_c_pressed_again_breaks_nothing_off(tree: Tree, cold: list[str]) -> None:
    command = [sys.executable, "testall.py", "--csv", "t.csv", "--ops", "some", *cold]
    with subprocess.Popen(
        [*command, "--set", "hang=60"],
        cwd=tree.root,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as testall:
        deadline = time.monotonic() + 60
        while not processes(tree) and time.monotonic() < deadline:
            time.sleep(0.02)
        while testall.poll() is None and time.monotonic() < deadline:
            testall.send_signal(signal.SIGINT)
            time.sleep(0.01)
        said = testall.communicate(timeout=30)[0]
    assert testall.returncode == 130 and "Traceback" not in said, said
    assert processes(tree) and all(map(gone, processes(tree)))


def test_an_end_that_comes_too_late_is_not_the_next_start(tmp_path: Path) -> None:
    server = warm.Server.__new__(warm.Server)
    server._socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with server._socket, other, (tmp_path / "out").open("wb") as out:
        other.send(b'{"status": 9}')
        other.send(b'{"pid": 4711}')
        assert server.start([], out.fileno()) == 4711


@pytest.mark.parametrize("number", ["nan", "inf", "-1", "0", "1e300", "x"])
def test_times_are_more_than_nothing(tree: Tree, number: str) -> None:
    for flag in ("--case-timeout", "--timeout", "--min-time"):
        ran = tree.run("--op", "some", f"{flag}={number}")
        assert ran.code == 2 and f"argument {flag}: {number} is no positive" in ran.err
    ran = tree.run("--csv", "t.csv", f"--op-timeout={number}", script="testall.py")
    assert ran.code == 2 and f"argument --op-timeout: {number} is no positive" in ran.err
    assert not processes(tree)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--op", "torch_softmax"], "no --op: name operators with --ops"),
        (["--op=torch_softmax"], "no --op: name operators with --ops"),
        (["--list"], "no --list"),
        (["--records", "r.jsonl"], "no --records: records lie beside the table"),
        (["--gpus", "0", "--device", "1"], "--device goes without --gpus"),
        (["--gpus", "0", "-d", "1"], "-d goes without --gpus"),
    ],
)
def test_testall_refuses_what_would_measure_something_else(
    tree: Tree, flags: list[str], words: str
) -> None:
    ran = tree.run("--ops", "some", "--csv", "t.csv", *flags, script="testall.py")
    assert ran.code == 2 and words in ran.err and not processes(tree)


@pytest.mark.parametrize("cold", [[], ["--cold"]])
def test_wrong_usage_of_a_front_door_is_usage_in_testall_too(tree: Tree, cold: list[str]) -> None:
    args = ("--ops", "some", "--csv", "t.csv", "--repeats", "0", *cold)
    ran = tree.run(*args, script="testall.py")
    assert ran.code == 2 and "0 is no positive number" in ran.out
    assert "Traceback" not in ran.out


def test_what_fails_around_an_operator_is_its_error(tree: Tree) -> None:
    spoil = "import errno, tempfile; from harness import testjob, batch; run = testjob.Job.run; "
    spoil += "testjob.Job.run = lambda job, *a: run(job, *a) if 'some' not in job._argv else 1/0"
    args = ("--ops", "some,torch_softmax", "--csv", "t.csv", "--repeats", "1")
    ran = tree.run(*args, script="testall.py", before=spoil)
    assert ran.code == 1 and "some ... ERROR (ZeroDivisionError" in ran.out, ran
    assert "torch_softmax ... SUCCESS" in ran.out and "not_run=0" in ran.out


def record(status: str, **more: Any) -> dict[str, Any]:
    return {"status": status, "known_failure": None, **more}


KNOWN = {"reason": "old", "expires": "2099-01-01", "expired": False}


@pytest.mark.parametrize(
    ("records", "code", "status", "told", "dead"),
    [
        ([record("UNAVAILABLE")], 3, "UNAVAILABLE", 0, False),
        ([record("FAILED", known_failure=KNOWN)], 0, "FAILED", 0, False),
        # What ended the front door is none of its cases.
        ([record("UNAVAILABLE")], 1, "ERROR", 1, False),
        ([record("UNAVAILABLE"), record("PASSED")], 2, "ERROR", 2, False),
        ([record("FAILED", known_failure=KNOWN), record("PASSED")], 2, "ERROR", 2, False),
        ([record("FAILED")], 70, "ERROR", 1, False),
        ([record("PASSED")], 70, "ERROR", 1, False),
        ([record("PASSED")], 3, "ERROR", 3, True),
        ([record("FAILED")], 3, "FAILED", 1, True),
        ([record("ERROR", known_failure=KNOWN)], 3, "ERROR", 3, True),
    ],
)
def test_an_exit_code_that_the_records_do_not_explain_counts(
    records: list[dict[str, Any]], code: int, status: str, told: int, dead: bool
) -> None:
    result = testjob.judge(code, records, b"said", strict=False)
    assert (result.status, result.code, result.device_dead) == (status, told, dead)


def test_of_what_is_printed_the_end_is_read(tmp_path: Path) -> None:
    path = tmp_path / "output"
    path.write_bytes(b"first\n" + b"x" * testjob.LOOKED_AT + b"\nlast\n")
    assert testjob.end_of(path) == b"last\n"
    path.write_bytes(b"x" * (2 * testjob.LOOKED_AT))
    result = testjob.Result("ERROR", "", 1, testjob.end_of(path))
    (line,) = result.tail()
    assert 0 < len(line) <= testjob.WIDTH + 4


@pytest.mark.parametrize("line", ['{"status": []}', '{"status": {}}', "[" * 100000])
def test_records_that_are_none_are_refused(tmp_path: Path, line: str) -> None:
    own = tmp_path / "own.jsonl"
    own.write_text(line + "\n")
    with pytest.raises(testjob.ForeignFileError, match=r"own\.jsonl:1: the operator wrote"):
        testjob.keep(own, tmp_path / "all.jsonl")


def test_an_error_is_told_by_a_runner_that_took_the_streams_away(tree: Tree) -> None:
    do = "import sys; sys.stdout = sys.stderr = None; raise RuntimeError('told')"
    tree.run("--op", "some", "--records", "r.jsonl", "--set", f"do={do}")
    (found,) = records_of(tree.root / "r.jsonl")
    assert (found["status"], found["error"]["message"]) == ("ERROR", "told")
