"""What a job made beside its results, a profiler's report say: found and sent back.

Every ordinary file below the job's folder that is not ours is sent, within bounds; what a job left
in its tree lies there too (``left``). No link is followed.
"""

import os
from typing import Any, Callable, Dict, Iterator, List, Tuple

from .fetch import RESULT_FILES, send_files
from .files import portable

OURS = frozenset(RESULT_FILES + ("spec.json", "output", "status.json", "shadow"))
MOST_FILES = 200
MOST_BYTES = 1024 * 1024 * 1024  # of all of them together
MOST_SEEN = 10000  # names that are looked at
DEEPEST = 16


def send_made(
    folder: str, announce: Callable[[Dict[str, Any]], None], data: Callable[[bytes], None]
) -> None:
    """Send each file as ``send_files`` does; its messages say ``made``.

    What does not come is announced as left out, with the reason.
    """

    def say(message: Dict[str, Any]) -> None:
        announce(dict(message, name=portable(message["name"]), made=True))

    sent, room = 0, MOST_BYTES
    for name, size in sorted(_files(folder)):
        if sent == MOST_FILES:
            why = "only %d files are sent back; it lies in %s" % (MOST_FILES, folder)
        elif size > room:
            why = "it has %d bytes, and at most %d come back; it lies in %s"
            why = why % (size, MOST_BYTES, folder)
        else:
            send_files(folder, [name], say, data)
            sent, room = sent + 1, room - size
            continue
        say({"type": "left_out", "name": name, "why": why})


def _files(folder: str) -> List[Tuple[str, int]]:
    """Names below ``folder``, relative, with their sizes; links are not among them."""
    found = []
    for seen, entry in enumerate(_walk(folder, "", 0)):
        if seen == MOST_SEEN:
            break
        if entry[1] >= 0:
            found.append(entry)
    return found


def _walk(folder: str, below: str, depth: int) -> Iterator[Tuple[str, int]]:
    try:
        entries = list(os.scandir(os.path.join(folder, below)))
    except OSError:
        return
    for entry in entries:
        name = below + entry.name
        if not below and (entry.name in OURS or entry.name.lstrip(".").startswith(RESULT_FILES)):
            continue  # a result, or what was beside it while it was written
        try:
            if entry.is_dir(follow_symlinks=False):
                if depth < DEEPEST:
                    yield from _walk(folder, name + "/", depth + 1)
            elif entry.is_file(follow_symlinks=False):
                yield name, entry.stat(follow_symlinks=False).st_size
        except OSError:
            continue  # gone meanwhile
