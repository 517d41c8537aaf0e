"""What a user gets wrong, and what a host has wrong: one line each, and the code that fits."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from .workbench import Bench

HOSTS = ("loop1", "loop2")
SYSTEM_PYTHON = "/usr/bin/python3"  # of the containers: without torch


@dataclass(frozen=True)
class Case:
    """A mistake: how it is made, and what is said of it."""

    name: str
    make: Callable[[Bench], object]
    said: str  # regular expression for the whole line; {folder}, {store} are filled in
    code: int = 2
    arguments: tuple[str, ...] = ("run", "--op", "probe_digest")
    targets: tuple[str, ...] = field(default=())  # each says the line, with its name in front


def config(bench: Bench) -> Path:
    return bench.folder / "benchmark" / "config" / "probe_digest.json"


def runner(bench: Bench) -> Path:
    runners = bench.folder / "benchmark" / "runners"
    return runners / "mcoplib_mxbenchmark_probe_digest_runners.py"


def nothing(bench: Bench) -> None:
    """The mistake is in the arguments."""


def silent_port() -> int:
    """A port that takes connections and never says a word, for as long as the test process."""
    server = socket.create_server(("127.0.0.1", 0))
    _SERVERS.append(server)
    return int(server.getsockname()[1])


_SERVERS: list[socket.socket] = []


def unused_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def swapped_host_key(bench: Bench) -> None:
    """loop1 is known by the key of loop2."""
    first, second = bench.fleet.known_hosts.read_text().splitlines()
    known = bench.folder / "known_hosts"
    known.write_text(f"{first.split()[0]} {second.split(maxsplit=1)[1]}\n{second}\n")
    text = bench.fleet.ssh_config.read_text()
    ssh_config = bench.folder / "ssh_config"
    ssh_config.write_text(text.replace(str(bench.fleet.known_hosts), str(known)))
    bench.inventory(ssh_config=str(ssh_config), hosts={"loop1": {"user": "root"}})


def real_suite(bench: Bench, python: str) -> None:
    """The suite that mxfleet carries, run by `python`."""
    shutil.rmtree(bench.folder / "benchmark")
    bench.mxfleet("init", "--force")
    bench.inventory(python=python)


def old_python(bench: Bench) -> None:
    """The container's Python in the guise of an older one: every script there sees 3.8."""
    place = f"{bench.store}/old"
    site_customize = "import sys\nsys.version_info = (3, 8, 18, 'final', 0)\n"
    wrapper = f'#!/bin/sh\nPYTHONPATH={place} exec {SYSTEM_PYTHON} "$@"\n'
    for host in HOSTS:
        bench.fleet.in_container(host, "mkdir", "-p", place)
        for name, text in (("sitecustomize.py", site_customize), ("python3.8", wrapper)):
            bench.fleet.in_container(host, "tee", f"{place}/{name}", input=text.encode())
        bench.fleet.in_container(host, "chmod", "+x", f"{place}/python3.8")
    real_suite(bench, f"{place}/python3.8")


