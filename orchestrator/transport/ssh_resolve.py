"""What the SSH configuration says about a host, as ``ssh -G`` resolves it.

OpenSSH itself reads its configuration (Match, Include, tokens, canonical names), so there is no
second set of rules here: only its answer is parsed, and what this transport cannot honour is
refused by name instead of being ignored.
"""

from __future__ import annotations

import getpass
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import UnreachableError
from orchestrator.transport.endpoint import Endpoint

_RESOLVE_TIMEOUT = 15.0  # seconds; "Match exec" and canonical names may take a while
_DEFAULT_KEYS = ("id_rsa", "id_ecdsa", "id_ecdsa_sk", "id_ed25519", "id_ed25519_sk")
_OPENSSH = "set transport: openssh for this host"

# Options that change how a host is reached and that Paramiko has no way to honour:
# (key as ssh -G prints it, values that mean "off", the name people know it by).
_BEYOND: tuple[tuple[str, frozenset[str], str], ...] = (
    ("proxyusefdpass", frozenset({"no"}), "ProxyUseFdpass"),
    ("pkcs11provider", frozenset({"none"}), "PKCS11Provider"),
    ("knownhostscommand", frozenset({"none"}), "KnownHostsCommand"),
    ("revokedhostkeys", frozenset({"none"}), "RevokedHostKeys"),
    ("bindinterface", frozenset({"none"}), "BindInterface"),
)

Answers = Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class SshSettings:
    """The resolved way to one host. Paths are absolute; empty algorithm lists mean the library's
    own."""

    name: str  # as the inventory has it
    hostname: str
    port: int
    user: str
    identity_files: tuple[Path, ...]
    certificate_files: tuple[Path, ...]
    identities_only: bool
    agent_socket: str | None
    proxy_command: str | None
    proxy_jump: tuple[str, ...]
    host_key_alias: str | None
    user_known_hosts: tuple[Path, ...]
    global_known_hosts: tuple[Path, ...]
    hash_known_hosts: bool
    strict_host_keys: bool
    family: socket.AddressFamily
    bind_address: str | None
    compression: bool
    set_env: tuple[tuple[str, str], ...]
    ciphers: tuple[str, ...]
    macs: tuple[str, ...]
    kex: tuple[str, ...]
    host_key_types: tuple[str, ...]
    pubkey_types: tuple[str, ...]

    @property
    def known_as(self) -> str:
        """The name under which the host key is kept in known_hosts."""
        if self.host_key_alias:
            return self.host_key_alias
        name = self.hostname.lower()
        return name if self.port == 22 else f"[{name}]:{self.port}"


def ssh_arguments(endpoint: Endpoint) -> list[str]:
    """Return what of ``endpoint`` is said to the ssh command, without the host's name.

    Raises UnreachableError when the identity file is missing.
    """
    arguments: list[str] = []
    if endpoint.ssh_config is not None:
        arguments += ["-F", str(endpoint.ssh_config.expanduser())]
    if endpoint.port is not None:
        arguments += ["-p", str(endpoint.port)]
    if endpoint.user is not None:
        arguments += ["-l", endpoint.user]
    if endpoint.identity_file is not None:
        identity = endpoint.identity_file.expanduser()
        if not identity.exists():  # ssh only warns and goes on with whatever else there is
            raise UnreachableError(
                f"the identity_file {identity} does not exist",
                where=endpoint.name,
                hint="correct it in the inventory, or leave it out to use the SSH configuration",
            )
        arguments += ["-i", str(identity)]
    if endpoint.address is not None:
        arguments += ["-o", "HostName=" + endpoint.address.replace("%", "%%")]
    for key, value in endpoint.options.items():
        arguments += ["-o", f"{key}={value}"]
    return arguments


def resolve(endpoint: Endpoint) -> SshSettings:
    """Return the settings for ``endpoint``.

    Raises UnreachableError when the configuration is wrong or asks for what this transport cannot
    do, naming the option and the way out.
    """
    answers = ask(endpoint)
    _refuse_what_is_beyond(endpoint, answers)
    return _settings(endpoint, answers)


