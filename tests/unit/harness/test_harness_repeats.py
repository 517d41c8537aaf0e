"""Several processes a case, forked from one that imported torch, and testall's warm server."""

from __future__ import annotations

import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from harness import repeats, testjob, timing, warm
from harness_tree import BENCHMARK, Tree, make_tree, records_of

# Counts its processes in a file, so that the n-th one can go wrong.
COUNTING = """
import os, time
from pathlib import Path
import torch
from mcoplib_mxbenchmark_op_wrapper import OpBenchmarkBase

class Counting_runner(OpBenchmarkBase):
    def __init__(self, name, config):
        super().__init__(name, config)
        self.folder = Path(config.get("folder"))
        self.bad = config.get("bad", 0)
        self.how = config.get("how", "")
        (self.folder / f"{time.monotonic_ns()} {os.getppid()} {os.getpid()}").touch()
        self.number = len(list(self.folder.iterdir()))

    def define_metrics(self, state):
        state.add_summary("Op", self.name)

    def prepare_and_get_launcher(self, dev_id, tc_s):
        print("said by process", self.number)
        if self.number == self.bad and self.how == "crash":
            os.abort()
        if self.number == self.bad and self.how == "hang":
            time.sleep(60)
        x = torch.randn(1000)
        return self.make_launcher(dev_id, torch.relu, x)

    def run_verification(self, dev_id):
        x = torch.randn(1000, generator=self.generator(dev_id, 1))
        wrong = self.number == self.bad and self.how == "wrong"
        return self.check_diff(torch.relu(x) * (2 if wrong else 1), torch.relu(x.clone()))
"""


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """A tree with the counting operator; its processes leave a file each."""
    tree = make_tree(tmp_path / "benchmark")
    (tmp_path / "seen").mkdir()
    tree.add("counting", {"dtype": "float32", "folder": str(tmp_path / "seen")}, COUNTING)
    return tree


def seen(tree: Tree) -> list[tuple[int, int]]:
    """Parent and pid of each process of the operator, in their order."""
    names = sorted(path.name for path in (tree.root.parent / "seen").iterdir())
    return [(int(parent), int(pid)) for _, parent, pid in (name.split() for name in names)]


def measured(tree: Tree, *args: str) -> tuple[int, dict[str, Any], str]:
    out = tree.root.parent / "r.jsonl"
    ran = tree.run("--op", "counting", "--records", str(out), *args)
    (record,) = records_of(out)
    return ran.code, record, ran.out + ran.err


@pytest.mark.parametrize(
    ("flags", "mode", "number"),
    [
        ([], "adaptive", 5),
        (["--repeats", "2"], "adaptive", 2),
        (["--sampling", "established"], "established", 1),
        (["--sampling", "established", "--repeats", "3"], "established", 3),
    ],
)
def test_a_case_is_measured_in_several_processes(
    tree: Tree, flags: list[str], mode: str, number: int
) -> None:
    code, record, said = measured(tree, *flags)
    medians = record["sampling"]["medians"]
    assert (code, record["status"], record["repeats"]) == (0, "PASSED", number), said
    assert (record["sampling"]["mode"], record["sampling"]["repeats"]) == (mode, number)
    assert len(medians) == number == len({pid for _, pid in seen(tree)})
    assert len({parent for parent, _ in seen(tree)}) == 1
    assert record["timers"]["cpu"]["median"] == statistics.median(medians)
    if number == 1:
        assert record["repeat_spread"] is None
    else:
        spread = (max(medians) - min(medians)) / statistics.median(medians)
        assert record["repeat_spread"] == pytest.approx(spread)
    # One process is enough to see what the runner prints.
    assert said.count("[VERIFY] counting -> PASS") == 1 == said.count("said by process")


