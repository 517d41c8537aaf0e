"""Read a text file of a foreign tree: whatever is wrong with it is said with a place, soon."""

from __future__ import annotations

import stat
from pathlib import Path

from orchestrator.author.check.finding import At
from orchestrator.errors import TreeError
from orchestrator.suites.mcoplib import read_text

# Far above any config or runner, far below what would take long to parse.
LARGEST = 2 << 20


class UnreadableError(Exception):
    """Why a file cannot be read or parsed: a place, one sentence, what to do."""

    def __init__(self, at: At, message: str, hint: str | None) -> None:
        super().__init__(message)
        self.at = at
        self.message = message
        self.hint = hint or "fix it"

    @classmethod
    def of(cls, error: TreeError, shown: str) -> UnreadableError:
        """What another reader said of the file ``shown``; its line is the end of ``where``."""
        line = (error.where or "").rpartition(":")[2]
        return cls(At(shown, int(line) if line.isdigit() else 1), error.message, error.hint)


def out_of_place(path: Path, tree: Path) -> str | None:
    """Why writing to ``path`` would not write a file of ``tree``; None where it would.

    A link within the tree is fine, as is what is not there yet.
    """
    try:
        real = path.resolve()
        real.relative_to(tree.resolve())
        status = path.stat()
    except FileNotFoundError:
        return "is a symbolic link to nothing" if path.is_symlink() else None
    except ValueError:
        return "leads out of the tree by a symbolic link, to a file that is not the tree's"
    except (OSError, RuntimeError) as error:  # a loop of links, a file where a folder should be
        return f"cannot be written: {getattr(error, 'strerror', None) or error}"
    return None if stat.S_ISREG(status.st_mode) else "is no regular file"


def read(path: Path, shown: str) -> str:
    """The text of a regular file of at most ``LARGEST`` bytes; ``shown`` is its path as told."""
    at = At(shown)
    try:
        status = path.stat()
    except FileNotFoundError:
        message = "is a symbolic link to nothing" if path.is_symlink() else "the file is missing"
        raise UnreadableError(at, message, "write or restore it") from None
    except OSError as error:  # a loop of links, a folder that may not be entered
        raise UnreadableError(
            at, f"cannot be read: {error.strerror}", "look at it with ls -l"
        ) from None
    if not stat.S_ISREG(status.st_mode):
        kind = "a folder" if stat.S_ISDIR(status.st_mode) else "no regular file"
        raise UnreadableError(at, f"is {kind}", "put the file itself there")
    if status.st_size > LARGEST:
        raise UnreadableError(
            at,
            f"has {status.st_size} bytes, more than the {LARGEST} that are read",
            "keep data out of it",
        )
    try:
        return read_text(path)
    except TreeError as error:
        raise UnreadableError.of(error, shown) from None
