"""One SSH session on a stream: algorithms, host key, login. Every failure has its own words."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterable, Sequence

import paramiko
from paramiko.ssh_exception import IncompatiblePeer

from orchestrator.errors import TransientError, UnreachableError
from orchestrator.transport import known_hosts
from orchestrator.transport.known_hosts import KnownHosts, Verdict
from orchestrator.transport.ssh_auth import log_in
from orchestrator.transport.ssh_dial import Deadline, Stream, Tap
from orchestrator.transport.ssh_resolve import SshSettings

_KEEPALIVE = 15  # seconds
_HOST_KEY_ALGORITHMS = {"ssh-rsa": ("rsa-sha2-512", "rsa-sha2-256")}
# Names that mean the same algorithm, of which Paramiko knows one.
_ALIASES = {
    "curve25519-sha256": "curve25519-sha256@libssh.org",
    "curve25519-sha256@libssh.org": "curve25519-sha256",
}
# What sshd says to a connection that it drops for the number of others.
_DROPPED = (b"Exceeded MaxStartups", b"Not allowed at this time")

# Paramiko logs what it also raises; without a handler Python would print it.
logging.getLogger("paramiko").addHandler(logging.NullHandler())


class DroppedError(Exception):
    """The server closed the connection before it said anything: too many at once; try again."""


def start(stream: Stream, settings: SshSettings, deadline: Deadline) -> paramiko.Transport:
    """Return an authenticated session on ``stream``, which is closed on failure.

    Raises UnreachableError, or DroppedError when another try may succeed.
    """
    tap = Tap(stream)
    transport = paramiko.Transport(tap)  # type: ignore[arg-type]  # anything like a socket
    try:
        names = settings.known_as
        known = KnownHosts([*settings.user_known_hosts, *settings.global_known_hosts])
        _choose_algorithms(transport, settings, known.key_types(names))
        _negotiate(transport, tap, settings, deadline)
        _check_host_key(transport.get_remote_server_key(), settings, known)
        log_in(transport, settings, deadline)
    except BaseException:
        transport.close()
        tap.close()
        raise
    transport.set_keepalive(_KEEPALIVE)
    return transport


def _choose_algorithms(
    transport: paramiko.Transport, settings: SshSettings, known_types: Iterable[str]
) -> None:
    options = transport.get_security_options()
    options.ciphers = _common("Ciphers", settings.ciphers, options.ciphers, settings)
    options.digests = _common("MACs", settings.macs, options.digests, settings)
    options.kex = _common("KexAlgorithms", settings.kex, options.kex, settings)
    keys = _common("HostKeyAlgorithms", settings.host_key_types, options.key_types, settings)
    # A host of which one type is known must show that one; another would look like a changed key.
    first = [
        name
        for known in known_types
        for name in _HOST_KEY_ALGORITHMS.get(known, (known,))
        if name in keys
    ]
    options.key_types = tuple(dict.fromkeys([*first, *keys]))
    if settings.pubkey_types:
        refused = [
            name for name in transport.preferred_pubkeys if name not in settings.pubkey_types
        ]
        transport.disabled_algorithms = {"pubkeys": refused}
    if settings.compression:
        transport.use_compression(True)


def _common(
    option: str, wanted: Sequence[str], ours: Sequence[str], settings: SshSettings
) -> tuple[str, ...]:
    """Return what of ``wanted`` the library has, in the wanted order; all when nothing is said."""
    if not wanted:
        return tuple(ours)
    named = [name if name in ours else _ALIASES.get(name, name) for name in wanted]
    common = tuple(dict.fromkeys(name for name in named if name in ours))
    if not common:
        raise UnreachableError(
            f"the SSH configuration allows only {option} that transport ssh has not got"
            f" ({', '.join(wanted[:4])})",
            where=settings.name,
            hint="set transport: openssh for this host",
        )
    return common


def _negotiate(
    transport: paramiko.Transport, tap: Tap, settings: SshSettings, deadline: Deadline
) -> None:
    transport.banner_timeout = transport.handshake_timeout = deadline.left()
    done = threading.Event()
    transport.start_client(event=done)
    finished = done.wait(deadline.left())
    if finished and transport.is_active():
        return
    place = f"{settings.hostname} port {settings.port}"
    error = transport.get_exception()
    spoke_ssh = tap.head.startswith(b"SSH-") or b"\nSSH-" in tap.head
    if not finished or deadline.over():
        said = "did not finish the SSH handshake" if spoke_ssh else "does not answer as SSH"
        raise TransientError(
            f"{place} takes connections but {said} within {deadline.seconds:g} s",
            where=settings.name,
            hint="is it the SSH port? a loaded machine may need a longer connect_timeout",
        )
    if not tap.head or tap.head.startswith(_DROPPED):
        raise DroppedError(tap.head.decode("utf-8", "replace").strip())
    if not spoke_ssh:
        words = tap.head.splitlines()[0][:60].decode("utf-8", "replace")
        raise UnreachableError(
            f"{place} does not speak SSH (it says {words!r})",
            where=settings.name,
            hint="correct the port",
        )
    if isinstance(error, IncompatiblePeer):
        raise UnreachableError(
            f"no algorithm in common with {place}: {error}",
            where=settings.name,
            hint="set transport: openssh for this host, or widen its algorithms in ~/.ssh/config",
        )
    raise UnreachableError(
        f"the SSH handshake with {place} failed: {error or 'the server hung up'}",
        where=settings.name,
        hint=f"try: ssh -v {settings.name}",
    )


def _check_host_key(key: paramiko.PKey, settings: SshSettings, known: KnownHosts) -> None:
    """Accept the server's key by the rules of known_hosts, or raise UnreachableError."""
    name = settings.known_as
    verdict, entry = known.check(name, key.asbytes())
    if verdict is Verdict.KNOWN:
        return
    # As ssh does: an entry without the port also vouches for the host.
    portless = settings.hostname.lower()
    if (
        verdict is Verdict.UNKNOWN
        and not settings.host_key_alias
        and known.check(portless, key.asbytes())[0] is Verdict.KNOWN
    ):
        return
    shown = f"{key.get_name()} {key.fingerprint}"
    if verdict is Verdict.REVOKED:
        raise UnreachableError(
            f"the host key of {name} ({shown}) is revoked by {entry.place if entry else '?'}",
            where=settings.name,
            hint="do not connect; ask who runs the host",
        )
    if verdict is Verdict.CHANGED and entry:
        raise UnreachableError(
            f"the host key of {name} has changed to {shown}; {entry.place} holds another,"
            " so this may be another machine",
            where=settings.name,
            hint=f"if the change is right: ssh-keygen -R '{name}' -f {entry.path}",
        )
    if verdict is Verdict.CERTIFIED and entry:
        raise UnreachableError(
            f"the host key of {name} is vouched for by a certificate authority ({entry.place}),"
            " which transport ssh cannot check",
            where=settings.name,
            hint="set transport: openssh for this host",
        )
    if settings.strict_host_keys:
        raise UnreachableError(
            f"the host key of {name} ({shown}) is unknown and host_keys is strict",
            where=settings.name,
            hint=f"compare it on the host and accept it once with: ssh {settings.name}",
        )
    if settings.user_known_hosts:
        path = settings.user_known_hosts[0]
        # As with ssh, a file that cannot be written does not keep us out.
        with contextlib.suppress(OSError):
            known_hosts.append(
                path, name, key.get_name(), key.asbytes(), hashed=settings.hash_known_hosts
            )
