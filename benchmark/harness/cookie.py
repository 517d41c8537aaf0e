"""The cookie of a forked process, by which those who look into ``/proc`` know whose it is.

Linux shows there the environment that a process was executed with; a fork shows its parent's. So
the value is changed where it lies in memory, as programs do that change their title. Whoever starts
a process that will be forked gives it a value with room for the longest.
"""

from __future__ import annotations

import ctypes
import os
import resource
from contextlib import suppress
from pathlib import Path

_RLIMIT_LOCKS = 10  # Python has no name for it


def obstacle(name: str, value: str) -> str | None:
    """Why forks of this process could not show ``value`` for the variable ``name``; None: they can.

    The value that this process was executed with has to be at least as long.
    """
    place = _place(name)
    if place is None:
        return f"its own {name} cannot be found in memory"
    if len(os.fsencode(value)) > place[1]:
        return f"there is no room for {name}={value}"
    return None


def change(name: str, value: str) -> None:
    """Show ``value``, also to all that this process starts; ``obstacle`` said that it can be."""
    place = _place(name)
    assert place is not None
    address, room = place
    ctypes.memmove(address, os.fsencode(value).ljust(room, b"\0"), room)
    os.environ[name] = value


def carry(tag: int | None) -> None:
    """Carry a number where not even a child without an environment loses it: as a limit.

    RLIMIT_LOCKS is inherited and shown by Linux, and otherwise without any use.
    """
    if tag is not None:
        with suppress(ValueError, OSError):
            resource.setrlimit(_RLIMIT_LOCKS, (tag, resource.getrlimit(_RLIMIT_LOCKS)[1]))


def _place(name: str) -> tuple[int, int] | None:
    """Address and length of a variable's value in the environment that the kernel shows."""
    getenv = ctypes.CDLL(None).getenv
    getenv.argtypes, getenv.restype = [ctypes.c_char_p], ctypes.c_void_p
    address = getenv(os.fsencode(name))
    try:
        fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
        start, end = int(fields[47]), int(fields[48])
    except (OSError, IndexError, ValueError):
        return None
    if address is None or not start <= address < end:
        return None
    return address, len(ctypes.string_at(address))
