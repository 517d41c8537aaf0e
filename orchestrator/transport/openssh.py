"""Transport ``openssh``: the ssh command itself, for what Paramiko cannot do.

One master connection a host; every command is a session on it, so that security keys are touched
and second factors asked for once.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from orchestrator.errors import LinkLostError, TransientError, UnreachableError
from orchestrator.transport.base import Pipe
from orchestrator.transport.endpoint import Endpoint
from orchestrator.transport.process import ProcessPipe
from orchestrator.transport.quote import quote
from orchestrator.transport.ssh_dial import PACER, TRIES, Deadline, pauses
from orchestrator.transport.ssh_resolve import ask, is_strict, refuse_remote_command, ssh_arguments

_IDLE = 600  # seconds that the master stays without a session

_DROPPED = "the server closes the connection at once"

# What ssh says on standard error: (pattern, what is wrong, what to do); {0} is the matched text.
_TROUBLES: tuple[tuple[str, str, str], ...] = (
    (
        r"REMOTE HOST IDENTIFICATION HAS CHANGED.*Offending \S+ key in (?P<place>\S+)",
        "the host key has changed; {place} holds another, so this may be another machine",
        "if the change is right: ssh-keygen -R '{known}' -f {file}",
    ),
    (
        r"is marked as revoked|REVOKED HOST KEY",
        "the host key is revoked",
        "do not connect; ask who runs the host",
    ),
    (
        r"Host key verification failed|host key is known for .* strict checking",
        "the host key is unknown and host_keys is strict",
        "compare it on the host and accept it once with: ssh {name}",
    ),
    (
        r"Could not resolve hostname[^\n]*",
        "the name does not resolve ({0})",
        "correct the name, set address: for this host, or add it to ~/.ssh/config",
    ),
    (
        r"Connection refused",
        "the host refuses the connection",
        "is sshd running there, on this port?",
    ),
    (
        r"No route to host|Network is unreachable",
        "there is no route to the host",
        "check the network or the VPN, or name a jump host (ProxyJump) in ~/.ssh/config",
    ),
    (
        r"timed out",
        "the host does not answer within {timeout:g} s",
        "is the machine up, and does a firewall let us through? else raise connect_timeout",
    ),
    (
        r"Permission denied \([^\n]*|Too many authentication failures",
        "the login is refused ({0})",
        "install a key with ssh-copy-id, or unlock it with ssh-add",
    ),
    (
        r"kex_exchange_identification: [^\n]*|Exceeded MaxStartups",
        _DROPPED + " ({0})",
        "correct the port, or raise MaxStartups in its sshd_config",
    ),
    (
        r"Unable to negotiate[^\n]*",
        "no algorithm in common ({0})",
        "widen the algorithms in ~/.ssh/config",
    ),
    (
        r"(?P<place>\S+:? line \d+): [^\n]*|Bad configuration option[^\n]*",
        "the SSH configuration is wrong ({0})",
        "correct it",
    ),
)
# Those that another try may find gone.
_TRANSIENT = tuple(
    pattern
    for pattern, _, _ in _TROUBLES
    if re.search("resolve|refused$|No route|timed out|kex_exchange", pattern)
)


class _SessionPipe(ProcessPipe):
    """A session on the master connection. That the link broke shows as ssh's own exit status."""

    def __init__(self, argv: Sequence[str], peer: str, alive: Callable[[], bool]) -> None:
        super().__init__(argv, peer=peer, end_on_close=True)
        self._peer_name = peer
        self._alive = alive

    def read(self, size: int) -> bytes:
        """Return 1 to ``size`` bytes, ``b""`` at end of file. Raises LinkLostError."""
        data = super().read(size)
        # 255 may also be what the command itself returned.
        if not data and not self.closed and self.wait(1.0) == 255 and not self._alive():
            raise LinkLostError("the SSH connection broke", where=self._peer_name)
        return data


