"""Containers as hosts have them: several, paused, without a Python, behind sudo, not as root."""

from __future__ import annotations

import grp
import os
import re
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from .conftest import LoopbackFleet
from .workbench import Bench

SUDOERS = Path("/etc/sudoers.d/mxfleet-test")
# Ends on TERM and reaps orphans, as an init has to.
IDLE = "trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done"


@contextmanager
def another_container(fleet: LoopbackFleet, host: str, *options: str) -> Iterator[str]:
    """A second container on a host, made from the image of the first one."""
    name = f"second-{secrets.token_hex(3)}"
    found = fleet.docker(host, "inspect", "--format", "{{.Config.Image}}", fleet.container)
    image = found.stdout.decode().strip()
    network = ("--network", "none")
    fleet.docker(host, "run", "-d", "--name", name, *network, *options, image, "bash", "-c", IDLE)
    try:
        yield name
    finally:
        fleet.docker(host, "rm", "--force", name)


@contextmanager
def closed_socket(fleet: LoopbackFleet, host: str) -> Iterator[Path]:
    """The host's Docker socket, for root alone."""
    path = fleet.state / "hosts" / host / "docker.sock"
    os.chown(path, 0, 0)
    path.chmod(0o600)
    try:
        yield path
    finally:
        os.chown(path, 0, grp.getgrnam("docker").gr_gid)
        path.chmod(0o660)


def test_several_containers_of_one_host(bench: Bench) -> None:
    with another_container(bench.fleet, "loop1") as second:
        own = {"name": second, "env": {"WHICH": "the second"}}
        bench.inventory(
            hosts={
                "loop1": {"user": "root", "containers": [bench.fleet.container, own]},
                "loop2": {"user": bench.fleet.user},
            },
            env={"WHICH": "any"},
        )
        bench.config("probe_speak", show=["WHICH"])
        targets = [f"loop1:{bench.fleet.container}", f"loop1:{second}", "loop2"]

        result = bench.mxfleet("run", "--op", "probe_speak,probe_digest")
        said = {t: [x for x in result.said(t) if x.startswith("said WHICH")] for t in targets}
        assert said == {
            targets[0]: ['said WHICH "any"'],
            targets[1]: ['said WHICH "the second"'],
            targets[2]: ['said WHICH "any"'],
        }
        run = bench.runs()[0]
        for target in targets:
            (record,) = bench.records(run, target, "probe_digest")
            assert (record["host"], record["target"]) == (target.split(":")[0], target)
        ((_, lines),) = bench.tables().items()
        assert len(lines) == 3  # one row an operator, whatever the number of targets

        for pattern, chosen in [
            (f"loop1:{second}", [targets[1]]),
            (f"@all:{second}", [targets[1]]),
            ("loop1", targets[:2]),
            (f"@all!loop1:{second}", [targets[0], targets[2]]),
        ]:
            summary = bench.mxfleet("push", "--hosts", pattern, "--output", "json").events()[-1]
            assert sorted(summary["targets"]) == sorted(chosen)


def test_containers_of_one_host_take_turns(bench: Bench) -> None:
    """They share its GPUs: measured together they would measure each other."""
    with another_container(bench.fleet, "loop1") as second:
        containers = [bench.fleet.container, second]
        bench.inventory(hosts={"loop1": {"user": "root", "containers": containers}})
        events = bench.mxfleet(
            "run", "--op", "probe_digest,probe_speak", "--output", "json"
        ).events()
    kinds = [e["event"] for e in events if e["event"] in ("job_started", "job_ended")]
    assert kinds == ["job_started", "job_ended"] * 4


