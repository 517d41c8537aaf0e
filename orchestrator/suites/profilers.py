"""A profiler in front of a job's command: its words, and what the known ones have to be told.

``{job}`` in the words stands for the job's folder on the target. What a profiler writes below it
comes back; so does what it leaves in a pushed tree. The known ones are told to write there unless
their words name a place, and to have nvbench run each case once: its blocking kernel would wait
for good for launches that a profiler serialises.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from orchestrator.errors import UsageError

FOLDER = "{job}"
EXAMPLE = f"for example: --profile 'strace -f -o {FOLDER}/trace'"


@dataclass(frozen=True)
class _Known:
    """``places`` are the options that say where to write, ``added`` what says it for the user."""

    places: tuple[str, ...]
    added: tuple[str, ...]
    subcommand: str | None = None  # the one that profiles; others are the user's own affair
    nvbench: tuple[str, ...] = ("--profile",)


_KNOWN = {
    "ncu": _Known(("-o", "--export", "--log-file"), ("-o", f"{FOLDER}/profile", "-f")),
    "nsys": _Known(("-o", "--output"), ("-o", f"{FOLDER}/profile"), subcommand="profile"),
}


def profiler_words(text: str) -> tuple[str, ...]:
    """The words that go before a job's python. Raises ``UsageError`` when there are none."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(
            f"--profile {text!r} cannot be read: {error}", hint="close the quotes"
        ) from None
    if not words or not words[0].strip():
        raise UsageError("--profile names no command", hint=EXAMPLE)
    if "=" in words[0]:
        raise UsageError(
            f"--profile {text!r} begins with a variable, not with a command",
            hint=f"put env in front: --profile 'env {text}'",
        )
    known = _known(words)
    if known is None:
        return tuple(words)
    if known.subcommand is not None and (len(words) == 1 or words[1].startswith("-")):
        words.insert(1, known.subcommand)
    profiles = known.subcommand in (None, words[1] if len(words) > 1 else None)
    if profiles and not any(_names_place(word, known.places) for word in words[1:]):
        words += [word for word in known.added if word not in words[1:]]
    return tuple(words)


def nvbench_words(words: Sequence[str]) -> tuple[str, ...]:
    """What the suite's script hands to nvbench under this profiler."""
    known = _known(words)
    return known.nvbench if known is not None else ()


def _known(words: Sequence[str]) -> _Known | None:
    return _KNOWN.get(PurePosixPath(words[0]).name) if words else None


def _names_place(word: str, places: Sequence[str]) -> bool:
    """Whether ``word`` is one of the options, alone or with its value (``-oX``, ``--output=X``)."""
    for place in places:
        if word == place or word.startswith(f"{place}="):
            return True
        if not place.startswith("--") and word.startswith(place) and not word.startswith("--"):
            return True
    return False
