"""`mxfleet run --profile`: a profiler before the job's command, and what it wrote comes back."""

from __future__ import annotations

import json
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from .checkout import Site
from .conftest import LoopbackFleet
from .workbench import Bench

HOSTS = ("loop1", "loop2")
OP = "probe_digest"
# A profiler as a script of the tree: everything that one may leave, and what it must not get us to.
WATCHER = r"""
mkdir -p "$1/deep/er" "$1/left"
echo one >"$1/deep/er/report 1.txt"
echo two >"$1/.hidden"
printf three >"$1/$(printf 'line\nend')"
: >"$1/empty"
ln -s /etc/passwd "$1/stolen"
ln -s /etc "$1/deep/folder"
mkfifo "$1/pipe"
truncate -s 2G "$1/huge"
echo four >left-in-the-tree.prof
shift
exec "$@"
"""


@pytest.fixture
def strace(fleet: LoopbackFleet) -> Iterator[str]:
    """A folder in the hosts' containers with this machine's strace and its libraries."""
    found = shutil.which("strace")
    if found is None:
        pytest.skip("needs strace: apt-get install strace")
    listing = subprocess.run(["ldd", found], capture_output=True, text=True, check=True).stdout
    libraries = [word for word in listing.split() if word.startswith("/") and "unwind" in word]
    libraries += [word for word in listing.split() if word.startswith("/") and "lzma" in word]
    folder = f"/opt/mxfleet-test-{secrets.token_hex(4)}"
    for host in HOSTS:
        fleet.in_container(host, "mkdir", folder)
        for path in (found, *libraries):
            where = f"{fleet.container}:{folder}/{Path(path).name}"
            fleet.docker(host, "cp", "-L", path, where)
    yield folder
    for host in HOSTS:
        fleet.in_container(host, "rm", "-rf", folder, check=False)


def made(bench: Bench, host: str, op: str = OP) -> dict[str, bytes]:
    folder = bench.runs()[-1] / "files" / host / op
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_strace_of_a_job(bench: Bench, strace: str) -> None:
    bench.inventory(path=[strace], ld_library_path=[strace])
    command = ("run", "--op", OP, "--profile", "strace -f -o {job}/trace")
    (planned,) = bench.mxfleet(*command, "--hosts", "loop1", "--dry-run").said("loop1")
    assert "&& strace -f -o '<store>/jobs/" in planned

    result = bench.mxfleet(*command)
    run = bench.runs()[-1]
    for host in HOSTS:
        assert f"profile of {OP} on {host}: runs/{run.name}/files/{host}/{OP}/trace" in (
            result.stdout.splitlines()
        )
        trace = made(bench, host)["trace"].decode(errors="replace")
        assert "mcoplib_mxbenchmark_ops.py" in trace.partition("\n")[0]
        assert f"{OP}.json" in trace  # it was opened, by the job's Python
        assert trace.rstrip().endswith("+++ exited with 0 +++")
        (record,) = bench.records(run, host, OP)
        assert (record["status"], record["profiler"]) == ("PASSED", "strace -f -o '{job}/trace'")
    # Kept, but its times are no reference: no table has them, nor would a later one.
    assert "measured under a profiler" in " ".join(result.stdout.split())
    assert bench.tables() == {}
    stored = list((bench.folder / "benchmark" / "statistics" / "records").rglob("*.jsonl"))
    kept = [json.loads(line) for path in stored for line in path.read_text().splitlines()]
    assert [record["profiler"] for record in kept] == ["strace -f -o '{job}/trace'"] * 2

    _, line = bench.mxfleet("repro", "--hosts", "loop1").stdout.splitlines()
    pasted = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True)
    assert {row.split()[-1] for row in pasted.stdout.splitlines()} >= {"trace", "records.jsonl"}

    shutil.rmtree(run / "files")
    bench.mxfleet("pull", run.name)
    assert [list(made(bench, host)) for host in HOSTS] == [["trace"], ["trace"]]
    assert bench.tables() == {}

    # Unprofiled, the same operator is merged as if nothing had been.
    bench.mxfleet("run", "--op", OP)
    assert [len(lines) for lines in bench.tables().values()] == [2]


def test_a_profiler_that_is_not_there(bench: Bench) -> None:
    command = ("run", "--op", OP, "--profile", "no-such-profiler -o {job}/x", "--output", "json")
    events = bench.mxfleet(*command, code=3).events()
    failed = {e["target"]: e for e in events if e["event"] == "target_failed"}
    for host in HOSTS:
        assert failed[host]["status"] == "UNUSABLE"
        assert "the profiler 'no-such-profiler' was not found" in failed[host]["message"]
        assert "name its folder in `path`" in failed[host]["message"]
    assert events[-1]["counts"] == {"NOT_RUN": 2}
    # Nothing ran, so there is nothing to say of its files.
    assert [e for e in events if e["event"] == "note" and "the profiler left" in e["message"]] == []


def test_what_comes_back_and_what_does_not(bench: Bench) -> None:
    tools = bench.folder / "benchmark" / "tools"
    tools.mkdir()
    (tools / "watch.sh").write_text(WATCHER)
    profile = ("--profile", "sh tools/watch.sh {job}", "--hosts", "loop2", "--output", "json")
    result = bench.mxfleet("run", "--op", OP, *profile)
    found = made(bench, "loop2")
    named = {name: data for name, data in found.items() if "hidden" not in name}
    odd = next(name for name in named if name.startswith("line_end-"))
    report = next(name for name in named if name.startswith("deep/er/report_1.txt-"))
    assert named == {
        report: b"one\n",
        odd: b"three",
        "empty": b"",
        "left/benchmark/left-in-the-tree.prof": b"four\n",
    }
    assert [data for name, data in found.items() if "hidden" in name] == [b"two\n"]
    ended = next(e for e in result.events() if e["event"] == "job_ended")
    assert len(ended["made"]) == len(found)
    assert all(Path(path).is_file() for path in ended["made"])
    notes = [e["message"] for e in result.events() if e["event"] == "note"]
    (told,) = [note for note in notes if "did not come back" in note]
    assert "huge did not come back: it has 2147483648 bytes" in told
    assert f"it lies in {bench.store}/jobs/" in told


def test_a_profiler_without_a_file_is_said(bench: Bench) -> None:
    result = bench.mxfleet("run", "--op", OP, "--hosts", "loop1", "--profile", "env A=1 nice")
    assert "the profiler left no file; what it writes below {job} comes back" in result.stderr


def test_all_operators_under_one(bench: Bench) -> None:
    words = """sh -c 'echo "$0" >"$0/words"; exec "$@"' {job}"""
    bench.mxfleet("testall", "--ops", f"{OP},probe_speak", "--profile", words)
    for host in HOSTS:
        for op in (OP, "probe_speak"):
            (place,) = made(bench, host, op).values()
            assert place.decode().startswith(f"{bench.store}/jobs/")
    assert bench.tables() == {}


def test_an_established_checkout(site: Site) -> None:
    bench = site.bench
    before = site.files("loop1")
    words = """sh -c 'echo "$0" >"$0/words"; exec "$@"' {job}"""
    bench.mxfleet("run", "--op", "est_axpy", "--hosts", "loop1", "--profile", words)
    run = bench.runs()[-1]
    assert list(made(bench, "loop1", "est_axpy")) == ["words"]
    (record,) = bench.records(run, "loop1", "est_axpy")
    assert record["status"] == "PASSED" and record["profiler"].startswith("sh -c")
    assert len((run / "csv" / "loop1" / "est_axpy.csv").read_text().splitlines()) == 2
    assert bench.tables() == {}
    assert site.files("loop1") == before
