r"""One spelling of a command line that every login shell reads the same.

An SSH server hands the command to the login's shell as one string, and that shell may be any: sh,
bash, zsh, csh, tcsh, fish. They agree on little:

- plain letters, digits and ``_ . / : @ , + -`` mean themselves;
- ``'...'`` is literal in all of them as long as it holds no quote, no backslash (an escape in
  fish), no ``!`` (history in csh, inside quotes too) and no newline (an error in csh);
- a backslash before a quote, a backslash or ``!`` gives that character.

Nothing that all read alike gives a newline. Words with one are put together by a POSIX shell,
whose script is then quoted by the three rules above.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from orchestrator.errors import UsageError

# "=", "%", "~", "^" and braces mean themselves only in some places and some shells.
_SPECIAL = re.compile(r"['\\!]|[^A-Za-z0-9_./:@,+'\\!-]+")
_PIECE = re.compile(r"['\\!]|[^'\\!]+")


def quote(argv: Sequence[str]) -> str:
    """Return ``argv`` as one line for any login shell. Raises UsageError when a word holds NUL."""
    for word in argv:
        if "\0" in word:
            raise UsageError(f"the argument {word!r} holds a NUL character, which no command takes")
    if any("\n" in word for word in argv):
        argv = ["/bin/sh", "-c", _script(argv)]
    # exec: the command takes the place of the shell, and no alias of the login changes it.
    return "exec " + " ".join(_word(word) for word in argv)


def _word(word: str) -> str:
    """Return ``word``, which has no newline, as every shell reads it."""
    if word and not _SPECIAL.search(word):
        return word
    if not word:
        return "''"
    return "".join(
        "\\" + piece if piece in "'\\!" else f"'{piece}'" for piece in _PIECE.findall(word)
    )


def _script(argv: Sequence[str]) -> str:
    """Return a POSIX script without a newline that runs ``argv``, whose words may hold some."""
    newline = "n=$(printf '\\012x'); n=${n%x}; "  # the x keeps the newline from being cut off
    words = ('"$n"'.join(_posix(line) for line in word.split("\n")) for word in argv)
    return newline + "exec " + " ".join(words)


def _posix(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
