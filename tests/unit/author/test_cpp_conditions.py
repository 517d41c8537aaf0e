"""Conditional registrations: what no build has is not read, what only some have is told."""

from __future__ import annotations

import operator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.author.cpp.conditions import Meaning, truth
from orchestrator.author.cpp.operators import CppReader
from orchestrator.author.cpp.preprocess import preprocess
from orchestrator.author.cpp.project import Project

OLD = 'm.def("my_op(Tensor x, Tensor! out) -> ()");'
LIVE = 'm.def("my_op(Tensor! out, Tensor x) -> ()");'


def order(folder: Path, body: str, head: str = "", **headers: str) -> list[list[str]]:
    (folder / "b.cpp").write_text(f"{head}\nTORCH_LIBRARY(myops, m) {{\n{body}\n}}\n")
    for name, text in headers.items():
        (folder / f"{name}.h").write_text(text)
    found = CppReader(Project(folder.iterdir())).find("my_op")
    return [[argument.name for argument in one.arguments] for one in found]


@pytest.mark.parametrize(
    ("head", "condition"),
    [
        ("", "#if 0"),
        ("", "#if !1"),
        ("", "#if (0)"),
        ("", "#if 0x0 || 00u"),
        ("", "#if defined(NOPE) && 0"),
        ("#define OLD 0", "#if OLD"),
        ("#define OLD 0\n#define OLDER OLD", "#if OLDER > 0"),
        ("#define NEW", "#ifndef NEW"),
        ("#define NEW", "#if !defined NEW"),
        ("#define OLD\n#undef OLD", "#ifdef OLD"),
        ("", "#if CUDA_VERSION < 9000"),
        ("", "#if defined(CUDART_VERSION) && CUDART_VERSION / 1000 <= 10"),
        ("", "#if TORCH_VERSION_MAJOR < 2"),
        ("", "#if TORCH_VERSION_MAJOR * 100 + TORCH_VERSION_MINOR < 110"),
        ("", "#if __has_include(<x.h>) && 0"),
        ("", "#if defined(USE_ROCM) && defined(NOPE)"),
        ('#include "old.h"', "#if OLD_API"),
        ("#ifndef MODE\n#define MODE 2\n#endif", "#if MODE == 1"),
        ("#if 0\n#define OLD 1\n#else\n#define OLD 0\n#endif", "#if OLD"),
        ("", "#ifdef NOPE_UNDEFINED"),  # another of the same name could not live beside it
        ("#ifdef NOPE\n#define OLD 1\n#endif", "#if OLD"),
    ],
)
def test_what_no_build_has_does_not_win(tmp_path: Path, head: str, condition: str) -> None:
    headers = {"old": "#ifndef OLD_H\n#define OLD_H\n#define OLD_API 0\n#endif\n"}
    body = f"{condition}\n{OLD}\n#endif\n{LIVE}"
    assert order(tmp_path, body, head, **headers) == [["out", "x"]]


@pytest.mark.parametrize(
    "body",
    [
        f"#if CUDA_VERSION < 9000\n{OLD}\n#else\n{LIVE}\n#endif",
        f"#if CUDA_VERSION < 9000\n{OLD}\n#elif 1\n{LIVE}\n#else\n{OLD}\n#endif",
        f"#if 1\n{LIVE}\n#elif NOPE\n{OLD}\n#endif",
        f"#if 0\n#if 1\n{OLD}\n#endif\n#else\n{LIVE}\n#endif",
    ],
)
def test_the_branch_that_is_built_is_read(tmp_path: Path, body: str) -> None:
    assert order(tmp_path, body) == [["out", "x"]]


@pytest.mark.parametrize(
    "body",
    [
        f"#ifdef NOPE\n{OLD}\n#else\n{LIVE}\n#endif",
        f"#ifdef NOPE\n{OLD}\n#endif\n#ifndef NOPE\n{LIVE}\n#endif",
        f"#if CUDA_VERSION >= 99000\n{OLD}\n#else\n{LIVE}\n#endif",
    ],
)
def test_what_the_build_decides_is_kept_both_ways(tmp_path: Path, body: str) -> None:
    assert order(tmp_path, body) == [["x", "out"], ["out", "x"]]


def test_what_is_for_another_platform_only_is_better_than_nothing(tmp_path: Path) -> None:
    assert order(tmp_path, f"#ifdef USE_ROCM\n{OLD}\n#endif") == [["x", "out"]]
    assert order(tmp_path, f"#ifdef NOPE\n{OLD}\n#endif") == [["x", "out"]]
    assert order(tmp_path, f"#if defined(USE_ROCM) && 0\n{OLD}\n#endif") == []


OPERATIONS = {
    "&&": lambda a, b: a != 0 and b != 0,
    "||": lambda a, b: a != 0 or b != 0,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "+": operator.add,
    "-": operator.sub,
}


@given(
    st.recursive(
        st.integers(0, 7).map(lambda n: (str(n), n)),
        lambda inner: st.one_of(
            st.tuples(inner, st.sampled_from(sorted(OPERATIONS)), inner).map(
                lambda it: (
                    f"({it[0][0]} {it[1]} {it[2][0]})",
                    int(OPERATIONS[it[1]](it[0][1], it[2][1])),
                )
            ),
            inner.map(lambda it: (f"!{it[0]}", int(not it[1]))),
        ),
        max_leaves=8,
    )
)
def test_a_condition_of_numbers_is_what_c_makes_of_it(condition: tuple[str, int]) -> None:
    text, value = condition
    assert truth(text, lambda _: None, other_platforms=False) is bool(value)


@pytest.mark.parametrize("text", ["", "(", "1 +", ")", "!" * 9999, "(" * 9999, "A B", "'x'", "09"])
def test_what_is_no_condition_cannot_be_told(text: str) -> None:
    assert truth(text, lambda _: None, other_platforms=False) is None


def test_macros_that_stand_for_each_other_cannot_be_told() -> None:
    names: dict[str, Meaning] = {"A": "B", "B": "A", "C": "D D", "D": ""}
    assert truth("A", names.get, other_platforms=False) is None
    assert truth("C", names.get, other_platforms=False) is None


def test_headers_that_include_each_other_end(tmp_path: Path) -> None:
    headers = {f"h{n}": f'#include "h{(n + 1) % 40}.h"\n#if X{n}\n#endif\n' for n in range(40)}
    head = '#include "h0.h"\n#if X0\n#endif'
    assert order(tmp_path, LIVE, head, **headers) == [["out", "x"]]


def test_lines_that_only_some_builds_have_are_doubtful() -> None:
    read = preprocess("a\n#ifdef N\nb\n#endif\n#if 1\nc\n#endif\n")
    assert read.doubtful == {2}
    assert read.code.split() == ["a", "b", "c"]