@pytest.mark.parametrize(
    ("how", "status", "code", "words"),
    [
        ("wrong", "FAILED", 1, "norm is 2 times"),
        ("crash", "ERROR", 1, "SIGABRT"),
        ("hang", "TIMEOUT", 4, "killed after 8 s"),
    ],
)
def test_one_process_that_goes_wrong_decides_the_case(
    tree: Tree, how: str, status: str, code: int, words: str
) -> None:
    flags = ("--set", "bad=3", "--set", f"how={how}", "--case-timeout", "8")
    ended, record, said = measured(tree, *flags)
    assert (ended, record["status"]) == (code, status), said
    message = record["error"]["message"]
    assert words in message and "in process 3 of 5, after 2 that passed" in message
    assert len(seen(tree)) == 3 and len(record["sampling"]["medians"]) == 2
    assert record["timers"]["cpu"] is None and record["summaries"] == {"Op": "counting"}
    # What the process that went wrong printed is not lost with its quietness.
    if how != "wrong":
        assert "said by process 3" in said
    assert f"[FATAL] counting: {'verification failed' if how == 'wrong' else status}" in said


# Offers what it times; goes wrong in a process of its number, or offers nothing there.
TIMED = COUNTING.replace(
    "    def run_verification(self, dev_id):",
    """    def verify_timed(self, dev_id):
        print("held to what was timed", self.number)
        if self.number == self.bad and self.how == "silent":
            return None
        x = torch.randn(10, generator=self.generator(dev_id, 1))
        wrong = self.number == self.bad and self.how == "timed"
        return self.check_diff(x * (2 if wrong else 1), x.clone())

    def run_verification(self, dev_id):
        (self.folder.parent / f"verified {self.number}").touch()""",
)


@pytest.mark.parametrize(
    ("how", "bad", "status", "verified"),
    [
        ("", 0, "PASSED", [1]),
        ("timed", 1, "FAILED", [1]),
        ("timed", 2, "FAILED", [1]),
        # A process that offers nothing is verified like the first, after measuring.
        ("silent", 2, "PASSED", [1, 2]),
    ],
)
def test_timed_buffers_are_verified_in_every_process(
    tree: Tree, how: str, bad: int, status: str, verified: list[int]
) -> None:
    (tree.root / "runners/mcoplib_mxbenchmark_counting_runners.py").write_text(TIMED)
    flags = ("--repeats", "3", "--set", f"bad={bad}", "--set", f"how={how}")
    code, record, said = measured(tree, *flags)
    assert (record["status"], code) == (status, 0 if status == "PASSED" else 1), said
    found = sorted(path.name for path in tree.root.parent.glob("verified *"))
    assert found == [f"verified {number}" for number in verified]
    if status == "FAILED":
        assert "what was timed is wrong" in record["error"]["message"]
        assert record["verification"]["passed"] is False
    else:
        assert record["verification"]["passed"] and record["verification"]["timed"]
        assert record["repeats"] == 3


@pytest.mark.parametrize("number", ["0", "-1", "x", "1.5"])
def test_repeats_are_a_positive_number(tree: Tree, number: str) -> None:
    ran = tree.run("--op", "counting", f"--repeats={number}")
    assert ran.code == 2 and "--repeats" in ran.err


def timer(**known: Any) -> timing.Timer:
    return {**timing.unknown(), **known}  # type: ignore[typeddict-item]


def outcome(median: float | None, **timers: Any) -> dict[str, Any]:
    cold = None if median is None else timer(median=median, mean=median * 2, samples=10, min=median)
    return {
        "status": "PASSED",
        "timers": {"cold_gpu": cold, "cpu": None, "batch_gpu": None, **timers},
        "rates": {"elements_per_second": median, "bytes_per_second": None},
        "board": {"before": median, "after": -(median or 0)},
        "verification": {"passed": True, "metrics": {"norm_ratio": 1 + (median or 0)}},
    }


def test_processes_are_put_together() -> None:
    batch = timer(mean=9.0)
    first = outcome(2.0, batch_gpu=batch)
    first["timers"]["cold_gpu"]["samples"] = 30
    together = repeats.combine([first, outcome(1.0), outcome(4.0)])
    cold = together["timers"]["cold_gpu"]
    assert (cold["median"], cold["min"], cold["samples"]) == (2.0, 1.0, 50)
    # Each sample counts once: 30 of 4 s, 10 of 2 s, 10 of 8 s.
    assert cold["mean"] == pytest.approx((30 * 4 + 10 * 2 + 10 * 8) / 50)
    assert together["timers"]["batch_gpu"] is batch and together["timers"]["cpu"] is None
    # 4 s was the first process's mean.
    rates = {"elements_per_second": pytest.approx(2.0 * 4 / cold["mean"]), "bytes_per_second": None}
    assert together["rates"] == rates
    assert (together["repeat_spread"], together["medians"]) == (1.5, [2.0, 1.0, 4.0])
    assert together["board"] == {"before": 2.0, "after": -4.0}
    assert together["verification"]["metrics"] == {"norm_ratio": 5.0}


