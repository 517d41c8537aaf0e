"""Files that ``mxfleet gen`` writes: all of them or none, and only into the tree itself.

Whoever writes into a tree holds its lock, so that what is added to the whitelist is added to the
whitelist as it is then.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from orchestrator.author.check.reading import out_of_place
from orchestrator.errors import MxfleetError, TreeError, UsageError
from orchestrator.results.files import locked, read_bytes, replace

# Its lock file is `.mxfleet.lock`: what is called so is neither pushed nor committed.
_LOCKED = "mxfleet"
_INTERRUPTING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def lock_tree(tree: Path) -> AbstractContextManager[None]:
    """Hold the lock of all that generates into ``tree``; waits for other holders."""
    return locked(tree / _LOCKED)


def refuse_overwriting(tree: Path, paths: Iterable[Path]) -> None:
    """Raise ``UsageError`` where there already is one of ``paths``, be it a link to nothing."""
    there = [path for path in paths if os.path.lexists(path)]
    if there:
        names = ", ".join(str(path.relative_to(tree)) for path in there)
        raise UsageError(
            f"there already is {names}",
            where=str(tree),
            hint="see what would change with --dry-run, replace it with --force",
        )


def refuse_out_of_place(tree: Path, paths: Iterable[Path]) -> None:
    """Raise ``TreeError`` where writing would change something else than a file of ``tree``."""
    for path in paths:
        why = out_of_place(path, tree)
        if why is not None:
            raise TreeError(why, where=str(path), hint="put a file of the tree's own there")


def write_all(files: Mapping[Path, str], tree: Path) -> None:
    """Write all of ``files``, which lie in ``tree``, or none; call it under ``lock_tree``.

    Whatever ends it early, an interrupt too, what was there before is there again. Raises
    ``TreeError`` where a file cannot be written, or put back.
    """
    refuse_out_of_place(tree, files)
    contents = {path: _encoded(path, text) for path, text in files.items()}
    former: dict[Path, bytes | None] = {}
    made: list[Path] = []
    at = tree
    try:
        for at, data in contents.items():
            # Noted before it is changed: an interrupt may come between any two steps.
            former[at] = read_bytes(at)
            _make_folder(at.parent, made)
            replace(at, data)
    except BaseException as error:
        with _uninterrupted():
            _put_back(former, made, error)
        if isinstance(error, OSError):
            reason = error.strerror or str(error)
            raise TreeError(
                f"cannot be written: {reason}", where=str(error.filename or at)
            ) from None
        raise


def _encoded(path: Path, text: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        where, bad = str(path), ascii(text[error.start])
        raise UsageError(
            f"{bad} is no text that UTF-8 can hold", where=where, hint="spell names in UTF-8"
        ) from None


def _make_folder(folder: Path, made: list[Path]) -> None:
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    for one in reversed(missing):
        made.append(one)
        one.mkdir(exist_ok=True)


def _put_back(
    former: Mapping[Path, bytes | None], made: Iterable[Path], error: BaseException
) -> None:
    """Make every file what it was; what is new goes first, since it may be what filled the disk."""
    lost = []
    for path, kept in sorted(former.items(), key=lambda pair: pair[1] is not None):
        try:
            if kept is None:
                path.unlink(missing_ok=True)
            elif read_bytes(path) != kept:
                replace(path, kept)
        except NotADirectoryError:
            pass
        except (MxfleetError, OSError):
            lost.append(str(path))
    for folder in reversed(list(made)):
        with suppress(OSError):  # not empty: somebody else's by now
            folder.rmdir()
    if lost:
        raise TreeError(
            f"cannot be put back as it was, after: {error or type(error).__name__}",
            where=", ".join(lost),
            hint="make room there and restore it from version control",
        ) from error


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Signals that end the command wait until the block is left.

    By handlers, not a mask: another thread's would let them through. Only the main thread hears.
    """
    heard: list[int] = []
    former = {}
    if threading.current_thread() is threading.main_thread():
        for number in _INTERRUPTING:
            if signal.getsignal(number) not in (None, signal.SIG_IGN):
                former[number] = signal.signal(number, lambda got, _: heard.append(got))
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
        for got in dict.fromkeys(heard):
            signal.raise_signal(got)