def ask(endpoint: Endpoint) -> Answers:
    """Return what ``ssh -G`` prints for ``endpoint``: lower-case key to its values, in order.

    Raises UnreachableError when the configuration is wrong.
    """
    command = shutil.which("ssh")
    if command is None:
        return _without_ssh(endpoint)
    arguments = [command, "-G", *ssh_arguments(endpoint), "--", endpoint.name]
    try:
        done = subprocess.run(
            arguments,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_RESOLVE_TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise UnreachableError(
            f"ssh -G took longer than {_RESOLVE_TIMEOUT:.0f} s to read the SSH configuration",
            where=endpoint.name,
            hint="look at its Match exec and CanonicalizeHostname lines",
        ) from error
    if done.returncode:
        raise _bad_configuration(endpoint, done.stderr.decode("utf-8", "replace"))
    answers: dict[str, list[str]] = {}
    for line in done.stdout.decode("utf-8", "surrogateescape").splitlines():
        key, _, value = line.partition(" ")
        if key:
            answers.setdefault(key.lower(), []).append(value.strip())
    return answers


def _without_ssh(endpoint: Endpoint) -> Answers:
    """Return OpenSSH's defaults where there is no ssh command and nothing needs it."""
    needs = (
        [str(endpoint.ssh_config)] * (endpoint.ssh_config is not None)
        + ["options"] * bool(endpoint.options)
        + ["~/.ssh/config"] * Path("~/.ssh/config").expanduser().is_file()
    )
    if needs:
        raise UnreachableError(
            f"there is no ssh command to read {needs[0]} with",
            where=endpoint.name,
            hint="install the OpenSSH client (openssh-client)",
        )
    identity = [str(endpoint.identity_file)] if endpoint.identity_file else []
    return {
        "hostname": [endpoint.address or endpoint.name],
        "port": [str(endpoint.port or 22)],
        "user": [endpoint.user or getpass.getuser()],
        "identityfile": [*identity, *(f"~/.ssh/{name}" for name in _DEFAULT_KEYS)],
        "userknownhostsfile": ["~/.ssh/known_hosts ~/.ssh/known_hosts2"],
        "globalknownhostsfile": ["/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2"],
    }


def _bad_configuration(endpoint: Endpoint, stderr: str) -> UnreachableError:
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    said = lines[0] if lines else "no reason given"
    place = re.match(r"(?P<path>.+?):? line (?P<line>\d+): (?P<what>.*)", said)
    if place:
        return UnreachableError(
            f"the SSH configuration is wrong: {place['what']}",
            where=f"{place['path']}:{place['line']}",
            hint=f"correct it; host {endpoint.name} needs it",
        )
    return UnreachableError(
        f"ssh cannot read its configuration: {said}",
        where=endpoint.name,
        hint=f"try: ssh -G {endpoint.name}",
    )


def _refuse_what_is_beyond(endpoint: Endpoint, answers: Answers) -> None:
    for key, off, name in _BEYOND:
        value = _first(answers, key)
        if value is not None and value.lower() not in off:
            raise UnreachableError(
                f"the SSH configuration sets {name} ({value}), which transport ssh cannot honour",
                where=endpoint.name,
                hint=_OPENSSH,
            )
    local = _first(answers, "localcommand")
    if _yes(answers, "permitlocalcommand") and local not in (None, "none"):
        raise UnreachableError(
            f"the SSH configuration sets LocalCommand ({local}), which transport ssh cannot honour",
            where=endpoint.name,
            hint=_OPENSSH,
        )
    refuse_remote_command(endpoint, answers)


def refuse_remote_command(endpoint: Endpoint, answers: Answers) -> None:
    """Raise UnreachableError when the configuration leaves no room for a command of ours."""
    remote = _first(answers, "remotecommand")
    if remote not in (None, "none"):
        raise UnreachableError(
            f"the SSH configuration sets RemoteCommand ({remote}), so that no other command runs",
            where=endpoint.name,
            hint="set options: {RemoteCommand: none} for this host, or name an alias without it",
        )


def _settings(endpoint: Endpoint, answers: Answers) -> SshSettings:
    hostname = _first(answers, "hostname") or endpoint.name
    port = int(_first(answers, "port") or 22)
    user = _first(answers, "user") or getpass.getuser()
    tokens = {
        "%": "%",
        "h": hostname,
        "n": endpoint.name,
        "p": str(port),
        "r": user,
        "u": getpass.getuser(),
        "d": str(Path.home()),
        "L": socket.gethostname().split(".")[0],
        "l": socket.gethostname(),
        "i": str(os.getuid()),
        "k": _first(answers, "hostkeyalias") or endpoint.name,
    }
    command = _first(answers, "proxycommand")
    jump = _first(answers, "proxyjump")
    family = (_first(answers, "addressfamily") or "any").lower()
    return SshSettings(
        name=endpoint.name,
        hostname=hostname,
        port=port,
        user=user,
        identity_files=_files(answers, "identityfile", tokens),
        certificate_files=_files(answers, "certificatefile", tokens),
        identities_only=_yes(answers, "identitiesonly"),
        agent_socket=_agent(_first(answers, "identityagent"), tokens),
        proxy_command=None if command in (None, "none") else _expand(command or "", tokens),
        proxy_jump=() if jump in (None, "none") else tuple((jump or "").split(",")),
        host_key_alias=_first(answers, "hostkeyalias"),
        user_known_hosts=_known_hosts(answers, "userknownhostsfile", tokens),
        global_known_hosts=_known_hosts(answers, "globalknownhostsfile", tokens),
        hash_known_hosts=_yes(answers, "hashknownhosts"),
        strict_host_keys=is_strict(endpoint, answers),
        family={"inet": socket.AF_INET, "inet6": socket.AF_INET6}.get(family, socket.AF_UNSPEC),
        bind_address=_first(answers, "bindaddress"),
        compression=_yes(answers, "compression"),
        set_env=tuple(_pair(value) for value in answers.get("setenv", ())),
        ciphers=_algorithms(answers, "ciphers"),
        macs=_algorithms(answers, "macs"),
        kex=_algorithms(answers, "kexalgorithms"),
        host_key_types=_algorithms(answers, "hostkeyalgorithms"),
        pubkey_types=_algorithms(answers, "pubkeyacceptedalgorithms"),
    )


def is_strict(endpoint: Endpoint, answers: Answers) -> bool:
    """Return whether unknown host keys are refused: by the inventory or the SSH configuration."""
    return endpoint.host_keys == "strict" or _yes(answers, "stricthostkeychecking")


def _first(answers: Answers, key: str) -> str | None:
    values = answers.get(key)
    return values[0] if values else None


def _yes(answers: Answers, key: str) -> bool:
    return (_first(answers, key) or "no").lower() in ("yes", "true")


def _pair(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name, value


def _algorithms(answers: Answers, key: str) -> tuple[str, ...]:
    return tuple(name for name in (_first(answers, key) or "").split(",") if name)


def _expand(text: str, tokens: Mapping[str, str]) -> str:
    """Replace the tokens of ssh_config; unknown ones stay, so that a message shows them."""
    return re.sub(r"%(.)", lambda match: tokens.get(match[1], match[0]), text)


def _path(text: str, tokens: Mapping[str, str]) -> Path:
    return Path(_expand(text, tokens)).expanduser().absolute()


def _files(answers: Answers, key: str, tokens: Mapping[str, str]) -> tuple[Path, ...]:
    names = (name for name in answers.get(key, ()) if name and name != "none")
    return tuple(dict.fromkeys(_path(name, tokens) for name in names))


def _known_hosts(answers: Answers, key: str, tokens: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the files of one line. ssh -G prints them blank-separated and unquoted, so that a
    path with blanks is told from several paths only by what exists."""
    value = _first(answers, key) or ""
    if value == "none":
        return ()
    whole = _path(value, tokens)
    if " " in value and (whole.exists() or whole.parent.is_dir()):
        several = [_path(name, tokens) for name in value.split()]
        if not several[0].exists():
            return (whole,)
    return tuple(_path(name, tokens) for name in value.split())


def _agent(value: str | None, tokens: Mapping[str, str]) -> str | None:
    if value is None or value == "SSH_AUTH_SOCK":
        return os.environ.get("SSH_AUTH_SOCK")
    if value == "none":
        return None
    if value.startswith("$"):
        return os.environ.get(value[1:].strip("{}"))
    return str(_path(value, tokens))
