"""``mxfleet init``: lay out a working folder: inventory.yaml, its JSON Schema, benchmark/, env/.

Everything is written beside its place first and renamed into it, the inventory last: a folder
that has one is complete. What is replaced is kept beside the new file, as ``NAME.old``.
"""

from __future__ import annotations

import filecmp
import importlib.util
import os
import shutil
import sys
import tempfile
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from orchestrator.errors import UsageError
from orchestrator.inventory.find import FILE_NAME
from orchestrator.inventory.json_schema import FILE as SCHEMA
from orchestrator.workflows import bundled
from orchestrator.workflows.inventory_text import inventory_text


@dataclass(frozen=True)
class Initialised:
    """What ``init`` wrote, and the hosts it took over.

    ``written`` has folders that are new as a whole, and single files where a folder was there;
    ``kept`` has replaced files, each with the path where it lies now.
    """

    folder: Path
    written: tuple[Path, ...]
    kept: tuple[tuple[Path, Path], ...] = ()
    hosts: tuple[str, ...] = ()  # names and ranges taken from an SSH configuration
    left_out: tuple[str, ...] = ()  # its aliases that cannot be host names here


def init(
    folder: Path,
    *,
    from_ssh_config: Path | bool | None = None,
    force: bool = False,
) -> Initialised:
    """Lay out a working folder.

    ``from_ssh_config`` takes the host names of an OpenSSH configuration (True: ~/.ssh/config).
    Nothing is overwritten without ``force``; with it, files that differ from what mxfleet carries
    are replaced and kept as ``NAME.old`` (``NAME.old.1`` where that is taken); all others, in
    ``benchmark/`` and ``env/`` too, stay untouched. In a source checkout of mxfleet, whose
    ``benchmark/`` and ``env/`` are the originals, only the inventory and its schema are written.

    Raises UsageError when something is in the way or the folder cannot be written.
    """
    folder = folder.expanduser().absolute()
    text, ranges, left_out = _inventory(from_ssh_config)
    source = bundled.locate()
    parts = [part for part in bundled.PARTS if not _same(source / part, folder / part)]
    names = [*parts, SCHEMA.name, FILE_NAME]
    try:
        _check(folder, names, force)
        moved = _Moved([folder / name for name in names], [])
        folder.parent.mkdir(parents=True, exist_ok=True)
        fresh = not folder.exists()
        stage = Path(
            tempfile.mkdtemp(prefix=".mxfleet-init-", dir=folder.parent if fresh else folder)
        )
        try:
            room = stage / "folder"  # unlike the stage, open to others as the umask says
            room.mkdir()
            _stage(room, source, parts, text)
            if fresh:
                room.rename(folder)
            else:
                _check_inside(room, folder)
                moved = _move(room, folder, names)
        finally:
            shutil.rmtree(stage, ignore_errors=True)
    except OSError as error:
        raise UsageError(
            f"the working folder cannot be laid out: {error.strerror or error}",
            where=str(error.filename2 or error.filename or folder),
        ) from None
    return Initialised(folder, tuple(moved.new), tuple(moved.kept), ranges, left_out)


def _inventory(
    from_ssh_config: Path | bool | None,
) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    python = sys.executable if importlib.util.find_spec("torch") else "python3"
    if from_ssh_config is None or from_ssh_config is False:
        return inventory_text(python=python), (), ()
    from orchestrator.inventory.ssh_config import DEFAULT, read_ssh_hosts

    own = from_ssh_config is True or _same(from_ssh_config.expanduser(), DEFAULT.expanduser())
    found = read_ssh_hosts(None if from_ssh_config is True else from_ssh_config)
    text = inventory_text(
        python=python, ranges=found.ranges, ssh_config=None if own else found.path.absolute()
    )
    return text, found.ranges, found.left_out


def _same(one: Path, other: Path) -> bool:
    return one.exists() and other.exists() and one.samefile(other)


def _check(folder: Path, names: list[str], force: bool) -> None:
    """Refuse what is in the way, before anything is written."""
    if os.path.lexists(folder) and not folder.is_dir():
        raise UsageError("this is a file, not a folder", where=str(folder))
    in_the_way = [name for name in names if os.path.lexists(folder / name)]
    if in_the_way and not force:
        raise UsageError(
            f"there already is {', '.join(in_the_way)}",
            where=str(folder),
            hint="choose another folder, or replace what mxfleet carries with --force",
        )


def _check_inside(room: Path, folder: Path) -> None:
    """With force: a folder takes the place of folders only, a file of files only, no links."""
    for staged in room.rglob("*"):
        place = folder / staged.relative_to(room)
        if not os.path.lexists(place):
            continue
        if place.is_symlink() or place.is_dir() != staged.is_dir():
            raise UsageError(
                "a symbolic link or something of another kind is in the way",
                where=str(place),
                hint="move it away first",
            )


def _stage(room: Path, source: Path, parts: list[str], text: str) -> None:
    for part in parts:
        for relative in bundled.files(source, part):
            place = room / relative
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source / relative, place)
            if (source / relative).stat().st_mode & 0o100:
                mode = place.stat().st_mode
                place.chmod(mode | (mode & 0o444) >> 2)  # executable for all who may read it
    shutil.copyfile(SCHEMA, room / SCHEMA.name)
    (room / FILE_NAME).write_text(text, encoding="utf-8")


@dataclass(frozen=True)
class _Moved:
    new: list[Path]
    kept: list[tuple[Path, Path]]


def _move(room: Path, folder: Path, names: list[str]) -> _Moved:
    """Put every staged entry in its place; all of it is taken back when a later one fails."""
    moved = _Moved([], [])
    try:
        for name in names:
            _place(room / name, folder / name, moved)
    except BaseException:
        for place in moved.new:
            shutil.rmtree(place) if place.is_dir() else place.unlink()
        for place, old in moved.kept:
            old.rename(place)
        raise
    return moved


def _place(staged: Path, place: Path, moved: _Moved) -> None:
    if staged.is_dir() and place.is_dir():
        for entry in sorted(staged.iterdir()):
            _place(entry, place / entry.name, moved)
        return
    if place.exists():
        if filecmp.cmp(staged, place, shallow=False):
            return
        old = _free(place)
        place.rename(old)
        moved.kept.append((place, old))
    staged.rename(place)
    moved.new.append(place)


def _free(place: Path) -> Path:
    """A name for the former file that nothing has yet."""
    old = place.with_name(f"{place.name}.old")
    numbers = count(1)
    while os.path.lexists(old):
        old = place.with_name(f"{place.name}.old.{next(numbers)}")
    return old
