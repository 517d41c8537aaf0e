"""The stream below an SSH session: what it remembers, and when it acknowledges."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from orchestrator.transport.ssh_dial import Tap


@pytest.fixture
def tcp() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a TCP connection on the loopback device."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname(), 5)
        theirs, _ = server.accept()
        with ours, theirs:
            yield ours, theirs


@pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="only Linux has TCP_QUICKACK")
def test_what_arrives_is_acknowledged_at_once(tcp: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = tcp
    tap = Tap(ours)
    for message in (b"SSH-2.0-server\r\n", b"more", b"and more"):
        # The state after an answer, in which the kernel acknowledges late.
        ours.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
        theirs.sendall(message)
        assert tap.recv(100) == message
        assert ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK) == 1
    assert tap.head == b"SSH-2.0-server\r\nmoreand more"


def test_a_proxy_command_is_a_stream_as_well() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        tap = Tap(ours)
        theirs.sendall(b"x" * 600)
        assert tap.recv(600) == b"x" * 600
        assert tap.head == b"x" * 512


def test_the_end_of_the_stream_is_its_end(tcp: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = tcp
    tap = Tap(ours)
    theirs.close()
    assert tap.recv(10) == b""
    assert tap.head == b""