@pytest.mark.parametrize("gpus", [[], ["--gpus", "0,1"]])
def test_testall_forks_its_operators_from_one_warm_process_a_gpu(
    tree: Tree, gpus: list[str]
) -> None:
    folder = str(tree.root.parent / "seen")
    names = [f"counting_{letter}" for letter in "abcd"]
    for name in names:
        tree.add(name, {"dtype": "float32", "folder": folder}, COUNTING)
    table = tree.root.parent / "t.csv"
    args = ("--csv", str(table), "--ops", ",".join(names), "--engine", "torch", "--repeats", "1")
    ran = tree.run(*args, *gpus, script="testall.py")
    assert ran.code == 0 and "total=4 success=4" in ran.out, ran
    assert "not forked" not in ran.out and "fresh Python" not in ran.out
    for number, name in enumerate(names, start=1):
        assert f"[{number}/4] {name} ... SUCCESS (appended)" in ran.out
    assert len(records_of(table.with_suffix(".records.jsonl"))) == 4


@pytest.mark.parametrize(
    ("gpus", "words"),
    [("0,0", "different indices"), ("x", "different indices"), ("all", "sees no GPU")],
)
def test_gpus_that_are_none(tree: Tree, gpus: str, words: str) -> None:
    ran = tree.run("--gpus", gpus, "--csv", "t.csv", script="testall.py")
    assert ran.code == 2 and words in ran.err


@pytest.fixture
def server(tree: Tree) -> Any:
    """A warm server of the tree."""
    server = warm.Server(tree.root)
    yield server
    server.close()


ARGV = ["--op", "counting", "--engine", "torch", "--repeats", "1"]


def test_a_warm_server_starts_one_operator_after_the_other(
    tree: Tree, server: warm.Server, tmp_path: Path
) -> None:
    for _ in range(3):
        with (tmp_path / "out").open("wb") as out:
            pid = server.start(ARGV, out.fileno())
        assert isinstance(pid, int), pid
        assert server.wait(60) == 0
        assert "[VERIFY] counting -> PASS" in (tmp_path / "out").read_text()
        assert os.getpgid(server._process.pid) != os.getpgid(0)
    parents = {parent for parent, _ in seen(tree)}
    assert len(parents) == 3 and server._process.pid not in parents


def test_what_hangs_in_a_warm_server_is_ended_and_the_next_runs(
    tree: Tree, server: warm.Server, tmp_path: Path
) -> None:
    hanging = [*ARGV, "--set", "bad=1", "--set", "how=hang"]
    with (tmp_path / "out").open("wb") as out:
        job = testjob.Job(tree.root, hanging, server)
        assert job.run(out.fileno(), 3.0) is None
        again = testjob.Job(tree.root, ARGV, server)
        assert again.run(out.fileno(), 60.0) == 0
    for parent, pid in seen(tree):
        assert _gone(parent) and _gone(pid)


def _gone(pid: int) -> bool:
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        try:
            # A zombie is gone too: its parent, this very process perhaps, has not looked yet.
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state in "ZX":
            return True
        time.sleep(0.05)
    return False


def test_a_warm_server_that_died_is_replaced_by_a_fresh_python(
    tree: Tree, server: warm.Server, tmp_path: Path
) -> None:
    server._process.send_signal(signal.SIGKILL)
    server._process.wait()
    with (tmp_path / "out").open("wb") as out:
        job = testjob.Job(tree.root, ARGV, server)
        assert job.run(out.fileno(), 60.0) == 0
    said = (tmp_path / "out").read_text()
    assert "not forked from the warm process: it ended" in said and "-> PASS" in said