def test_container_paused(bench: Bench) -> None:
    bench.fleet.docker("loop2", "pause", bench.fleet.container)
    try:
        result = bench.mxfleet("run", "--op", "probe_digest", code=3, seconds=40)
        checked = bench.mxfleet("hosts", "loop2", "--check", "--output", "json", code=3)
    finally:
        bench.fleet.docker("loop2", "unpause", bench.fleet.container)
    line = "container vllm-dsv4 is paused; wake it with: docker unpause vllm-dsv4"
    assert f"loop2 | UNUSABLE: {line}" in result.stderr.splitlines()
    assert [row["status"] for row in bench.records(bench.runs()[0], "loop1", "probe_digest")] == [
        "PASSED"
    ]
    (listed,) = [event for event in checked.events() if event["event"] == "target"]
    assert listed["status"] == "UNUSABLE"
    assert listed["message"].endswith(line)


def test_container_killed_while_a_job_runs(bench: Bench) -> None:
    with another_container(bench.fleet, "loop1") as second:
        hosts = {"loop1": {"user": "root", "container": second}}
        bench.inventory(hosts={**hosts, "loop2": {"user": bench.fleet.user}})
        gate = f"/share/gate-{secrets.token_hex(4)}"
        bench.config("probe_linger", until=gate)
        running = bench.start("run", "--op", "probe_linger")
        for host in ("loop1", "loop2"):
            running.wait_for(f"{host} | step 1")
        bench.fleet.docker("loop1", "kill", second)
        running.wait_for("loop1 | end probe_linger NOT_RUN")
        bench.fleet.in_container("loop2", "touch", gate)
        result = running.result()
        bench.fleet.in_container("loop2", "rm", gate)
    assert result.code == 3, result
    said = rf"^loop1 \| UNUSABLE: container {second} is not running .+docker start {second}$"
    assert re.search(said, result.stderr, re.MULTILINE), result
    run = bench.runs()[0]
    statuses = [record["status"] for record in bench.records(run, "loop2", "probe_linger")]
    assert statuses == ["PASSED", "PASSED"]


@pytest.mark.parametrize("command", ["docker --log-level error", ["env", "X=a b", "docker"]])
def test_docker_command_of_several_words(bench: Bench, command: object) -> None:
    bench.inventory(docker_command=command)
    assert "2 PASSED" in bench.mxfleet("run", "--op", "probe_digest").stdout
    events = bench.mxfleet("hosts", "--check", "--output", "json", code=None).events()
    for event in events[:2]:
        assert event["facts"]["container"]["status"] == "running"


def test_docker_command_that_is_not_there(bench: Bench) -> None:
    bench.inventory(docker_command="podman-of-old")
    result = bench.mxfleet("push", code=3)
    lines = sorted(result.stderr.splitlines())
    assert [line.split(";")[0] for line in lines] == [
        f"{host} | UNUSABLE: there is no podman-of-old on the host" for host in ("loop1", "loop2")
    ]


def test_no_permission_on_the_socket(bench: Bench) -> None:
    with closed_socket(bench.fleet, "loop2"):
        result = bench.mxfleet("run", "--op", "probe_digest", code=3)
        checked = bench.mxfleet("hosts", "loop2", "--check", "--output", "json", code=3)
    line = "no permission on the Docker socket; add the user to the group docker .+ sudo -n docker"
    (said,) = [text for text in result.stderr.splitlines() if text.startswith("loop2 | UNUSABLE")]
    assert re.search(line, said)
    (listed,) = [event for event in checked.events() if event["event"] == "target"]
    assert re.search(line, listed["message"])
    assert "1 PASSED" in result.stdout


@pytest.mark.skipif(shutil.which("sudo") is None, reason="sudo is not installed")
def test_docker_through_sudo(bench: Bench) -> None:
    with closed_socket(bench.fleet, "loop2") as socket:
        # sudo drops DOCKER_HOST, so the socket is named.
        command = ["sudo", "-n", "docker", "-H", f"unix://{socket}"]
        bench.inventory(hosts={"loop2": {"user": bench.fleet.user}}, docker_command=command)
        refused = bench.mxfleet("run", "--op", "probe_digest", code=3)
        assert re.search(r"loop2 \| UNUSABLE: sudo asks for a password; .+", refused.stderr)
        SUDOERS.write_text(f"{bench.fleet.user} ALL=(root) NOPASSWD: {shutil.which('docker')}\n")
        SUDOERS.chmod(0o440)
        try:
            subprocess.run(["visudo", "-cqf", SUDOERS], check=True)
            assert "1 PASSED" in bench.mxfleet("run", "--op", "probe_digest").stdout
            checked = bench.mxfleet("hosts", "--check", "--output", "json", code=None)
            assert checked.events()[0]["facts"]["container"]["status"] == "running"
        finally:
            SUDOERS.unlink()


