"""The SSH transports against real sshd processes: data, host keys, logins, jumps, crowds."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.errors import LinkLostError, UnreachableError
from orchestrator.transport.base import Connection, Pipe
from orchestrator.transport.connect import connect
from orchestrator.transport.endpoint import Endpoint

from .sshd import Sshd, free_port, keygen

BOTH = pytest.mark.parametrize("transport", ["ssh", "openssh"])
NASTY = "a b;$(reboot)'\"!\n\\n 算子"

Servers = Callable[..., Sshd]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    """A server with nothing special, for the tests that break nothing."""
    server = Sshd(tmp_path_factory.mktemp("sshd"))
    yield server
    server.stop()


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    """A factory of servers with options of their own."""
    started: list[Sshd] = []

    def make(options: Mapping[str, str] | None = None) -> Sshd:
        started.append(Sshd(tmp_path / f"sshd{len(started)}", options))
        return started[-1]

    yield make
    for server in started:
        server.stop()


def read_all(pipe: Pipe) -> bytes:
    out = bytearray()
    while data := pipe.read(1 << 16):
        out += data
    return bytes(out)


def output(connection: Connection, *argv: str) -> bytes:
    pipe = connection.open(argv)
    out = read_all(pipe)
    assert pipe.wait(20) == 0, pipe.stderr_tail()
    pipe.close()
    return out


def refusal(endpoint: Endpoint) -> UnreachableError:
    with pytest.raises(UnreachableError) as caught:
        connect(endpoint).close()
    assert "\n" not in str(caught.value)
    assert caught.value.where == endpoint.name
    return caught.value


# --- data


@BOTH
def test_argument_status_and_stderr(shared: Sshd, transport: str) -> None:
    connection = connect(shared.endpoint(transport))
    pipe = connection.open(["sh", "-c", 'printf %s "$0"; echo sorry >&2; cat; exit 7', NASTY])
    pipe.write(b"in")
    pipe.close_write()
    assert read_all(pipe) == NASTY.encode() + b"in"
    assert pipe.wait(20) == 7
    assert pipe.stderr_tail() == b"sorry\n"
    pipe.close()
    connection.close()


@BOTH
def test_fifty_megabytes_both_ways_at_once(shared: Sshd, transport: str) -> None:
    data = os.urandom(1 << 20) * 50
    connection = connect(shared.endpoint(transport))
    pipe = connection.open(["sh", "-c", "head -c 3000000 /dev/zero >&2; cat"])

    def feed() -> None:
        pipe.write(data)
        pipe.close_write()

    writer = threading.Thread(target=feed)
    writer.start()
    echoed = read_all(pipe)
    writer.join()
    assert hashlib.sha256(echoed).digest() == hashlib.sha256(data).digest()
    assert pipe.wait(20) == 0
    connection.close()


@BOTH
@pytest.mark.parametrize("shell", ["dash", "tcsh", "fish"])
def test_login_shell(servers: Servers, transport: str, shell: str) -> None:
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    server = servers({"ForceCommand": f'echo Welcome; exec {shell} -c "$SSH_ORIGINAL_COMMAND"'})
    connection = connect(server.endpoint(transport))
    got = output(connection, "printf", "%s", NASTY)
    assert got == b"Welcome\n" + NASTY.encode()
    connection.close()


@BOTH
def test_close_wakes_a_blocked_reader(shared: Sshd, transport: str) -> None:
    connection = connect(shared.endpoint(transport))
    for end in ("pipe", "connection"):
        pipe = connection.open(["sleep", "60"])
        got: list[bytes] = []

        def read(pipe: Pipe = pipe, got: list[bytes] = got) -> None:
            try:
                got.append(pipe.read(1))
            except LinkLostError:
                got.append(b"")

        reader = threading.Thread(target=read)
        reader.start()
        reader.join(0.2)
        assert reader.is_alive()
        (pipe if end == "pipe" else connection).close()
        reader.join(10)
        assert got == [b""], end
    connection.close()


@BOTH
def test_lost_link_is_an_error_not_an_end(servers: Servers, transport: str) -> None:
    server = servers()
    connection = connect(server.endpoint(transport))
    pipe = connection.open(["cat"])
    pipe.write(b"x")
    assert pipe.read(1) == b"x"
    for pid in server.sessions():
        os.kill(pid, signal.SIGKILL)
    with pytest.raises(LinkLostError, match="c500-01: the SSH connection broke"):
        pipe.read(1)
    with pytest.raises(LinkLostError):
        pipe.write(b"y")
    with pytest.raises(LinkLostError):
        connection.open(["true"])
    connection.close()


@BOTH
def test_frozen_server_holds_nobody(servers: Servers, transport: str) -> None:
    """The other side neither reads nor answers, and everything on the way is full."""
    server = servers()
    connection = connect(server.endpoint(transport))
    pipe = connection.open(["cat"])
    pipe.write(b"x")
    assert pipe.read(1) == b"x"
    for pid in server.sessions():
        os.kill(pid, signal.SIGSTOP)
    failures: list[Exception] = []

    def feed() -> None:
        try:
            pipe.write(bytes(64 << 20))
        except LinkLostError as error:
            failures.append(error)

    def give_up() -> None:
        pipe.close()
        connection.close()

    writer = threading.Thread(target=feed)
    writer.start()
    writer.join(1.0)
    assert writer.is_alive()
    closer = threading.Thread(target=give_up)
    closer.start()
    closer.join(30)
    writer.join(30)
    assert not closer.is_alive() and not writer.is_alive()
    assert len(failures) == 1


def test_killed_command_is_an_end(shared: Sshd) -> None:
    connection = connect(shared.endpoint())
    pipe = connection.open(["sh", "-c", "kill -9 $$"])
    assert read_all(pipe) == b""
    assert pipe.wait(10) is None
    connection.close()


@BOTH
def test_set_env(servers: Servers, transport: str) -> None:
    server = servers({"AcceptEnv": "MX_*"})
    endpoint = server.endpoint(transport, extra="SetEnv MX_A=one")
    connection = connect(endpoint)
    assert output(connection, "sh", "-c", "echo $MX_A") == b"one\n"
    connection.close()


# --- host keys


@BOTH
@pytest.mark.parametrize("hashed", [False, True])
def test_accept_new_remembers(servers: Servers, transport: str, hashed: bool) -> None:
    server = servers()
    extra = "Host *\nHashKnownHosts yes\n" if hashed else ""
    connect(server.endpoint(transport, extra=extra)).close()
    text = server.known_hosts.read_text()
    assert (server.known_as in text) is not hashed
    connect(server.endpoint(transport, host_keys="strict")).close()


@BOTH
@pytest.mark.parametrize("how", ["inventory", "ssh_config"])
def test_strict_refuses_the_unknown(servers: Servers, transport: str, how: str) -> None:
    server = servers()
    if how == "inventory":
        endpoint = server.endpoint(transport, host_keys="strict")
    else:
        endpoint = server.endpoint(transport, extra="StrictHostKeyChecking yes")
    error = refusal(endpoint)
    assert "unknown and host_keys is strict" in error.message
    assert not server.known_hosts.exists()


@BOTH
def test_changed_key_names_line_and_fix(servers: Servers, transport: str) -> None:
    server, other = servers(), servers()
    server.known_hosts.write_text(f"# mine\n{server.known_as} {other.public('ed25519')}\n")
    error = refusal(server.endpoint(transport))
    assert "changed" in error.message
    assert f"{server.known_hosts}:2" in error.message
    command = f"ssh-keygen -R '{server.known_as}' -f {server.known_hosts}"
    assert error.hint and command in error.hint
    subprocess.run(["sh", "-c", command], check=True, capture_output=True)
    connect(server.endpoint(transport)).close()


@BOTH
@pytest.mark.parametrize("kind", ["rsa", "ecdsa", "ed25519"])
def test_the_known_type_is_asked_for(servers: Servers, transport: str, kind: str) -> None:
    server = servers()
    server.known_hosts.write_text(f"{server.known_as} {server.public(kind)}\n")
    connect(server.endpoint(transport, host_keys="strict")).close()


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("127.0.0.1 {ed25519}", None),  # without the port, as ssh
        ("@cert-authority *.elsewhere {rsa}\n{name} {ed25519}", None),
        ("@cert-authority {name} {rsa}", "certificate authority .*:1.*transport ssh cannot check"),
        ("{name} {ed25519}\n@revoked * {ed25519}", "revoked by .*:2"),
    ],
)
def test_special_lines(servers: Servers, line: str, problem: str | None) -> None:
    server = servers()
    words = {kind: server.public(kind) for kind in ("rsa", "ed25519")}
    server.known_hosts.write_text(line.format(name=server.known_as, **words) + "\n")
    extra = "HostKeyAlgorithms ssh-ed25519"
    endpoint = server.endpoint(extra=extra, host_keys="strict")
    if problem is None:
        connect(endpoint).close()
    else:
        with pytest.raises(UnreachableError, match=problem):
            connect(endpoint)


# --- no way in


@BOTH
def test_nobody_listens(shared: Sshd, transport: str) -> None:
    endpoint = shared.endpoint(transport, extra=f"Port {free_port()}")
    assert "refuses the connection" in refusal(endpoint).message


@BOTH
def test_name_does_not_resolve(shared: Sshd, transport: str) -> None:
    endpoint = shared.endpoint(transport, extra="HostName no-such-host.invalid")
    assert "does not resolve" in refusal(endpoint).message


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak SSH (it says 'HTTP/1.1 400"),
        (b"220 mail ESMTP\r\n", "does not speak SSH (it says '220 mail ESMTP')"),
        (None, "takes connections but does not answer as SSH within 1.5 s"),
        (b"SSH-2.0-Silent\r\n", "takes connections but did not finish the SSH handshake"),
    ],
)
def test_not_an_ssh_server(shared: Sshd, words: bytes | None, message: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        accepted: list[socket.socket] = []

        def serve() -> None:
            link, _ = listener.accept()
            accepted.append(link)
            if words is not None:
                link.sendall(words)
                if not words.startswith(b"SSH"):
                    link.shutdown(socket.SHUT_WR)

        threading.Thread(target=serve, daemon=True).start()
        port = listener.getsockname()[1]
        error = refusal(shared.endpoint(extra=f"Port {port}", timeout=1.5))
        for link in accepted:
            link.close()
    assert message in error.message


@BOTH
def test_key_refused(shared: Sshd, tmp_path: Path, transport: str) -> None:
    error = refusal(shared.endpoint(transport, key=keygen(tmp_path / "stranger")))
    assert "cannot log in" in error.message or "login is refused" in error.message
    assert error.hint and "ssh-copy-id" in error.hint
    if transport == "ssh":
        assert f"refused: key {tmp_path}/stranger" in error.message


@pytest.mark.parametrize("form", ["openssh", "pem"])
def test_encrypted_key_without_agent(shared: Sshd, tmp_path: Path, form: str) -> None:
    key = keygen(tmp_path / "locked", "rsa" if form == "pem" else "ed25519", "secret")
    if form == "pem":
        convert = ["ssh-keygen", "-q", "-p", "-P", "secret", "-N", "secret", "-m", "PEM", "-f", key]
        subprocess.run(convert, check=True, capture_output=True)
    error = refusal(shared.endpoint(key=key))
    assert f"{key} is encrypted and not in an ssh-agent" in error.message
    assert error.hint == f"unlock the key for this login session with: ssh-add {key}"


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "does not exist"), ("rubbish", "no key that transport ssh can read")],
)
def test_unusable_key_file(shared: Sshd, tmp_path: Path, content: str | None, message: str) -> None:
    key = tmp_path / "key"
    if content is not None:
        key.write_text(content)
    assert message in refusal(shared.endpoint(key=key)).message


def test_no_common_algorithm(servers: Servers) -> None:
    server = servers({"KexAlgorithms": "ecdh-sha2-nistp256"})
    error = refusal(server.endpoint(extra="KexAlgorithms ecdh-sha2-nistp521"))
    assert "no algorithm in common" in error.message
    error = refusal(server.endpoint(extra="Ciphers chacha20-poly1305@openssh.com"))
    assert "only Ciphers that transport ssh has not got" in error.message
    assert error.hint and "transport: openssh" in error.hint


# --- logins


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[str]:
    """The socket of an ssh-agent without keys."""
    path = str(tmp_path / "agent")
    process = subprocess.Popen(["ssh-agent", "-D", "-a", path], stdout=subprocess.DEVNULL)
    while not Path(path).exists():
        assert process.poll() is None
    yield path
    process.terminate()
    process.wait()


def add_key(agent: str, key: Path, passphrase: str = "") -> None:
    ask = key.with_name("askpass")
    ask.write_text(f"#!/bin/sh\necho '{passphrase}'\n")
    ask.chmod(0o700)
    env = {**os.environ, "SSH_AUTH_SOCK": agent, "SSH_ASKPASS": str(ask)}
    env |= {"SSH_ASKPASS_REQUIRE": "force", "DISPLAY": ":0"}
    subprocess.run(["ssh-add", "-q", key], env=env, check=True, stdin=subprocess.DEVNULL)


@pytest.mark.parametrize("kind", ["ed25519", "rsa", "ecdsa"])
@pytest.mark.parametrize("encrypted", [False, True])
def test_key_in_the_agent(
    shared: Sshd, tmp_path: Path, agent: str, kind: str, encrypted: bool
) -> None:
    key = keygen(tmp_path / "key", kind, "secret" if encrypted else "")
    with (shared.folder / "authorized").open("a") as file:
        file.write((tmp_path / "key.pub").read_text())
    (tmp_path / "key.pub").unlink()  # the public half is in the private file as well
    for number in range(8):  # more than MaxAuthTries: IdentitiesOnly has to keep them out
        add_key(agent, keygen(tmp_path / f"other{number}"))
    add_key(agent, key, "secret")
    connect(shared.endpoint(extra=f"IdentityAgent {agent}", key=key)).close()


def test_too_many_agent_keys(shared: Sshd, tmp_path: Path, agent: str) -> None:
    for number in range(8):
        add_key(agent, keygen(tmp_path / f"other{number}"))
    error = refusal(shared.endpoint(extra=f"IdentityAgent {agent}\nIdentitiesOnly no"))
    assert "hung up after" in error.message
    assert error.hint and "IdentitiesOnly: yes" in error.hint


@pytest.mark.parametrize("named", [False, True])
def test_certificate(servers: Servers, tmp_path: Path, named: bool) -> None:
    authority, key = keygen(tmp_path / "ca"), keygen(tmp_path / "key")
    server = servers({"TrustedUserCAKeys": f"{authority}.pub"})
    subprocess.run(
        ["ssh-keygen", "-q", "-s", authority, "-I", "me", "-n", server.user, f"{key}.pub"],
        check=True,
    )
    extra = ""
    if named:
        certificate = (tmp_path / "key-cert.pub").rename(tmp_path / "elsewhere.pub")
        extra = f"CertificateFile {certificate}"
    connect(server.endpoint(key=key, extra=extra)).close()


def test_server_that_takes_no_keys(servers: Servers) -> None:
    server = servers({"PubkeyAuthentication": "no", "PasswordAuthentication": "yes"})
    error = refusal(server.endpoint())
    assert "the server takes no keys, only password" in error.message
    assert error.hint and "PubkeyAuthentication" in error.hint


@BOTH
def test_options_of_the_inventory(shared: Sshd, transport: str) -> None:
    endpoint = shared.endpoint(transport, extra="Host *\n Ciphers aes128-ctr\n")
    options = {"Ciphers": "aes256-ctr", "StrictHostKeyChecking": "no"}
    connect(replace(endpoint, options=options)).close()
    # Whatever is set, a changed key is refused.
    wrong = shared.folder / "wrong"
    wrong.write_text(f"{shared.known_as} {(shared.folder / 'client.pub').read_text()}")
    error = refusal(replace(endpoint, options={**options, "UserKnownHostsFile": str(wrong)}))
    assert "changed" in error.message


def test_security_key_is_named(shared: Sshd, tmp_path: Path) -> None:
    key = tmp_path / "hardware"
    key.write_text("(the handle)")
    blob = b"\0\0\0\x1ask-ssh-ed25519@openssh.com" + bytes(36)
    (tmp_path / "hardware.pub").write_text(
        f"sk-ssh-ed25519@openssh.com {base64.b64encode(blob).decode()} me\n"
    )
    error = refusal(shared.endpoint(key=key))
    assert f"{key} needs a security key, which only transport: openssh can use" in error.message


def test_several_identity_files(shared: Sshd, tmp_path: Path) -> None:
    first = keygen(tmp_path / "first")
    locked = keygen(tmp_path / "locked", passphrase="x")
    extra = f"IdentityFile {first}\nIdentityFile {tmp_path}/absent\nIdentityFile {locked}"
    connect(shared.endpoint(extra=extra)).close()


# --- ways through


@BOTH
def test_jump_hosts(servers: Servers, transport: str) -> None:
    first, second, goal = servers(), servers(), servers()
    blocks = first.host_block("gate") + second.host_block("inner")
    extra = f"{blocks}\nHost c500-01\n ProxyJump gate,inner\n"
    connection = connect(goal.endpoint(transport, extra=extra))
    assert output(connection, "echo", NASTY) == NASTY.encode() + b"\n"
    assert all(server.sessions() for server in (first, second, goal))
    connection.close()
    for server in (first, second, goal):
        for _ in range(100):
            if not server.sessions():
                break
            threading.Event().wait(0.05)
        assert not server.sessions()


def test_jump_host_is_shared(servers: Servers) -> None:
    gate, goal = servers(), servers()
    block = gate.host_block("gate")
    endpoints = [
        goal.endpoint(name=f"c500-{number:02}", extra=f"{block}\nHost *\n ProxyJump gate\n")
        for number in range(1, 5)
    ]
    # One file, so that the jump host is the same for all.
    text = endpoints[0].ssh_config.read_text() if endpoints[0].ssh_config else ""
    config = goal.folder / "all"
    config.write_text(
        text.replace("Host *\n ProxyJump", "Host c500-*\n ProxyJump").replace(
            "Host c500-01\n HostName", "Host c500-*\n HostName"
        )
    )
    names = [endpoint.name for endpoint in endpoints]

    def reach(name: str) -> Connection:
        return connect(Endpoint(name, ssh_config=config))

    with ThreadPoolExecutor(4) as pool:
        connections = list(pool.map(reach, names))
    assert gate.log.read_text().count("Accepted publickey") == 1
    connections[0].close()
    connections[0].close()
    assert output(connections[1], "echo", "still") == b"still\n"
    for connection in connections:
        connection.close()


@pytest.mark.parametrize(
    ("options", "message", "hint"),
    [
        ({"AllowTcpForwarding": "no"}, "jump host gate cannot reach", "AllowTcpForwarding yes"),
        ({}, "jump host gate cannot reach", "reached from the jump host"),
        ({"MaxStartups": "1:100:1", "Banner": "none"}, "jump host gate", ""),
    ],
)
def test_jump_host_in_the_way(
    servers: Servers, options: dict[str, str], message: str, hint: str
) -> None:
    gate = servers(options)
    goal = servers()
    goal_port = free_port() if not options else goal.port
    if "MaxStartups" in options:
        gate.stop()
    extra = f"{gate.host_block('gate')}\nHost c500-01\n ProxyJump gate\n Port {goal_port}\n"
    error = refusal(goal.endpoint(extra=extra))
    assert message in error.message
    assert error.hint and hint in error.hint


def test_jump_host_key_is_checked(servers: Servers) -> None:
    gate, goal = servers(), servers()
    gate.known_hosts.write_text(f"{gate.known_as} {goal.public('ed25519')}\n")
    extra = f"{gate.host_block('gate')}\nHost c500-01\n ProxyJump gate\n"
    error = refusal(goal.endpoint(extra=extra))
    assert "jump host gate: the host key" in error.message and "changed" in error.message


def test_jump_that_leads_to_itself(shared: Sshd) -> None:
    extra = "Host a\n ProxyJump b\nHost b\n ProxyJump a\nHost c500-01\n ProxyJump a\n"
    error = refusal(shared.endpoint(extra=extra))
    assert "lead in a circle (c500-01 -> a -> b -> a)" in error.message


@BOTH
def test_proxy_command(servers: Servers, transport: str) -> None:
    server = servers()
    program = "exec 3<>/dev/tcp/%h/%p; cat <&3 & cat >&3; kill $!"
    connection = connect(server.endpoint(transport, extra=f"ProxyCommand bash -c '{program}'"))
    assert output(connection, "echo", "through") == b"through\n"
    connection.close()


def test_proxy_command_that_fails(shared: Sshd) -> None:
    error = refusal(shared.endpoint(extra="ProxyCommand false"))
    assert "the proxy command ended before a server answered: false" in error.message


# --- crowds


@BOTH
def test_twelve_at_once_past_max_startups(servers: Servers, transport: str) -> None:
    server = servers({"MaxStartups": "2:100:2"})
    endpoint = server.endpoint(transport, timeout=60)
    with ThreadPoolExecutor(12) as pool:
        connections = list(pool.map(lambda _: connect(endpoint), range(12)))
    for connection in connections:
        assert output(connection, "echo", "in") == b"in\n"
        connection.close()


def test_max_sessions_is_named(servers: Servers) -> None:
    server = servers({"MaxSessions": "2"})
    connection = connect(server.endpoint())
    pipes = [connection.open(["cat"]) for _ in range(2)]
    with pytest.raises(UnreachableError, match=r"refuses another session.*raise MaxSessions"):
        connection.open(["cat"])
    for pipe in pipes:  # the others are none the worse
        pipe.write(b"x")
        assert pipe.read(1) == b"x"
    connection.close()