def test_a_soiled_server_refuses_and_a_fresh_python_takes_the_operator(
    tree: Tree, tmp_path: Path
) -> None:
    # A file that Python imports at its start, as tools of a container may leave one.
    thread = "from threading import Event, Thread; Thread(target=Event().wait, daemon=True).start()"
    (tree.root / "sitecustomize.py").write_text(thread)
    table = tmp_path / "t.csv"
    env = {**os.environ, "PYTHONPATH": str(tree.root), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "testall.py", "--ops", "counting", "--csv", str(table)]
    done = subprocess.run(
        [*command, "--repeats", "2"],
        cwd=tree.root,
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0 and "success=1" in done.stdout, done
    (record,) = records_of(table.with_suffix(".records.jsonl"))
    assert record["repeats"] == 2 and len(seen(tree)) == 2


def test_a_server_ends_when_its_client_is_gone(tree: Tree) -> None:
    script = (
        "import sys, time; from pathlib import Path; from harness import warm\n"
        f"server = warm.Server(Path({str(tree.root)!r}))\n"
        f"pid = server.start({[*ARGV, '--set', 'bad=1', '--set', 'how=hang']!r}, 2)\n"
        "time.sleep(2); print(server._process.pid, pid, flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], cwd=BENCHMARK, stdout=subprocess.PIPE, text=True
    ) as client:
        assert client.stdout is not None
        pids = [int(word) for word in client.stdout.readline().split()]
        client.kill()
    assert len(pids) == 2 and all(map(_gone, pids))


LEAVING = """
import os, subprocess, sys, time
import torch
from mcoplib_mxbenchmark_op_wrapper import OpBenchmarkBase

class Leaving_runner(OpBenchmarkBase):
    def __init__(self, name, config):
        super().__init__(name, config)
        how = config.get("how")
        left = subprocess.Popen(["sleep", "120"], start_new_session=True)
        with open(config.get("pids"), "a") as file:
            print(left.pid, file=file)
        if how == "crash":
            os.abort()
        if how == "hang":
            time.sleep(120)

    def define_metrics(self, state):
        state.add_summary("Op", self.name)

    def prepare_and_get_launcher(self, dev_id, tc_s):
        return self.make_launcher(dev_id, torch.relu, torch.randn(10))

    def run_verification(self, dev_id):
        x = torch.randn(10)
        return self.check_diff(torch.relu(x), torch.relu(x.clone()))
"""


def left_by(tree: Tree) -> list[int]:
    """The processes that the operator has detached."""
    path = tree.root.parent / "pids"
    return [int(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def leaving(tree: Tree) -> Tree:
    pids = str(tree.root.parent / "pids")
    tree.add("leaving", {"dtype": "float32", "how": "well", "pids": pids}, LEAVING)
    return tree


@pytest.mark.parametrize("how", ["well", "crash", "hang"])
def test_what_a_case_detaches_does_not_outlive_it(leaving: Tree, how: str) -> None:
    flags = ("--set", f"how={how}", "--repeats", "2", "--case-timeout", "3")
    leaving.run("--op", "leaving", *flags)
    assert left_by(leaving) and all(map(_gone, left_by(leaving)))


@pytest.mark.parametrize("cold", [[], ["--cold"]])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_outlives_testall(leaving: Tree, cold: list[str], number: int) -> None:
    command = [sys.executable, "testall.py", "--csv", "t.csv", "--ops", "leaving,counting", *cold]
    with subprocess.Popen(
        [*command, "--set", "how=hang"],
        cwd=leaving.root,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as testall:
        deadline = time.monotonic() + 60
        while not left_by(leaving) and time.monotonic() < deadline:
            time.sleep(0.05)
        started = set(_descendants(testall.pid)).difference(left_by(leaving))
        testall.send_signal(number)
        said = testall.communicate(timeout=30)[0]
    assert testall.returncode == {signal.SIGINT: 130}.get(signal.Signals(number), -number), said
    assert started and all(_gone(pid) for pid in started)
    assert all(map(_gone, left_by(leaving)))
    assert "counting" not in said


def _descendants(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in map(int, (task / "children").read_text().split()):
            found += [child, *_descendants(child)]
    return found


def test_records_that_find_no_place_are_left_where_they_are(tree: Tree, tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.with_suffix(".records.jsonl").mkdir()
    args = ("--csv", str(table), "--ops", "counting", "--repeats", "1")
    ran = tree.run(*args, script="testall.py")
    assert ran.code == 2 and "records cannot be written" in ran.out, ran
    left = Path(ran.out.split("they are left in ")[1].split(")")[0])
    (record,) = records_of(left / "records.jsonl")
    assert record["status"] == "PASSED"
    shutil.rmtree(left)