class OpensshConnection:
    """A master connection of the ssh command; ``folder`` holds its control socket."""

    def __init__(self, endpoint: Endpoint, command: str, folder: Path) -> None:
        self._endpoint = endpoint
        self._folder = folder
        answers = ask(endpoint)
        refuse_remote_command(endpoint, answers)
        # Every connection has a jump host connection of its own: it is the jump host's crowd.
        keys = ("proxyjump",) if "proxyjump" in answers else ("hostname", "port")
        self._through = " ".join(answers[key][0] for key in keys)
        self._ssh = [command, *_options(endpoint, folder, strict=is_strict(endpoint, answers))]
        self._lock = threading.Lock()
        self._pipes: list[ProcessPipe] = []
        self._closed = False

    @property
    def peer(self) -> str:
        """The name of the host in the inventory."""
        return self._endpoint.name

    def start(self) -> None:
        """Bring the master connection up. Raises UnreachableError."""
        deadline = Deadline(self._endpoint.connect_timeout)
        with PACER.turn(self._through):
            for pause in pauses(TRIES):
                error = self._try(deadline)
                if error is None:
                    return
                dropped = error.message.startswith(_DROPPED)
                if not dropped or pause is None or pause >= deadline.left():
                    raise error
                time.sleep(pause)

    def _try(self, deadline: Deadline) -> UnreachableError | None:
        # Into files, not pipes: the master stays behind and would keep a pipe open for ever.
        with (self._folder / "said").open("w+b") as said:
            try:
                done = subprocess.run(
                    [*self._ssh, "-o", "ControlMaster=yes", "-f", "-N", "--", self.peer],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=said,
                    timeout=deadline.left(),
                    start_new_session=True,
                    check=False,
                )
                status = done.returncode
            except subprocess.TimeoutExpired:
                said.write(b"\nConnection timed out\n")
                status = 255
            said.seek(0)
            text = said.read().decode("utf-8", "replace")
        return trouble(self._endpoint, text) if status else None

    def _alive(self) -> bool:
        check = subprocess.run(
            [*self._ssh, "-O", "check", "--", self.peer],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=5,
            check=False,
        )
        return check.returncode == 0

    def open(self, argv: Sequence[str]) -> Pipe:
        """Start ``argv`` in a session of its own. Raises LinkLostError when the master is gone."""
        if not (self._folder / "s").exists():
            raise LinkLostError("the SSH connection broke", where=self.peer)
        arguments = [*self._ssh, "-o", "ControlMaster=no", "-T", "--", self.peer, quote(argv)]
        pipe = _SessionPipe(arguments, self.peer, self._alive)
        with self._lock:
            self._pipes = [known for known in self._pipes if known.process.poll() is None]
            self._pipes.append(pipe)
        return pipe

    def close(self) -> None:
        """End the master connection and every pipe on it."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            pipes = list(self._pipes)
        atexit.unregister(self.close)
        for pipe in pipes:
            with contextlib.suppress(OSError):
                pipe.close()
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            subprocess.run(
                [*self._ssh, "-O", "exit", "--", self.peer],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=5,
                check=False,
            )
        shutil.rmtree(self._folder, ignore_errors=True)


def connect_openssh(endpoint: Endpoint) -> OpensshConnection:
    """Return a connection by the ssh command. Raises UnreachableError."""
    command = shutil.which("ssh")
    if command is None:
        raise UnreachableError(
            "transport openssh needs the ssh command",
            where=endpoint.name,
            hint="install the OpenSSH client (openssh-client)",
        )
    # Under /tmp whatever TMPDIR says: a socket's path may have 104 characters on macOS, and ssh
    # adds some of its own while it makes it. mkdtemp makes the folder ours alone (0700).
    folder = Path(tempfile.mkdtemp(prefix="mxf-", dir="/tmp" if Path("/tmp").is_dir() else None))
    try:
        connection = OpensshConnection(endpoint, command, folder)
        connection.start()
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    # The master is a process of its own and would outlive a program that forgot it.
    atexit.register(connection.close)
    return connection


def _options(endpoint: Endpoint, folder: Path, *, strict: bool) -> list[str]:
    config = folder / "config"
    config.write_text(_configuration(endpoint), "utf-8")
    options = ["-F", str(config)]
    for option in (
        f"StrictHostKeyChecking={'yes' if strict else 'accept-new'}",
        f"ControlPath={folder / 's'}",
        f"ControlPersist={_IDLE}",  # ends by itself should we be killed
        "ClearAllForwardings=yes",
        "ForkAfterAuthentication=no",
        "RequestTTY=no",
    ):
        options += ["-o", option]
    return [*options, *ssh_arguments(replace(endpoint, ssh_config=None))]


def _configuration(endpoint: Endpoint) -> str:
    """Return a configuration around the user's own.

    Of several values ssh takes the first. Unlike the command line, the file is also what ssh hands
    to its jump hosts, so that they neither ask questions nor accept what we would not.
    """
    own = endpoint.ssh_config or Path("~/.ssh/config")
    files = [own.expanduser().absolute()]
    if endpoint.ssh_config is None:
        files.append(Path("/etc/ssh/ssh_config"))
    strict = ["StrictHostKeyChecking yes"] if endpoint.host_keys == "strict" else []
    lines = [
        "Host *",
        "BatchMode yes",
        f"ConnectTimeout {max(1, round(endpoint.connect_timeout))}",
        "LogLevel ERROR",
        *strict,
        *(f'Include "{path}"' for path in files),
        "Match all",
        "StrictHostKeyChecking accept-new",
        "ServerAliveInterval 15",
    ]
    return "\n".join(lines) + "\n"


def trouble(endpoint: Endpoint, text: str) -> UnreachableError:
    """Return what ``text``, the standard error of ssh, says about a failed connect."""
    for pattern, message, hint in _TROUBLES:
        match = re.search(pattern, text, re.DOTALL)
        if match:
            place = match.groupdict().get("place") or ""
            words = {
                "name": endpoint.name,
                "timeout": endpoint.connect_timeout,
                "place": place,
                "file": place.rpartition(":")[0],
                "known": _known_name(text, endpoint),
            }
            kind = TransientError if pattern in _TRANSIENT else UnreachableError
            return kind(
                message.format(match[0].strip().rstrip("."), **words),
                where=endpoint.name,
                hint=hint.format(**words),
            )
    lines = [line for line in text.splitlines() if line.strip()]
    return TransientError(
        f"ssh cannot connect: {lines[-1].strip() if lines else 'it gives no reason'}",
        where=endpoint.name,
        hint=f"try: ssh -v {endpoint.name}",
    )


def _known_name(text: str, endpoint: Endpoint) -> str:
    """Return the name under which ssh looked the host key up, from its own advice."""
    match = re.search(r"ssh-keygen -f \S+ -R [\"']?(?P<name>[^\"'\s]+)", text) or re.search(
        r"Host key for (?P<name>\S+) has changed", text
    )
    return match["name"] if match else os.fspath(endpoint.address or endpoint.name)
