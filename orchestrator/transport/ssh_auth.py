"""Logging in: which keys are tried, in OpenSSH's order, and why none of them was good enough.

No password or passphrase is ever asked for or read; encrypted keys come from an ssh-agent.
"""

from __future__ import annotations

import base64
import contextlib
import shlex
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import paramiko
from paramiko.agent import AgentKey, AgentSSH
from paramiko.message import Message
from paramiko.pkey import UnknownKeyType

from orchestrator.errors import TransientError, UnreachableError
from orchestrator.transport.ssh_dial import Deadline
from orchestrator.transport.ssh_resolve import SshSettings

_OPENSSH_KEY = b"openssh-key-v1\0"
_OPENSSH_ONLY = frozenset({"gssapi-with-mic", "gssapi-keyex", "hostbased"})
_MAX_NAMED = 6  # keys in one message


@dataclass
class _Tried:
    """What happened so far, for the message when nothing helps."""

    keys: list[str] = field(default_factory=list)  # refused by the server
    notes: list[str] = field(default_factory=list)  # could not be tried
    encrypted: Path | None = None
    methods: list[str] = field(default_factory=list)  # that the server takes
    key_in_hand: str = ""


class _Agent(AgentSSH):
    """An ssh-agent behind a given socket (Paramiko's own looks at SSH_AUTH_SOCK only)."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(timeout)
        try:
            self._socket.connect(path)
            self._connect(self._socket)  # type: ignore[attr-defined]
        except (OSError, paramiko.SSHException):
            self._socket.close()
            raise

    def close(self) -> None:
        """End the talk with the agent."""
        self._close()  # type: ignore[attr-defined]


def log_in(transport: paramiko.Transport, settings: SshSettings, deadline: Deadline) -> None:
    """Authenticate ``transport``. Raises UnreachableError naming what was tried."""
    tried = _Tried()
    with contextlib.closing(_Keys(settings, deadline, tried)) as keys:
        for label, key in keys:
            transport.auth_timeout = deadline.left()
            tried.key_in_hand = label
            try:
                if not transport.auth_publickey(settings.user, key):
                    return
                tried.notes.append(f"{label} was accepted, but the server wants a further step")
            except paramiko.BadAuthenticationType as error:
                tried.methods = list(error.allowed_types)
                break
            except (paramiko.SSHException, EOFError, OSError) as error:
                if not transport.is_active() or deadline.over():
                    raise _cut_short(settings, deadline, tried, error) from error
                tried.keys.append(label)
    # As ssh does first; here last, because it costs a round trip and is seldom the way in.
    try:
        transport.auth_timeout = deadline.left()
        if not transport.auth_none(settings.user):
            return
    except paramiko.BadAuthenticationType as error:
        tried.methods = list(error.allowed_types)
    except (paramiko.SSHException, EOFError, OSError) as error:
        if not transport.is_active() or deadline.over():
            raise _cut_short(settings, deadline, tried, error) from error
    raise _refused(settings, tried)


class _Keys:
    """The keys to try: those of the agent that the configuration names, the agent's others, then
    the files."""

    def __init__(self, settings: SshSettings, deadline: Deadline, tried: _Tried) -> None:
        self._settings = settings
        self._tried = tried
        self._agent: _Agent | None = None
        if settings.agent_socket:
            try:
                self._agent = _Agent(settings.agent_socket, deadline.left())
            except (OSError, paramiko.SSHException) as error:
                tried.notes.append(f"the ssh-agent at {settings.agent_socket} fails ({error})")

    def __iter__(self) -> Iterator[tuple[str, paramiko.PKey]]:
        files = [path for path in self._settings.identity_files if path.exists()]
        for path in self._settings.identity_files[:1]:
            if not path.exists() and len(self._settings.identity_files) == 1:
                self._tried.notes.append(f"{path} does not exist")
        blobs = {blob: path for path in files if (blob := public_blob(path))}
        offered = set()
        agent_keys = list(self._agent.get_keys()) if self._agent else []
        agent_keys.sort(key=lambda key: key.blob not in blobs)
        for key in agent_keys:
            if self._settings.identities_only and key.blob not in blobs:
                continue
            offered.add(key.blob)
            yield self._agent_label(key, blobs.get(key.blob)), key
        for path in files:
            blob = public_blob(path)
            if blob not in offered:
                yield from self._from_file(path, blob)

    def close(self) -> None:
        """End the talk with the agent."""
        if self._agent:
            self._agent.close()

    @staticmethod
    def _agent_label(key: AgentKey, path: Path | None) -> str:
        return f"agent key {path or key.comment or key.get_name()}"

    def _from_file(self, path: Path, blob: bytes | None) -> Iterator[tuple[str, paramiko.PKey]]:
        if blob and Message(blob).get_text().startswith("sk-"):
            self._tried.notes.append(
                f"{path} needs a security key, which only transport: openssh can use"
            )
            return
        if path.suffix == ".pub":
            self._tried.notes.append(f"{path} is the public half, and the agent has not the other")
            return
        if _is_encrypted(path):
            self._tried.notes.append(f"{path} is encrypted and not in an ssh-agent")
            self._tried.encrypted = self._tried.encrypted or path
            return
        try:
            key = paramiko.PKey.from_path(path)
        except (OSError, ValueError, paramiko.SSHException, UnknownKeyType) as error:
            reason = getattr(error, "strerror", None) or "no key that transport ssh can read"
            self._tried.notes.append(f"{path}: {reason}")
            return
        plain = f"key {path}"
        for certificate in self._settings.certificate_files:
            with contextlib.suppress(OSError, ValueError, paramiko.SSHException):
                if _certifies(certificate, key):
                    key.load_certificate(str(certificate))
                    yield f"certificate {certificate}", key
        if key.public_blob is not None:
            yield f"certificate {path}-cert.pub", key
            key.public_blob = None
        yield plain, key


def public_blob(path: Path) -> bytes | None:
    """Return the public half of the key in ``path`` without its passphrase; None when unknown."""
    public = path if path.suffix == ".pub" else path.with_name(path.name + ".pub")
    with contextlib.suppress(OSError, ValueError, IndexError):
        return base64.b64decode(public.read_text().split()[1], validate=True)
    header = _openssh_header(path)
    return header[1] if header else None


def _is_encrypted(path: Path) -> bool:
    header = _openssh_header(path)
    if header:
        return header[0] != "none"
    with contextlib.suppress(OSError, ValueError):
        return "ENCRYPTED" in path.read_text()  # the older formats say it in words
    return False


def _openssh_header(path: Path) -> tuple[str, bytes] | None:
    """Return cipher and public half of a private key in OpenSSH's own format, else None."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        lines = path.read_text().split("-----")
        if "OPENSSH PRIVATE KEY" in lines[1]:
            body = base64.b64decode("".join(lines[2].split()))
            if body.startswith(_OPENSSH_KEY):
                message = Message(body[len(_OPENSSH_KEY) :])
                cipher = message.get_text()
                message.get_string()  # key derivation
                message.get_string()  # its options
                message.get_int()  # number of keys
                return cipher, message.get_string()
    return None