CASES = [
    Case(
        "unknown operator",
        nothing,
        r"mxfleet: {folder}/benchmark/mcoplib_mxbenchmark_ops\.py.*: unknown operator "
        r"'probe_digst'; did you mean probe_digest.*",
        arguments=("run", "--op", "probe_digst"),
    ),
    Case(
        "a name that is only similar is not taken",
        nothing,
        r"mxfleet: .*unknown operator 'digest'.*",
        arguments=("run", "--op", "digest"),
    ),
    Case(
        "broken JSON",
        lambda bench: config(bench).write_text('{\n "size": 1,\n oops\n}\n'),
        r"mxfleet: {folder}/benchmark/config/probe_digest\.json:3: broken JSON: .*column 2",
    ),
    Case(
        "JSON that is no object",
        lambda bench: config(bench).write_text("[1, 2]\n"),
        r"mxfleet: {folder}/benchmark/config/probe_digest\.json:1: .*not a JSON object.*",
    ),
    Case(
        "missing config",
        lambda bench: config(bench).unlink(),
        r"mxfleet: {folder}/benchmark/config/probe_digest\.json: the config .* is missing; .+",
    ),
    Case(
        "missing runner",
        lambda bench: runner(bench).unlink(),
        r"mxfleet: {folder}/.*probe_digest_runners\.py: the runner .* is missing; .+",
    ),
    Case(
        "runner without subclass",
        lambda bench: runner(bench).write_text('"""None."""\n\n\nclass Runner:\n    pass\n'),
        r"mxfleet: {folder}/.*probe_digest_runners\.py:1: the runner defines no subclass of "
        r"OpBenchmarkBase; .+",
    ),
    Case(
        "runner with a syntax error",
        lambda bench: runner(bench).write_text("import os\n\ndef f(:\n    pass\n"),
        r"mxfleet: {folder}/.*probe_digest_runners\.py:3: syntax error: .+; fix .+",
    ),
    Case(
        "missing env script",
        lambda bench: bench.inventory(env_script="../env/absent.sh"),
        r"UNUSABLE: the env script {store}/trees/\w+/env/absent\.sh does not exist here; .+",
        code=3,
        targets=HOSTS,
    ),
    Case(
        "env script that fails",
        lambda bench: (bench.folder / "env" / "env.sh").write_text("return 3\n"),
        r"UNUSABLE: the env script {store}/trees/\w+/env/env\.sh ended with status 3.*",
        code=3,
        targets=HOSTS,
    ),
    Case(
        "env script that ends the shell",
        lambda bench: (bench.folder / "env" / "env.sh").write_text("exit 0\n"),
        r"UNUSABLE: the env script {store}/trees/\w+/env/env\.sh ended the shell.*",
        code=3,
        targets=HOSTS,
    ),
    Case(
        "missing python",
        lambda bench: bench.inventory(python="/opt/absent/python"),
        r"UNUSABLE: python '/opt/absent/python' was not found .*; set `python` .+",
        code=3,
        targets=HOSTS,
    ),
    Case(
        "python that is too old",
        old_python,
        r"UNUSABLE: \S+ is Python 3\.8, the benchmarks need 3\.10 or later; .+",
        code=3,
        arguments=("run", "--op", "torch_softmax,torch_matmul"),
        targets=HOSTS,
    ),
    Case(
        "no torch",
        lambda bench: real_suite(bench, SYSTEM_PYTHON),
        r"UNUSABLE: /usr/bin/python3 .*cannot import torch .*; install torch .+",
        code=3,
        arguments=("run", "--op", "torch_softmax,torch_matmul"),
        targets=HOSTS,
    ),
    Case(
        "workdir that is not there",
        lambda bench: bench.inventory(workdir="/opt/absent/benchmark"),
        r"UNUSABLE: the workdir /opt/absent/benchmark does not exist here; set `workdir` .+",
        code=3,
        targets=HOSTS,
    ),
    Case(
        "workdir that is no checkout",
        lambda bench: bench.inventory(workdir="/usr/share"),
        r"UNUSABLE: the workdir /usr/share has no config/; set `workdir` .+",
        code=3,
        targets=HOSTS,
    ),
    Case(
        "container missing",
        lambda bench: bench.inventory(container="vllm-dsv5"),
        r"UNUSABLE: there is no container vllm-dsv5; .+",
        code=3,
        targets=HOSTS,
    ),
    Case(
        "empty selection",
        nothing,
        r'mxfleet: "loop1&loop2" selects no target; .+',
        arguments=("run", "--op", "probe_digest", "--hosts", "loop1&loop2"),
    ),
    Case(
        "selection without a name",
        nothing,
        r"mxfleet: the selection is empty: .+; .+",
        arguments=("push", "--hosts", ""),
    ),
    Case(
        "unknown host",
        nothing,
        r'mxfleet: unknown host "lop1", did you mean "loop1"\?',
        arguments=("run", "--op", "probe_digest", "--hosts", "lop1"),
    ),
    Case(
        "typo in the inventory",
        lambda bench: (bench.folder / "inventory.yaml").write_text(
            "defaults:\n  contaner: x\nhosts:\n  a:\n"
        ),
        r'mxfleet: {folder}/inventory\.yaml:2: unknown key "contaner", did you mean "container"\?',
    ),
    Case(
        "no inventory",
        lambda bench: (bench.folder / "inventory.yaml").unlink(),
        r"mxfleet: {folder}: there is no inventory\.yaml .*; .*mxfleet init.*",
    ),
    Case(
        "both modes",
        nothing,
        r"mxfleet: --generate and --update exclude each other; .+",
        arguments=("run", "--op", "probe_digest", "--generate", "--update"),
    ),
    Case(
        "no operator",
        nothing,
        r"mxfleet: --op names no operator; .+",
        arguments=("run", "--op", ","),
    ),
    Case(
        "a run that never was",
        nothing,
        r"mxfleet: {folder}/runs: there is no run yet; .+",
        arguments=("pull",),
    ),
    Case(
        "changed host key",
        swapped_host_key,
        r"UNREACHABLE: the host key of \[127\.0\.0\.1\]:\d+ has changed .*"
        r"{folder}/known_hosts:1 .*ssh-keygen -R .+",
        code=3,
        targets=("loop1",),
    ),
    Case(
        "no host reachable",
        lambda bench: bench.inventory(
            hosts={name: {"address": "127.0.0.1", "port": unused_port()} for name in "ab"}
        ),
        r"UNREACHABLE: 127\.0\.0\.1 port \d+ refuses the connection; .+",
        code=3,
        targets=("a", "b"),
    ),
    Case(
        "a host that never answers",
        lambda bench: bench.inventory(
            hosts={"a": {"address": "127.0.0.1", "port": silent_port()}}, connect_timeout=2
        ),
        r"UNREACHABLE: 127\.0\.0\.1 port \d+ takes connections but does not answer .+; .+",
        code=3,
        targets=("a",),
    ),
    Case(
        "a name that does not resolve",
        lambda bench: bench.inventory(hosts={"a": {"address": "no-such-host.invalid"}}),
        r"UNREACHABLE: the name no-such-host\.invalid does not resolve .+; .+",
        code=3,
        targets=("a",),
    ),
]


