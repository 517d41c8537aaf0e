"""Any argument arrives as itself, whatever the login shell."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from orchestrator.errors import UsageError
from orchestrator.transport.quote import quote

SHELLS = ("sh", "dash", "bash", "tcsh", "fish", "zsh")
PROGRAM = "import os,sys;os.write(1,os.fsencode('\\0'.join(sys.argv[1:])))"
ECHO = [sys.executable, "-S", "-E", "-c", PROGRAM]


def through(shell: str, argv: Sequence[str]) -> list[str]:
    """Return the arguments that a command gets when ``shell`` reads the quoted line."""
    path = shutil.which(shell)
    if path is None:
        pytest.skip(f"{shell} is not installed")
    line = quote([*ECHO, *argv]).encode("utf-8", "surrogateescape")
    done = subprocess.run([path.encode(), b"-c", line], capture_output=True, check=False)
    assert done.returncode == 0, (shell, line, done.stderr)
    return done.stdout.decode("utf-8", "surrogateescape").split("\0")


WORDS = [
    "plain",
    "",
    "a b",
    "a b;$(reboot)'\"",
    "it's",
    "''",
    "\\",
    "a\\b\\\\'c",
    "ends with \\",
    "hi!there !! !1 !$ \\!",
    "tab\there",
    "two\nlines",
    "\n",
    "ends with newlines\n\n",
    '\nall!of\\it\'\n$HOME `id` "q"',
    "~/x ~root",
    "~",
    "*?[a-z]",
    "{a,b}",
    "$HOME",
    "%self",
    "^a^b",
    "=ls",
    "-n",
    "#comment",
    "(sub) && x | y > z < w & v",
    "KEY=value with = and : @ , + .",
    "漢字 ünïcode 算子",
    "\udcff\udc80 not utf-8",
    "carriage\rreturn \x07\x1b[31m",
    "x" * 60_000,
]


@pytest.mark.parametrize("shell", SHELLS)
def test_every_word_arrives_as_itself(shell: str) -> None:
    assert [word for word in WORDS if through(shell, [word]) != [word]] == []


@pytest.mark.parametrize("shell", SHELLS)
def test_all_words_together_keep_their_number(shell: str) -> None:
    assert through(shell, WORDS) == WORDS


@pytest.mark.parametrize("shell", SHELLS)
def test_random_words(shell: str) -> None:
    alphabet = st.sampled_from("aZ0 '\"\\!$`~*?[]{}()<>|&;#%^=\n\t-é")

    @settings(max_examples=20, deadline=None, derandomize=True)
    @given(st.lists(st.text(alphabet), min_size=1, max_size=6))
    @example(["\\'", "'\\", "!'", "'!", "\n'", "\\\n"])
    def check(argv: list[str]) -> None:
        assert through(shell, argv) == argv

    check()


def test_nul_is_refused() -> None:
    with pytest.raises(UsageError, match="NUL"):
        quote(["echo", "a\0b"])
