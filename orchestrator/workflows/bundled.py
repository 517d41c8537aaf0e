"""The ``benchmark/`` and ``env/`` that mxfleet carries for new working folders.

An installed package has them as data in ``orchestrator/bundled``; a source checkout and an
editable installation have the originals beside the package.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import orchestrator
from orchestrator.errors import MxfleetError
from orchestrator.push.tree import ALWAYS_EXCLUDED

PARTS = ("benchmark", "env")
_ONLY_HERE = ("env/loopback",)  # for whoever works on mxfleet itself


def locate() -> Path:
    """The folder that holds ``benchmark/`` and ``env/``; MxfleetError when there is none."""
    package = Path(orchestrator.__file__).absolute().parent
    for folder in (package / "bundled", package.parent):
        if all((folder / part).is_dir() for part in PARTS):
            return folder
    raise MxfleetError(
        "this installation of mxfleet lacks its benchmark/ and env/ folders",
        where=str(package / "bundled"),
        hint="install it again",
    )


def files(root: Path, part: str) -> Iterator[Path]:
    """The files of a part, relative to ``root``, that a working folder gets.

    It lacks what push leaves out (results, caches) and what only mxfleet's own tests need.
    """
    folders = [Path(part)]
    while folders:
        folder = folders.pop()
        for entry in sorted((root / folder).iterdir()):
            relative = folder / entry.name
            if any(relative.match(pattern) for pattern in (*ALWAYS_EXCLUDED, *_ONLY_HERE)):
                continue
            if entry.is_dir():
                if not entry.is_symlink():
                    folders.append(relative)
            elif entry.is_file():
                yield relative
