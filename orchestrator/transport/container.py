"""A connection into a container: ``docker exec -i`` through the connection to its host."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from orchestrator.errors import UnusableError
from orchestrator.transport.base import Connection, Pipe

# What docker, podman and sudo say on standard error: (pattern, what is wrong, what to do).
# {name} is the container, {docker} the docker command, {last} the last line that was said.
_TROUBLES: tuple[tuple[str, str, str], ...] = (
    (
        r"no such container|no container with name or id",
        "there is no container {name}",
        "list them with: {docker} ps -a",
    ),
    (
        r"is not running|container state improper|is stopped",
        "container {name} is not running",
        "start it with: {docker} start {name}",
    ),
    (
        r"is paused",
        "container {name} is paused",
        "wake it with: {docker} unpause {name}",
    ),
    (
        r"is restarting",
        "container {name} is restarting all the time",
        "see why with: {docker} logs --tail 20 {name}",
    ),
    (
        r"a password is required|a terminal is required|no tty present|askpass",
        "sudo asks for a password",
        "allow docker without one in sudoers (NOPASSWD), or add the user to the group docker",
    ),
    (
        r"not in the sudoers|is not allowed to execute|may not run sudo",
        "the user may not run docker through sudo",
        "allow it in sudoers, or add the user to the group docker",
    ),
    (
        r"permission denied.*(daemon socket|docker\.sock|docker api)|connect: permission denied",
        "no permission on the Docker socket",
        "add the user to the group docker and log in again, or set docker_command: sudo -n docker",
    ),
    (
        r"cannot connect to the docker daemon|is the docker daemon running|"
        r"error during connect|dial unix [^\n]*no such file|cannot connect to podman|"
        r"failed to connect to the docker api",
        "the Docker engine does not answer",
        "start it with: systemctl start docker, or set DOCKER_HOST for this login",
    ),
    (
        r"unable to find user|no matching entries in passwd",
        "container {name} has no such user ({last})",
        "correct docker_user",
    ),
    (
        # The OCI runtime: the container has not got the command that should run in it.
        r"oci runtime exec failed.*(executable file not found|no such file)|"
        r"executable file \S+ not found in",
        "container {name} lacks the command that was to run ({last})",
        "name a python that is in the container, in the inventory",
    ),
    (
        r"oci runtime|oci permission denied|exec failed",
        "the container runtime could not start a command in {name} ({last})",
        "try by hand: {docker} exec -i {name} sh",
    ),
    (
        r"(docker|podman|sudo|{command})['\"]?:? *(command )?not found|"
        r"unknown command:? *(docker|podman|sudo|{command})\s*$|"
        r"command not found.*(docker|podman)",
        "there is no {program} on the host",
        "install it, put it on the PATH of this login, or set docker_command",
    ),
)

# What the engine says in place of a command that it could not start, and how long that may be.
_RUNTIME = re.compile(rb"oci runtime|oci permission|exec failed|unable to find user|crun:", re.I)
_COMPLAINT = 2048


def docker_trouble(
    stderr: bytes, *, container: str, docker_command: Sequence[str], where: str
) -> UnusableError | None:
    """Return what ``stderr`` of a docker command complains about, None when it is nothing known."""
    text = stderr.decode("utf-8", "replace")
    docker = shlex.join(docker_command)
    lines = text.strip().splitlines()
    program = docker_command[0]
    words = {
        "name": container,
        "docker": docker,
        "program": program,
        "last": lines[-1].strip() if lines else "",
    }
    for pattern, message, hint in _TROUBLES:
        if re.search(
            pattern.replace("{command}", re.escape(program)), text, re.IGNORECASE | re.DOTALL
        ):
            return UnusableError(message.format(**words), where=where, hint=hint.format(**words))
    return None


class ContainerPipe:
    """The pipe of a command in a container.

    ``docker exec`` prints some of the engine's complaints to standard *output*; they belong to
    what explains the end of the command, so ``stderr_tail`` has them too.
    """

    def __init__(self, inner: Pipe) -> None:
        self._inner = inner
        self._head = b""
        self.write = inner.write
        self.close_write = inner.close_write
        self.wait = inner.wait
        self.close = inner.close

    def read(self, size: int) -> bytes:
        """Return 1 to ``size`` bytes, ``b""`` at end of file."""
        data = self._inner.read(size)
        if len(self._head) <= _COMPLAINT:
            self._head += data[: _COMPLAINT + 1]
        return data

    def stderr_tail(self) -> bytes:
        """Return the end of standard error, after what the engine said in the command's place."""
        instead = len(self._head) <= _COMPLAINT and _RUNTIME.search(self._head)
        return (self._head if instead else b"") + self._inner.stderr_tail()


class ContainerConnection:
    """Starts commands in a running container of the host that ``inner`` leads to.

    ``inner`` is shared by the targets of a host and not closed with this.
    """

    def __init__(
        self,
        inner: Connection,
        container: str,
        docker_command: Sequence[str] = ("docker",),
        docker_user: str | None = None,
    ) -> None:
        self._inner = inner
        self._container = container
        self._docker_command = tuple(docker_command)
        self._user = ("--user", docker_user) if docker_user else ()

    @property
    def peer(self) -> str:
        """``host:container``."""
        return f"{self._inner.peer}:{self._container}"

    def open(self, argv: Sequence[str]) -> Pipe:
        """Start ``argv`` in the container.

        A container that is missing or stopped shows as a pipe that ends early; ``explain`` tells.
        """
        command = [*self._docker_command, "exec", "-i", *self._user, self._container, *argv]
        return ContainerPipe(self._inner.open(command))

    def explain(self, exit_status: int | None, stderr_tail: bytes) -> UnusableError:
        """Return why a pipe ended before the command in the container could speak."""
        known = docker_trouble(
            stderr_tail,
            container=self._container,
            docker_command=self._docker_command,
            where=self.peer,
        )
        if known:
            return known
        lines = stderr_tail.decode("utf-8", "replace").strip().splitlines()
        docker = shlex.join(self._docker_command)
        if exit_status in (126, 127) and not lines:
            return UnusableError(
                f"the command was not found in the container (status {exit_status})",
                where=self.peer,
                hint="name a python that is in the container, in the inventory",
            )
        said = f": {lines[-1].strip()}" if lines else " and said nothing"
        status = "unknown" if exit_status is None else str(exit_status)
        return UnusableError(
            f"{docker} exec ended with status {status}{said}",
            where=self.peer,
            hint=f"try by hand: {docker} exec -i {self._container} sh",
        )

    def close(self) -> None:
        """Do nothing: the connection to the host belongs to who opened it."""
