"""What docker and ssh say on standard error becomes one sentence and a way out."""

from __future__ import annotations

import pytest

from orchestrator.transport.container import ContainerConnection
from orchestrator.transport.endpoint import Endpoint
from orchestrator.transport.openssh import trouble
from orchestrator.transport.scripted import ScriptedConnection

# Collected from Docker 20.10 to 28, Podman 4, sudo 1.9 and the login shells.
DOCKER = [
    (
        1,
        "Error response from daemon: No such container: vllm",
        "there is no container vllm; list them with: docker ps -a",
    ),
    (1, "Error: No such container: vllm", "there is no container vllm"),
    (125, 'Error: no container with name or ID "vllm" found: no such container', "no container"),
    (
        1,
        "Error response from daemon: Container 8a6b is not running",
        "not running; start it with: docker start vllm",
    ),
    (1, "Error response from daemon: container 8a6b is not running", "start it with"),
    (
        255,
        "Error: can only create exec sessions on running containers: container state improper",
        "start it with",
    ),
    (
        1,
        "Error response from daemon: Container vllm is paused, unpause the container before exec",
        "wake it with: docker unpause vllm",
    ),
    (
        1,
        "Error response from daemon: Container 8a is restarting, wait until it is running",
        "docker logs --tail 20 vllm",
    ),
    (
        1,
        "Got permission denied while trying to connect to the Docker daemon socket at "
        'unix:///var/run/docker.sock: Get "http://%2Fvar%2Frun%2Fdocker.sock/v1.24/containers": '
        "dial unix /var/run/docker.sock: connect: permission denied",
        "no permission on the Docker socket; add the user to the group docker",
    ),
    (
        1,
        "permission denied while trying to connect to the docker API at "
        "unix:///var/run/docker.sock",
        "no permission on the Docker socket",
    ),
    (
        1,
        "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. "
        "Is the docker daemon running?",
        "the Docker engine does not answer; start it with",
    ),
    (
        1,
        "failed to open the raw stream connection: dial unix /nope: connect: no such file or "
        "directory",
        "the Docker engine does not answer",
    ),
    (127, "bash: line 1: exec: docker: not found", "there is no docker on the host"),
    (127, "sh: 1: exec: docker: not found", "there is no docker on the host"),
    (127, "bash: docker: command not found", "there is no docker on the host"),
    (1, "docker: Command not found.", "there is no docker on the host"),
    (127, "fish: Unknown command: docker", "there is no docker on the host"),
    (127, "zsh:1: command not found: docker", "there is no docker on the host"),
    (1, "sudo: a password is required", "sudo asks for a password"),
    (1, "sudo: a terminal is required to read the password", "sudo asks for a password"),
    (1, "kernel is not in the sudoers file.", "may not run docker through sudo"),
    (
        1,
        "unable to find user nobody2: no matching entries in passwd file",
        "correct docker_user",
    ),
    (
        126,
        'OCI runtime exec failed: exec failed: unable to start container process: exec: "sh": '
        "executable file not found in $PATH: unknown",
        "container vllm lacks the command that was to run",
    ),
    (
        127,
        "Error: crun: executable file `sh` not found in $PATH: No such file or directory: OCI "
        "runtime attempted to invoke a command that was not found",
        "container vllm lacks the command",
    ),
    (
        126,
        "OCI runtime exec failed: exec failed: unable to start container process: error adding "
        "pid 1 to cgroups: unknown",
        "the container runtime could not start a command in vllm",
    ),
    (127, "", "the command was not found in the container (status 127)"),
    (137, "", "docker exec ended with status 137 and said nothing"),
    (None, "warning\nsomething new", "ended with status unknown: something new"),
]


@pytest.mark.parametrize(("status", "stderr", "message"), DOCKER)
def test_container_explains(status: int | None, stderr: str, message: str) -> None:
    connection = ContainerConnection(ScriptedConnection("c500-01"), "vllm")
    text = str(connection.explain(status, stderr.encode() + b"\n"))
    assert text.startswith("c500-01:vllm: ")
    assert message in text
    assert "\n" not in text


