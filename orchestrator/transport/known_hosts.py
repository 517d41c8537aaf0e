"""Known host keys, by OpenSSH's rules.

An own reader, because Paramiko's stops at ``@cert-authority`` and ``@revoked`` lines, has no
patterns and does not tell the line that a message has to name. A key is *known* when an entry for
the host holds it, *changed* when entries for the host hold only others (of whatever type),
*unknown* when there is none. See sshd(8), "SSH_KNOWN_HOSTS FILE FORMAT".
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import fnmatch
import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

_MARKERS = ("@revoked", "@cert-authority")


class Verdict(Enum):
    """What the files say about a key that a host showed."""

    KNOWN = "known"
    UNKNOWN = "unknown"
    CHANGED = "changed"
    REVOKED = "revoked"
    CERTIFIED = "certified"  # only a certificate authority is named for the host


@dataclass(frozen=True)
class Entry:
    """One line of a known_hosts file."""

    path: Path
    line: int
    marker: str  # "", "@revoked" or "@cert-authority"
    hosts: str
    key_type: str
    key: bytes

    @property
    def place(self) -> str:
        """``path:line``."""
        return f"{self.path}:{self.line}"

    def matches(self, name: str) -> bool:
        """Return whether the entry is for ``name`` (``host`` or ``[host]:port``)."""
        if self.hosts.startswith("|1|"):
            return _hash_matches(self.hosts, name)
        found = False
        for pattern in self.hosts.split(","):
            # Brackets are part of "[host]:port" here, not a character class.
            wanted = re.sub(r"\[", "[[]", pattern.lstrip("!").lower())
            if fnmatch.fnmatchcase(name, wanted):
                if pattern.startswith("!"):
                    return False
                found = True
        return found


class KnownHosts:
    """The entries of several files, the first file first."""

    def __init__(self, paths: Iterable[Path]) -> None:
        """Read ``paths``; those that are missing or unreadable hold nothing."""
        self._entries = [entry for path in paths for entry in _read(path)]

    def key_types(self, name: str) -> list[str]:
        """Return the types of the keys known for ``name``, in the order of the files."""
        return list(dict.fromkeys(entry.key_type for entry in self._plain(name)))

    def check(self, name: str, key: bytes) -> tuple[Verdict, Entry | None]:
        """Return what is known about ``key`` (the public blob) of ``name``, and by which line."""
        for entry in self._entries:
            if entry.marker == "@revoked" and entry.key == key and entry.matches(name):
                return Verdict.REVOKED, entry
        plain = self._plain(name)
        for entry in plain:
            if entry.key == key:
                return Verdict.KNOWN, entry
        if plain:
            return Verdict.CHANGED, plain[0]
        for entry in self._entries:
            if entry.marker == "@cert-authority" and entry.matches(name):
                return Verdict.CERTIFIED, entry
        return Verdict.UNKNOWN, None

    def _plain(self, name: str) -> Sequence[Entry]:
        return [entry for entry in self._entries if not entry.marker and entry.matches(name)]


def append(path: Path, name: str, key_type: str, key: bytes, *, hashed: bool) -> None:
    """Add a key to ``path`` unless another process just did. Raises OSError."""
    if path.exists() and not path.is_file():
        return  # /dev/null: the user wants nothing remembered
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        content = file.read()
        if KnownHosts([path]).check(name, key)[0] is not Verdict.UNKNOWN:
            return
        hosts = _hash(name) if hashed else name
        line = f"{hosts} {key_type} {base64.b64encode(key).decode()}\n".encode()
        if content and not content.endswith(b"\n"):
            line = b"\n" + line
        # One write: whoever reads meanwhile sees the line whole or not at all.
        os.write(file.fileno(), line)


def _read(path: Path) -> list[Entry]:
    entries = []
    with contextlib.suppress(OSError):
        text = path.read_bytes().decode("utf-8", "replace")
        for number, line in enumerate(text.split("\n"), 1):
            entry = _parse(path, number, line)
            if entry:
                entries.append(entry)
    return entries


def _parse(path: Path, number: int, line: str) -> Entry | None:
    """Return the entry of ``line``; None for comments and what OpenSSH skips as well."""
    fields = line.split()
    if not fields or fields[0].startswith("#"):
        return None
    marker = ""
    if fields[0].startswith("@"):
        marker = fields.pop(0)
        if marker not in _MARKERS:
            return None
    if len(fields) < 3:
        return None
    with contextlib.suppress(ValueError):
        key = base64.b64decode(fields[2], validate=True)
        return Entry(path, number, marker, fields[0], fields[1], key)
    return None


def _hash(name: str, salt: bytes | None = None) -> str:
    salt = salt or secrets.token_bytes(20)
    digest = hmac.new(salt, name.encode(), hashlib.sha1).digest()
    return f"|1|{base64.b64encode(salt).decode()}|{base64.b64encode(digest).decode()}"


def _hash_matches(hashed: str, name: str) -> bool:
    parts = hashed.split("|")
    if len(parts) != 4:
        return False
    with contextlib.suppress(ValueError):
        return hmac.compare_digest(_hash(name, base64.b64decode(parts[2])), hashed)
    return False
