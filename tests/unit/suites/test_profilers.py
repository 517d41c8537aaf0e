"""What ``--profile`` becomes: words in front of a command, with what known profilers need."""

from __future__ import annotations

import pytest

from orchestrator.errors import UsageError
from orchestrator.suites.profilers import nvbench_words, profiler_words

PLACE = ["-o", "{job}/profile"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ncu", ["ncu", *PLACE, "-f"]),
        ("ncu --set full", ["ncu", "--set", "full", *PLACE, "-f"]),
        ("ncu -f", ["ncu", "-f", *PLACE]),
        ("/opt/nvidia/ncu --set full", ["/opt/nvidia/ncu", "--set", "full", *PLACE, "-f"]),
        ("ncu -o {job}/mine", ["ncu", "-o", "{job}/mine"]),
        ("ncu -o{job}/mine", ["ncu", "-o{job}/mine"]),
        ("ncu --export={job}/mine -k gemm", ["ncu", "--export={job}/mine", "-k", "gemm"]),
        ("ncu --export {job}/mine", ["ncu", "--export", "{job}/mine"]),
        ("ncu --log-file {job}/text", ["ncu", "--log-file", "{job}/text"]),
        ("nsys", ["nsys", "profile", *PLACE]),
        ("nsys -t cuda", ["nsys", "profile", "-t", "cuda", *PLACE]),
        ("nsys profile -t cuda", ["nsys", "profile", "-t", "cuda", *PLACE]),
        ("nsys profile --output={job}/x", ["nsys", "profile", "--output={job}/x"]),
        ("nsys launch", ["nsys", "launch"]),
        ("strace -f -o {job}/trace", ["strace", "-f", "-o", "{job}/trace"]),
        ('sh -c \'a "$@"\' "b c"', ["sh", "-c", 'a "$@"', "b c"]),
    ],
)
def test_words(text: str, words: list[str]) -> None:
    assert list(profiler_words(text)) == words


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "names no command"),
        ("  ", "names no command"),
        ("''", "names no command"),
        ("ncu 'half", "close the quotes"),
        ("A=b ncu", "'env A=b ncu'"),
    ],
)
def test_no_words(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        profiler_words(text)


@pytest.mark.parametrize(
    ("text", "words"), [("ncu", ("--profile",)), ("nsys", ("--profile",)), ("strace", ())]
)
def test_what_nvbench_hears(text: str, words: tuple[str, ...]) -> None:
    assert nvbench_words(profiler_words(text)) == words


def test_without_a_profiler_nvbench_hears_nothing() -> None:
    assert nvbench_words(()) == ()