ON_THE_WAY = re.compile(r"pushing it$|^\w+ +\| warning: .+; trying again in [\d.]+ s$")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_one_line_says_what_is_wrong(bench: Bench, case: Case) -> None:
    case.make(bench)
    result = bench.mxfleet(*case.arguments, code=case.code, seconds=30)
    folder, store = re.escape(str(bench.folder)), re.escape(bench.store)
    wanted = case.said.replace("{folder}", folder).replace("{store}", store)
    # What a run says about itself on the way is no complaint.
    lines = [line for line in result.stderr.splitlines() if not ON_THE_WAY.search(line)]
    assert len(lines) == (len(case.targets) or 1), result
    for line in lines:
        name, _, text = line.partition(" | ")
        assert re.fullmatch(wanted, text if case.targets else line), line
        if case.targets:
            assert name.rstrip() in case.targets
    assert "Traceback" not in result.stdout
    if not case.targets:
        assert result.stdout == ""
        assert not bench.runs()


def test_container_stopped(bench: Bench) -> None:
    bench.fleet.stop("loop1", "container")
    try:
        result = bench.mxfleet("run", "--op", "probe_digest", "--output", "json", code=3)
    finally:
        bench.fleet.repair()
    (failed,) = [event for event in result.events() if event["event"] == "target_failed"]
    assert (failed["target"], failed["status"]) == ("loop1", "UNUSABLE")
    assert re.fullmatch(
        r"container vllm-dsv4 is not running; start it with: docker start vllm-dsv4",
        failed["message"],
    )
    summary = result.events()[-1]
    assert summary["targets"] == {"loop1": "UNUSABLE", "loop2": "OK"}
    assert summary["counts"] == {"NOT_RUN": 1, "PASSED": 1}


def test_a_bad_host_costs_the_good_one_nothing(bench: Bench) -> None:
    bad = {"address": "127.0.0.1", "port": unused_port()}
    bench.inventory(hosts={"bad": bad, "loop2": {"user": bench.fleet.user}})
    result = bench.mxfleet("run", "--op", "probe_digest,probe_speak", code=3)
    assert len(re.findall(r"^bad +\| UNREACHABLE: ", result.stderr, re.MULTILINE)) == 1
    ((_, lines),) = bench.tables().items()
    assert len(lines) == 3
    run = bench.runs()[0]
    for op in ("probe_digest", "probe_speak"):
        assert [r["status"] for r in bench.records(run, "loop2", op)] == ["PASSED"]
        assert [r["status"] for r in bench.records(run, "bad", op)] == ["NOT_RUN"]


def test_strict_refuses_an_unknown_host_key(bench: Bench) -> None:
    known = bench.folder / "known_hosts"
    ssh_config = bench.folder / "ssh_config"
    text = bench.fleet.ssh_config.read_text()
    ssh_config.write_text(text.replace(str(bench.fleet.known_hosts), str(known)))
    bench.inventory(ssh_config=str(ssh_config), host_keys="strict")
    result = bench.mxfleet("push", code=3)
    assert result.stderr.count("UNREACHABLE") == 2
    assert not known.exists()
    bench.inventory(ssh_config=str(ssh_config))  # accept-new
    bench.mxfleet("push")
    assert len(known.read_text().splitlines()) == 2


@pytest.fixture
def small_disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A file system of 128 KiB."""
    folder = tmp_path_factory.mktemp("disk")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k,mode=755", "none", folder], check=True)
    yield folder
    subprocess.run(["umount", folder], check=True)


def on_small_disk(bench: Bench, disk: Path) -> None:
    bench.inventory(
        hosts={"loop1": {"user": "root"}}, container="none", store=str(disk), python=SYSTEM_PYTHON
    )


def test_disk_full_during_a_push(bench: Bench, small_disk: Path) -> None:
    on_small_disk(bench, small_disk)
    big = bench.folder / "benchmark" / "weights.bin"
    big.write_bytes(os.urandom(300_000))
    result = bench.mxfleet("push", code=3)
    (line,) = result.stderr.splitlines()
    assert re.fullmatch(r"loop1 \| UNUSABLE: no space left while .+; free some space .+", line)
    assert str(small_disk) in line  # which file system that is
    left = [path for path in (small_disk / "trees").iterdir() if path.suffix != ".lock"]
    assert left == []
    big.unlink()
    assert "1 PASSED" in bench.mxfleet("run", "--op", "probe_digest").stdout


def test_disk_full_during_a_job(bench: Bench, small_disk: Path) -> None:
    """More output than fits: what was measured is kept, that output is missing is not hidden."""
    on_small_disk(bench, small_disk)
    bench.config("probe_linger", steps=20_000, pause=0)
    result = bench.mxfleet("run", "--op", "probe_linger", "--output", "json", code=1)
    (ended,) = [event for event in result.events() if event["event"] == "job_ended"]
    assert ended["status"] == "ERROR"
    assert "no space left" in ended["message"]
    records = bench.records(bench.runs()[0], "loop1", "probe_linger")
    assert [record["status"] for record in records] == ["PASSED", "PASSED", "ERROR"]
