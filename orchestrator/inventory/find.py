"""Where the inventory is: named, in the environment, or in a folder above."""

from __future__ import annotations

import os
from pathlib import Path

from orchestrator.errors import ConfigError

FILE_NAME = "inventory.yaml"
VARIABLE = "MXFLEET_INVENTORY"


def find_inventory(explicit: Path | None = None, *, start: Path | None = None) -> Path:
    """The inventory to use: ``explicit`` (``--inventory``), else ``MXFLEET_INVENTORY``, else
    ``inventory.yaml`` in ``start`` (default: the current folder) or the nearest folder above.

    What is named is returned as it is (``load`` says what is wrong with it); ConfigError when
    nothing is named and nothing found.
    """
    if explicit is not None:
        return explicit
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named).expanduser()
    here = (start or Path.cwd()).absolute()
    for folder in (here, *here.parents):
        candidate = folder / FILE_NAME
        if candidate.is_file():
            return candidate
    raise ConfigError(
        f"there is no {FILE_NAME} here or in a folder above",
        where=str(here),
        hint="lay out a working folder with `mxfleet init`, "
        f"or name an inventory with --inventory or {VARIABLE}",
    )
