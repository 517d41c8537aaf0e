"""Host names out of an OpenSSH client configuration, for ``mxfleet init --from-ssh-config``.

Only names are taken: what they mean (address, user, port, jump hosts) ``ssh -G`` says at run time.
Patterns, negations and ``Match`` blocks name no host; ``Include`` is followed where it counts for
every host.
"""

from __future__ import annotations

import glob
import os
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import UsageError
from orchestrator.inventory.nodeset import MAX_NODES, fold
from orchestrator.inventory.values import HOST_NAME

DEFAULT = Path("~/.ssh/config")

_LINE = re.compile(r"\s*([A-Za-z][A-Za-z0-9]*)(?:\s*=\s*|\s+)(.*)")


@dataclass(frozen=True)
class SshHosts:
    """``ranges`` are keys for an inventory; ``left_out`` are aliases that cannot be host names."""

    path: Path
    names: tuple[str, ...]
    ranges: tuple[str, ...]
    left_out: tuple[str, ...] = ()


def read_ssh_hosts(path: Path | None = None) -> SshHosts:
    """The concrete host aliases of a configuration file (default ``~/.ssh/config``).

    Raises UsageError when the file cannot be read or names no host.
    """
    file = (path or DEFAULT).expanduser()
    reader = _Reader()
    try:
        reader.read(file)
    except OSError as error:
        raise UsageError(
            f"the SSH configuration cannot be read: {error.strerror}",
            where=str(file),
            hint="name another with --ssh-config FILE",
        ) from None
    names = [name for name in reader.aliases if HOST_NAME.fullmatch(name) and len(name) <= 253]
    left_out = [name for name in reader.aliases if name not in set(names)]
    if not names:
        raise UsageError(
            "the SSH configuration names no host",
            where=str(file),
            hint="it has only patterns, add `Host NAME` entries or write the inventory by hand",
        )
    if len(names) > MAX_NODES:
        raise UsageError(
            f"the SSH configuration names more than {MAX_NODES} hosts", where=str(file)
        )
    return SshHosts(file, tuple(names), tuple(fold(names)), tuple(left_out))


class _Reader:
    def __init__(self) -> None:
        self.aliases: dict[str, None] = {}  # ordered set
        self.files: set[Path] = set()  # a file gives its names once, also where Includes loop

    def read(self, path: Path) -> None:
        self.files.add(path.resolve())
        text = path.read_text(encoding="utf-8", errors="surrogateescape")
        for_all = True  # whether what follows counts for every host
        for line in text.splitlines():
            match = _LINE.fullmatch(line)
            if match is None or line.lstrip().startswith("#"):
                continue
            keyword, words = match.group(1).lower(), _words(match.group(2))
            if keyword == "host":
                refused = {word[1:] for word in words if word.startswith("!")}
                for word in words:
                    if not set("*?!") & set(word) and word not in refused:
                        self.aliases.setdefault(word)
                for_all = "*" in words and not refused
            elif keyword == "match":
                for_all = [word.lower() for word in words] == ["all"]
            elif keyword == "include" and for_all:
                for word in words:
                    self._include(word)

    def _include(self, pattern: str) -> None:
        expanded = os.path.expandvars(str(Path(pattern).expanduser()))
        absolute = Path("~/.ssh").expanduser() / expanded
        for name in sorted(glob.glob(str(absolute))):  # noqa: PTH207 - takes absolute patterns
            included = Path(name)
            # As ssh does: what an Include names and cannot be read is passed over.
            new = included.resolve() not in self.files
            if new and included.is_file() and os.access(included, os.R_OK):
                self.read(included)


def _words(text: str) -> list[str]:
    """Arguments of a line; quotes as in a shell, a comment ends them."""
    try:
        return shlex.split(text, comments=True)
    except ValueError:
        return []