@pytest.mark.parametrize(
    ("command", "stderr", "message"),
    [
        (
            ("sudo", "-n", "docker"),
            "Error: No such container: vllm",
            "list them with: sudo -n docker ps -a",
        ),
        (("sudo", "-n", "docker"), "sh: 1: exec: sudo: not found", "there is no sudo on the host"),
        (("podman",), "sh: 1: exec: podman: not found", "there is no podman on the host"),
        (
            ("/opt/bin/docker",),
            "sh: 1: exec: /opt/bin/docker: not found",
            "there is no /opt/bin/docker on the host",
        ),
    ],
)
def test_the_docker_command_in_messages(
    command: tuple[str, ...], stderr: str, message: str
) -> None:
    connection = ContainerConnection(ScriptedConnection("c500-01"), "vllm", command)
    assert message in str(connection.explain(1, stderr.encode()))


def test_container_command_line() -> None:
    inner = ScriptedConnection("c500-01")
    target = ContainerConnection(inner, "vllm", ("true", "x"), "1000:1000")
    target.open(["python3", "-c", "a b"]).close()
    expected = ["true", "x", "exec", "-i", "--user", "1000:1000", "vllm", "python3", "-c"]
    assert inner.opened == [[*expected, "a b"]]
    target.close()
    inner.open(["true"]).close()  # the host's connection is still good


SSH = [
    (
        "@@@@\n@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\n@@@@\n"
        "Offending ED25519 key in /home/me/.ssh/known_hosts:17\n"
        "  remove with:\n"
        '  ssh-keygen -f "/home/me/.ssh/known_hosts" -R "[127.0.0.1]:2201"\n'
        "Host key for [127.0.0.1]:2201 has changed and you have requested strict checking.\n"
        "Host key verification failed.\n",
        "/home/me/.ssh/known_hosts:17 holds another",
        "ssh-keygen -R '[127.0.0.1]:2201' -f /home/me/.ssh/known_hosts",
    ),
    (
        "No ED25519 host key is known for c500-01 and you have requested strict checking.\n"
        "Host key verification failed.\n",
        "the host key is unknown and host_keys is strict",
        "ssh c500-01",
    ),
    (
        "ssh: Could not resolve hostname c500-01: Name or service not known\n",
        "does not resolve (Could not resolve hostname c500-01: Name or service not known)",
        "set address:",
    ),
    (
        "ssh: connect to host 127.0.0.1 port 1: Connection refused\n",
        "refuses the connection",
        "is sshd running",
    ),
    ("ssh: connect to host x port 22: No route to host\n", "no route", "ProxyJump"),
    (
        "ssh: connect to host x port 22: Connection timed out\n",
        "does not answer within 15 s",
        "connect_timeout",
    ),
    (
        "me@x: Permission denied (publickey,password).\n",
        "the login is refused (Permission denied (publickey,password))",
        "ssh-copy-id",
    ),
    (
        "kex_exchange_identification: Connection closed by remote host\n",
        "closes the connection at once",
        "MaxStartups",
    ),
    (
        "/tmp/config: line 3: Bad configuration option: prot\n",
        "Bad configuration option: prot",
        "correct it",
    ),
    ("something new\n", "ssh cannot connect: something new", "ssh -v c500-01"),
    ("", "ssh cannot connect: it gives no reason", "ssh -v"),
]


@pytest.mark.parametrize(("stderr", "message", "hint"), SSH)
def test_ssh_command_explains(stderr: str, message: str, hint: str) -> None:
    error = trouble(Endpoint("c500-01", transport="openssh"), stderr)
    assert error.where == "c500-01"
    assert message in error.message
    assert error.hint and hint in error.hint


@pytest.mark.parametrize(
    ("program", "kept"),
    [
        ("echo 'OCI runtime exec failed: exec failed: no'", b"OCI runtime exec failed"),
        ("echo 'unable to find user x: no matching entries in passwd file'", b"find user x"),
        ("echo hello", b""),
        # A command that speaks of such things at length is not the engine.
        ("echo OCI runtime; head -c 5000 /dev/zero", b""),
    ],
)
def test_complaints_on_standard_output_are_kept(program: str, kept: bytes) -> None:
    pipe = ContainerConnection(
        ScriptedConnection(), "vllm", ("sh", "-c", f"{program}; echo last >&2; exit 1")
    ).open(["python3"])
    while pipe.read(100):
        pass
    assert pipe.wait(10) == 1
    tail = pipe.stderr_tail()
    assert tail.endswith(b"last\n")
    assert kept in tail if kept else tail == b"last\n"
    pipe.close()
