"""The Docker SDK over a pipe: a scripted engine answers HTTP as the real one does."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO
from urllib.parse import parse_qs, urlsplit

import pytest

from orchestrator.errors import UnusableError
from orchestrator.transport import docker_api
from orchestrator.transport.base import Pipe
from orchestrator.transport.docker_api import ContainerView, Mount, look, who_holds
from orchestrator.transport.scripted import Faults, ScriptedConnection


def container(name: str, status: str = "running", **config: Any) -> dict[str, Any]:
    return {
        "Id": (name.encode().hex() * 16)[:64],
        "Name": f"/{name}",
        "State": {"Running": status in ("running", "paused", "restarting"), "Status": status},
        "Config": {"Image": "img", "User": "", "Env": None, **config},
        "Mounts": [
            {"Source": "/data", "Destination": "/workspace", "RW": True, "Type": "bind"},
            {"Source": "/ro", "Destination": "/workspace/models", "RW": False, "Type": "bind"},
        ],
    }


class Engine:
    """Speaks enough of Docker's API over one pipe, with keep-alive and chunked answers."""

    def __init__(
        self, containers: Sequence[dict[str, Any]], folders: Mapping[str, Sequence[str]] = {}
    ) -> None:
        self.containers = containers
        self.folders = folders
        self.requests: list[str] = []

    def __call__(self, argv: Sequence[str], stdin: BinaryIO, stdout: BinaryIO) -> int:
        while line := stdin.readline():
            method, url, _ = line.decode().split()
            while stdin.readline().strip():
                pass
            self.requests.append(f"{method} {url}")
            status, body = self.answer(url)
            data = b"" if method == "HEAD" else json.dumps(body).encode()
            head = f"HTTP/1.1 {status} x\r\nContent-Type: application/json\r\n"
            if method == "HEAD":
                stdout.write(f"{head}Content-Length: 0\r\n\r\n".encode())
            else:
                chunks = [data[at : at + 50] for at in range(0, len(data), 50)]
                text = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks)
                stdout.write(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode() + text)
                stdout.write(b"0\r\n\r\n")
        return 0

    def answer(self, url: str) -> tuple[int, Any]:
        parts = urlsplit(url)
        path = parts.path.split("/")[1:]
        if path == ["version"]:
            return 200, {"ApiVersion": "1.41"}
        assert path[:2] == ["v1.41", "containers"], url
        if path[2] == "json":
            running = [one for one in self.containers if one["State"]["Running"]]
            return 200, [{"Id": one["Id"], "Names": [one["Name"]]} for one in running]
        found = [one for one in self.containers if path[2] in (one["Id"], one["Name"][1:])]
        if not found:
            return 404, {"message": f"No such container: {path[2]}"}
        if path[3] == "archive":
            folder = parse_qs(parts.query)["path"][0]
            return (200 if folder in self.folders.get(found[0]["Name"][1:], ()) else 404), {}
        return 200, found[0]


FLEET = [container("vllm-dsv4", Env=["A=1", "B=x=y", "C"], User="1000"), container("sgl")]


def test_view() -> None:
    engine = Engine(FLEET)
    connection = ScriptedConnection("c500-01", engine)
    view = look(connection, "vllm-dsv4", ("sudo", "-n", "docker"))
    assert connection.opened == [["sudo", "-n", "docker", "system", "dial-stdio"]]
    assert view == ContainerView(
        name="vllm-dsv4",
        id=FLEET[0]["Id"],
        running=True,
        status="running",
        image="img",
        user="1000",
        env={"A": "1", "B": "x=y", "C": ""},
        mounts=(Mount("/data", "/workspace", True), Mount("/ro", "/workspace/models", False)),
    )


@pytest.mark.parametrize(
    ("path", "source", "on_host"),
    [
        ("/workspace", "/data", "/data"),
        ("/workspace/mcoplib/benchmark", "/data", "/data/mcoplib/benchmark"),
        ("/workspace/models/x", "/ro", "/ro/x"),
        ("/workspace2/x", None, None),
        ("/opt", None, None),
    ],
)
def test_innermost_mount(path: str, source: str | None, on_host: str | None) -> None:
    mount = look(ScriptedConnection(script=Engine(FLEET)), "vllm-dsv4").holds(path)
    assert (mount.source if mount else None) == source
    assert (mount.on_host(path) if mount else None) == on_host


def test_who_holds() -> None:
    stopped = container("old", "exited")
    engine = Engine([*FLEET, stopped], {"sgl": ["/opt/b"], "old": ["/opt/b"], "vllm-dsv4": ["/x"]})
    assert who_holds(ScriptedConnection(script=engine), "/opt/b") == ["sgl"]
    assert who_holds(ScriptedConnection(script=engine), "/nowhere") == []


@pytest.mark.parametrize(
    ("name", "containers", "message", "hint"),
    [
        ("vllm-dsv3", FLEET, "there is no container vllm-dsv3", "did you mean vllm-dsv4?"),
        ("zz", FLEET, "there is no container zz", "running there: sgl, vllm-dsv4"),
        ("zz", [], "there is no container zz", "list all with: docker ps -a"),
        ("old", [container("old", "exited")], "not running (exited)", "docker start old"),
        ("old", [container("old", "created")], "not running (created)", "docker start old"),
        ("old", [container("old", "paused")], "is paused", "docker unpause old"),
    ],
)
def test_unusable_containers(
    name: str, containers: list[dict[str, Any]], message: str, hint: str
) -> None:
    with pytest.raises(UnusableError) as caught:
        look(ScriptedConnection("c500-01", Engine(containers)), name)
    assert caught.value.where == f"c500-01:{name}"
    assert message in caught.value.message
    assert caught.value.hint and hint in caught.value.hint


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (
            "echo 'permission denied while trying to connect to the Docker daemon socket at "
            "unix:///var/run/docker.sock' >&2; exit 1",
            "no permission on the Docker socket",
        ),
        ("echo 'docker: not found' >&2; exit 127", "there is no docker on the host"),
        ("echo 'sudo: a password is required' >&2; exit 1", "sudo asks for a password"),
        (
            "echo 'docker: unknown command: docker system dial-stdio' >&2; exit 1",
            "the Docker engine cannot be asked: docker: unknown command",
        ),
        ("echo Welcome; exit 0", "the Docker engine cannot be asked"),
        ("exit 1", "the Docker engine cannot be asked"),
        ("printf 'HTTP/1.1 500 x\\r\\nContent-Length: 2\\r\\n\\r\\n{}'", "cannot be asked"),
    ],
)
def test_engines_that_do_not_answer(program: str, message: str) -> None:
    class Shell(ScriptedConnection):
        def open(self, argv: Sequence[str]) -> Pipe:
            return super().open(["sh", "-c", program])

    with pytest.raises(UnusableError) as caught:
        look(Shell("c500-01"), "vllm-dsv4")
    assert caught.value.where == "c500-01:vllm-dsv4"
    assert message in caught.value.message


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(docker_api, "_TIMEOUT", 0.3)
    yield


@pytest.mark.parametrize("after", [0, 30])
def test_silence_ends_in_an_error(impatient: None, after: int) -> None:
    connection = ScriptedConnection(script=Engine(FLEET), faults=Faults(silent_after=after))
    with pytest.raises(UnusableError, match="the Docker engine cannot be asked"):
        look(connection, "vllm-dsv4")


def test_no_thread_is_left() -> None:
    look(ScriptedConnection(script=Engine(FLEET)), "sgl")
    for thread in threading.enumerate():
        if thread.name in ("engine to us", "us to engine", "script"):
            thread.join(5)
            assert not thread.is_alive(), thread.name
