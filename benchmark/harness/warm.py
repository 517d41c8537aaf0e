"""A warm server: forks front doors from a process that imported torch once.

``testall`` starts one for each GPU it uses, and so does mxfleet for the jobs of a tree. An operator
then costs no import; it still has a process group of its own, whose front door in turn forks every
case. The server never touches a GPU and refuses to fork when it is no longer fit for it (see
``preload``): the operator then gets a fresh Python.

A server is the tree's front door with ``--serve FD``. Protocol over that Unix socket, one JSON
object a message: the client sends ``{"argv"}`` with the descriptors that take the output and the
errors (one: both), in ``"env"`` variables for this front door alone and in ``"cookie"`` the name
and value of one that ``/proc`` has to show as well, in ``"tag"`` a number to carry; the server
answers ``{"pid"}`` or ``{"refused"}``, and ``{"status", "left"}`` when that process has ended: as
of ``waitpid``, and how many processes it left behind, which are ended by then. When the client goes
away, the server ends with all that it started; at SIGTERM it starts no more and ends with the last.
"""

from __future__ import annotations

import array
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from harness import cookie, libraries, offspring, preload

_MESSAGE = 1 << 20
_START_LIMIT = 300.0
FRONT_DOOR = "mcoplib_mxbenchmark_ops.py"


class Server:
    """The client's side: a server process and the operator that runs in it, one at a time."""

    def __init__(self, root: Path) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-u", str(root / FRONT_DOOR), "--serve", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self._socket = ours

    def start(self, argv: Sequence[str], output: int) -> int | str:
        """Start a front door that writes to descriptor ``output``; its pid, or why it did not."""
        try:
            fds = array.array("i", [output]).tobytes()
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)]
            self._socket.sendmsg([json.dumps({"argv": list(argv)}).encode()], rights)
            # The first answer waits for torch's import.
            answer = self._receive(_START_LIMIT)
            while answer is not None and "status" in answer:
                # An earlier operator whose end came too late to be waited for.
                answer = self._receive(_START_LIMIT)
        except OSError as error:
            return f"it ended: {error.strerror}"
        if answer is None:
            return "it ended or did not answer"
        pid: int | None = answer.get("pid")
        return str(answer.get("refused")) if pid is None else pid

    def wait(self, limit: float) -> int | None:
        """The ``waitpid`` status of the front door; None when it still runs after ``limit`` s.

        Raises ``ConnectionError`` when the server has gone.
        """
        answer = self._receive(limit)
        if answer is None:
            if self._process.poll() is not None:
                raise ConnectionError("the warm process ended")
            return None
        status: int = answer["status"]
        return status

    def _receive(self, limit: float) -> dict[str, Any] | None:
        if not select.select([self._socket], [], [], limit)[0]:
            return None
        try:
            data = self._socket.recv(_MESSAGE)
        except ConnectionError:
            data = b""
        if not data:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(5.0)
            return None
        answer: dict[str, Any] = json.loads(data)
        return answer

    def close(self) -> None:
        """End the server and whatever still runs in it; may be called again, by any thread."""
        # A thread that waits for an answer is woken by this, not by a mere close.
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        try:
            self._process.wait(10.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._socket.close()


def serve(root: str, descriptor: int, operators: Sequence[str]) -> None:
    """Serve front doors of the tree ``root`` until the other end of the socket is closed."""
    connection = socket.socket(fileno=descriptor)
    connection.set_inheritable(False)
    _prepare(Path(root))
    offspring.adopt()
    running: set[int] = set()
    try:
        _answer(connection, root, operators, running)
    except ConnectionError:
        pass  # the other end was closed while it was written to
    finally:
        for child in running:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
        offspring.end_adopted(())


def _answer(
    connection: socket.socket, root: str, operators: Sequence[str], running: set[int]
) -> None:
    """Start what is asked for and tell how it ended; ``running``: the one that has not."""
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, lambda number, frame: None)
    ending = False
    while running or not ending:
        ready = select.select([connection.fileno(), woken], [], [])[0]
        if woken in ready:
            ending |= signal.SIGTERM in os.read(woken, 64)
            for started in tuple(running):
                found, status = os.waitpid(started, os.WNOHANG)
                if found:
                    running.remove(started)
                    left = len(offspring.living())
                    offspring.end_adopted(())
                    connection.send(json.dumps({"status": status, "left": left}).encode())
        if connection.fileno() not in ready:
            continue
        data, ancillary, _, _ = connection.recvmsg(_MESSAGE, socket.CMSG_SPACE(8))
        if not data:
            return
        outputs = array.array("i")
        for _, _, rights in ancillary:
            outputs.frombytes(rights)
        child, answer = None, {"refused": "it is ending"}
        if not ending:
            own = [connection.fileno(), woken, wake]
            child, answer = _start(json.loads(data), root, operators, outputs, own)
        for output in outputs:
            os.close(output)
        if child is not None:
            running.add(child)
        connection.send(json.dumps(answer).encode())
        _be_silent()


def _be_silent() -> None:
    """What this server printed while it started belongs to whoever started it; now it is over."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)
    os.close(nothing)


def _prepare(root: Path) -> None:
    """Import and ask once what every front door would; what goes wrong each will say itself."""
    with suppress(ImportError):
        preload.import_torch()
        # Only for the import: no child has to do it again.
        from harness import environment, errors, gate, session  # noqa: F401

        with suppress(errors.HarnessError):
            environment.remember(root)
            gate.import_ahead("nvbench" if environment.gpu_devices() else "torch")


def _start(
    request: dict[str, Any],
    root: str,
    operators: Sequence[str],
    outputs: Sequence[int],
    own: Sequence[int],
) -> tuple[int | None, dict[str, Any]]:
    mark = request.get("cookie")
    reason = preload.soiled() or (cookie.obstacle(*mark) if mark else None)
    if reason is not None:
        return None, {"refused": reason}
    # Front doors and their cases then need not hash the same files again and again.
    libraries.remember_installed(request["argv"])
    sys.stdout.flush()
    server, (leading, leads) = os.getpid(), os.pipe()
    # Whoever ends us all at this moment shall not find the child deaf.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    pid = os.fork()
    if pid:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        # Whoever hears of the process may end its group and look for its cookie.
        os.close(leads)
        os.read(leading, 1)
        os.close(leading)
        return pid, {"pid": pid}
    code = 70
    try:
        os.setsid()
        if mark:
            cookie.change(*mark)
        cookie.carry(request.get("tag"))
        os.close(leads)
        os.close(leading)
        offspring.die_with(server, signal.SIGTERM)
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        os.dup2(outputs[0], 1)
        os.dup2(outputs[-1], 2)
        for handle in (*outputs, *own):
            os.close(handle)
        os.environ.update(request.get("env", {}))
        sys.argv[1:] = request["argv"]
        from harness.cli import main

        code = main(request["argv"], operators, root)
    except SystemExit as error:  # argparse's, for wrong usage
        code = error.code if isinstance(error.code, int) else code
    except BaseException:  # noqa: BLE001 - the child must not return into the server's loop
        sys.excepthook(*sys.exc_info())
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
    raise AssertionError("not reached")


def end_group(leader: int, grace: float) -> None:
    """Leave nothing alive of the process group ``leader``: TERM, then KILL after ``grace`` s."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + grace
        try:
            os.killpg(leader, number)
            while time.monotonic() < deadline:
                os.killpg(leader, 0)
                time.sleep(0.02)
        except (ProcessLookupError, PermissionError):  # macOS: not permitted on a dead one
            return