@pytest.mark.parametrize(("user", "uid"), [("nobody", 65534), ("12345:12345", 12345)])
def test_docker_user(bench: Bench, user: str, uid: int) -> None:
    """Also one that the container's passwd does not know."""
    bench.inventory(docker_user=user)
    result = bench.mxfleet("run", "--op", "probe_speak")
    for host in bench.fleet.hosts:
        assert f"said uid {uid}" in result.said(host)
        owners = bench.fleet.in_container(host, "find", bench.store, "-printf", "%U\n")
        assert set(owners.stdout.split()) == {str(uid).encode()}


def test_docker_user_and_a_store_of_somebody_else(bench: Bench) -> None:
    bench.mxfleet("push")  # as root
    bench.inventory(docker_user="nobody")
    result = bench.mxfleet("push", code=3)
    for host in bench.fleet.hosts:
        assert re.search(
            rf"^{host} \| UNUSABLE: the store {bench.store} cannot be written; .+",
            result.stderr,
            re.MULTILINE,
        )


def test_docker_user_that_does_not_exist(bench: Bench) -> None:
    bench.inventory(docker_user="somebody")
    result = bench.mxfleet("push", code=3)
    assert result.stderr.count("container vllm-dsv4 has no such user") == 2
    assert result.stderr.count("correct docker_user") == 2


def test_container_without_python(bench: Bench) -> None:
    with another_container(bench.fleet, "loop1") as second:
        bench.fleet.docker("loop1", "exec", second, "bash", "-c", "rm -f /usr/bin/python3*")
        bench.inventory(hosts={"loop1": {"user": "root", "container": second}})
        result = bench.mxfleet("run", "--op", "probe_digest", code=3)
    (line,) = result.stderr.splitlines()
    assert line.startswith("loop1 | UNUSABLE: no Python 3.6 or later was found for the agent; ")


def test_workdir_that_another_container_has(bench: Bench) -> None:
    """The wrong container: it is said which one has the folder."""
    folder = bench.fleet.share("loop1") / f"elsewhere-{secrets.token_hex(3)}"
    folder.mkdir()
    try:
        with another_container(bench.fleet, "loop1", "-v", f"{folder}:/ops/benchmark") as second:
            bench.inventory(hosts={"loop1": {"user": "root"}}, workdir="/ops/benchmark")
            result = bench.mxfleet("hosts", "--check", "--output", "json", code=3)
            message = result.events()[0]["message"]
            assert f"the workdir /ops/benchmark does not exist here, but in {second}" in message
    finally:
        folder.rmdir()


def test_the_host_itself(bench: Bench) -> None:
    """`container: none`: the login's own shell, as an ordinary user, in its home."""
    bench.inventory(hosts={"loop2": {"user": bench.fleet.user, "container": "none"}}, store="~/mx")
    wrong = bench.mxfleet("push", code=2)
    assert wrong.stderr.count("\n") == 1
    home = bench.fleet.state / "hosts" / "loop2" / "home" / bench.fleet.user
    store = home / f"store-{secrets.token_hex(3)}"
    bench.inventory(
        hosts={"loop2": {"user": bench.fleet.user, "container": "none"}}, store=str(store)
    )
    try:
        result = bench.mxfleet("run", "--op", "probe_speak")
        assert f"said uid {store.stat().st_uid}" in result.said("loop2")
        assert store.stat().st_uid != 0
    finally:
        shutil.rmtree(store, ignore_errors=True)