def _certifies(path: Path, key: paramiko.PKey) -> bool:
    """Return whether the certificate in ``path`` is one for ``key``."""
    blob = base64.b64decode(path.read_text().split()[1], validate=True)
    # The certified key's numbers lie in the certificate as they lie in the key.
    numbers = key.asbytes()[4 + len(key.get_name()) :]
    return numbers in blob


def _cut_short(
    settings: SshSettings, deadline: Deadline, tried: _Tried, error: Exception
) -> UnreachableError:
    if deadline.over():
        return TransientError(
            f"the login did not finish within {deadline.seconds:g} s (at {tried.key_in_hand})",
            where=settings.name,
            hint="raise connect_timeout, or see what the server's login waits for",
        )
    if "too many authentication failures" in str(error).lower() or len(tried.keys) >= 3:
        return UnreachableError(
            f"the server hung up after {len(tried.keys) + 1} keys that it does not accept",
            where=settings.name,
            hint="name the right one with identity_file and set options: {IdentitiesOnly: yes}",
        )
    return TransientError(
        f"the server hung up during the login with {tried.key_in_hand} ({error})",
        where=settings.name,
        hint="look at the server's authentication log, or try: "
        f"ssh {shlex.quote(settings.user)}@{settings.name}",
    )


def _refused(settings: SshSettings, tried: _Tried) -> UnreachableError:
    parts = []
    if tried.keys:
        more = len(tried.keys) - _MAX_NAMED
        named = ", ".join(tried.keys[:_MAX_NAMED]) + (f" and {more} more" if more > 0 else "")
        parts.append(f"refused: {named}")
    if not tried.keys and not tried.notes:
        parts.append("there is no key and no ssh-agent")
    parts += tried.notes[:_MAX_NAMED]
    if tried.methods and "publickey" not in tried.methods:
        parts.append(f"the server takes no keys, only {', '.join(tried.methods)}")
    if tried.encrypted:
        hint = f"unlock the key for this login session with: ssh-add {tried.encrypted}"
    elif tried.methods and "publickey" not in tried.methods:
        others = _OPENSSH_ONLY.intersection(tried.methods)
        hint = (
            "set transport: openssh" if others else "allow PubkeyAuthentication in its sshd_config"
        )
    else:
        port = f"-p {settings.port} " if settings.port != 22 else ""
        hint = f"install a key with: ssh-copy-id {port}{settings.user}@{settings.hostname}"
    return UnreachableError(
        f"user {settings.user} cannot log in ({'; '.join(parts)})", where=settings.name, hint=hint
    )
