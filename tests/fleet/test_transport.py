"""The transports on the loopback fleet: logins, containers, and what Docker has to say."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.errors import UnusableError
from orchestrator.transport.base import Connection, Pipe
from orchestrator.transport.connect import connect
from orchestrator.transport.container import ContainerConnection
from orchestrator.transport.docker_api import look, who_holds
from orchestrator.transport.endpoint import Endpoint

from .conftest import LoopbackFleet

NASTY = "a b;$(reboot)'\"!\n\\n 算子"


@pytest.fixture(params=["ssh", "openssh"])
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["loop1", "loop1-user"])
def login(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def host(fleet: LoopbackFleet, transport: str, login: str) -> Iterator[Connection]:
    endpoint = Endpoint(login, transport=transport, ssh_config=fleet.ssh_config)  # type: ignore[arg-type]
    connection = connect(endpoint)
    yield connection
    connection.close()


@pytest.fixture
def plain(fleet: LoopbackFleet) -> Iterator[Connection]:
    """The ordinary user, by Paramiko."""
    connection = connect(Endpoint("loop1-user", ssh_config=fleet.ssh_config))
    yield connection
    connection.close()


def read_all(pipe: Pipe) -> bytes:
    out = bytearray()
    while data := pipe.read(1 << 16):
        out += data
    return bytes(out)


def explained(connection: ContainerConnection, *argv: str) -> UnusableError:
    """Return why a command in the container did not speak."""
    pipe = connection.open(argv)
    read_all(pipe)
    error = connection.explain(pipe.wait(20), pipe.stderr_tail())
    pipe.close()
    return error


def test_command_in_the_container(fleet: LoopbackFleet, host: Connection) -> None:
    target = ContainerConnection(host, fleet.container)
    pipe = target.open(["sh", "-c", 'printf %s "$0"; cat; id -u; echo low >&2; exit 5', NASTY])
    pipe.write(b"\0\xff\n")
    pipe.close_write()
    assert read_all(pipe) == NASTY.encode() + b"\0\xff\n0\n"
    assert pipe.wait(20) == 5
    assert b"low" in pipe.stderr_tail()
    pipe.close()


def test_docker_user(fleet: LoopbackFleet, plain: Connection) -> None:
    pipe = ContainerConnection(plain, fleet.container, docker_user="33:33").open(["id", "-u"])
    assert read_all(pipe) == b"33\n"
    pipe.close()


def test_ten_megabytes_into_the_container_and_back(fleet: LoopbackFleet, host: Connection) -> None:
    data = os.urandom(10 << 20)
    pipe = ContainerConnection(host, fleet.container).open(["cat"])

    def feed() -> None:
        pipe.write(data)
        pipe.close_write()

    writer = threading.Thread(target=feed)
    writer.start()
    echoed = read_all(pipe)
    writer.join()
    assert echoed == data
    pipe.close()


def test_view_of_a_container(fleet: LoopbackFleet, host: Connection) -> None:
    view = look(host, fleet.container)
    assert (view.name, view.running, view.status) == (fleet.container, True, "running")
    share = view.holds("/share/deep/inside")
    assert share and share.writable
    assert share.on_host("/share/deep/inside") == str(fleet.share("loop1") / "deep" / "inside")
    libraries = view.holds(str(Path(fleet.python).parent))
    assert libraries and not libraries.writable
    assert view.holds("/etc") is None


def test_who_holds_a_folder(fleet: LoopbackFleet, plain: Connection) -> None:
    fleet.in_container("loop1", "mkdir", "-p", "/only/inside")
    mounted = fleet.share("loop1") / "who holds"
    mounted.mkdir(exist_ok=True)
    try:
        assert who_holds(plain, "/only/inside") == [fleet.container]
        assert who_holds(plain, "/share/who holds") == [fleet.container]
        assert who_holds(plain, "/only/elsewhere") == []
    finally:
        fleet.in_container("loop1", "rm", "-r", "/only")
        mounted.rmdir()


def test_missing_container(fleet: LoopbackFleet, host: Connection) -> None:
    with pytest.raises(UnusableError, match=r"no container vllm-dsv5; did you mean vllm-dsv4\?"):
        look(host, "vllm-dsv5")
    error = explained(ContainerConnection(host, "vllm-dsv5"), "true")
    assert error.message == "there is no container vllm-dsv5"


def test_missing_command_in_the_container(fleet: LoopbackFleet, plain: Connection) -> None:
    error = explained(ContainerConnection(plain, fleet.container), "no-such-python")
    assert "lacks the command that was to run" in error.message


def test_missing_user_in_the_container(fleet: LoopbackFleet, plain: Connection) -> None:
    target = ContainerConnection(plain, fleet.container, docker_user="nobody-here")
    assert explained(target, "true").hint == "correct docker_user"


def test_missing_docker_command(fleet: LoopbackFleet, host: Connection) -> None:
    error = explained(ContainerConnection(host, fleet.container, ("no-docker",)), "true")
    assert error.message == "there is no no-docker on the host"
    with pytest.raises(UnusableError, match="there is no no-docker on the host"):
        look(host, fleet.container, ("no-docker",))


def test_engine_that_is_not_there(fleet: LoopbackFleet, plain: Connection) -> None:
    docker = ("docker", "-H", "unix:///no/such.sock")
    with pytest.raises(UnusableError, match="the Docker engine does not answer"):
        look(plain, fleet.container, docker)
    error = explained(ContainerConnection(plain, fleet.container, docker), "true")
    assert error.message == "the Docker engine does not answer"


def test_no_permission_on_the_socket(fleet: LoopbackFleet, plain: Connection) -> None:
    socket = fleet.state / "hosts" / "loop1" / "docker.sock"
    mode = socket.stat().st_mode & 0o777
    socket.chmod(0o600)
    try:
        with pytest.raises(UnusableError, match=r"no permission .*; add the user to the group"):
            look(plain, fleet.container)
        error = explained(ContainerConnection(plain, fleet.container), "true")
        assert error.message == "no permission on the Docker socket"
    finally:
        socket.chmod(mode)


@pytest.mark.parametrize(
    ("name", "prepare", "message", "hint"),
    [
        ("transport-stopped", ("stop", "-t", "0"), "is not running", "docker start"),
        ("transport-paused", ("pause",), "is paused", "docker unpause"),
    ],
)
def test_container_that_sleeps(
    fleet: LoopbackFleet,
    plain: Connection,
    name: str,
    prepare: tuple[str, ...],
    message: str,
    hint: str,
) -> None:
    """In a container of its own: that of the fleet is everybody's."""
    fleet.docker("loop1", "rm", "-f", name, check=False)
    image = look(plain, fleet.container).image
    fleet.docker("loop1", "run", "-d", "--network", "none", "--name", name, image, "sleep", "600")
    try:
        fleet.docker("loop1", *prepare, name)
        with pytest.raises(UnusableError) as caught:
            look(plain, name)
        error = explained(ContainerConnection(plain, name), "true")
        for found in (caught.value, error):
            assert message in found.message
            assert found.hint and f"{hint} {name}" in found.hint
    finally:
        fleet.docker("loop1", "rm", "-f", name)
