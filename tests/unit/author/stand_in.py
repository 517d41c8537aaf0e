"""Registers the right kernels of the source trees' operators with torch, a namespace at a time.

For the packages below ``stand_ins``, which a process finds in place of the operator libraries.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

HERE = Path(__file__).resolve().parent
for folder in (HERE, HERE.parent / "operators", HERE.parents[2] / "benchmark"):
    if str(folder) not in sys.path:
        sys.path.append(str(folder))  # behind what the process runs itself

from authored_kernels import Generated, subjects  # noqa: E402

_LIBRARIES = []


def register(*namespaces: str) -> None:
    """Define and implement every operator of ``namespaces``, as importing a library does."""
    for subject in _of(namespaces):
        library = torch.library.Library(subject.namespace, "FRAGMENT")
        library.define(subject.schema)
        library.impl(subject.qualified.split("::")[1], subject.kernel, "CompositeExplicitAutograd")
        _LIBRARIES.append(library)


def functions(module: str) -> dict[str, Callable[..., Any]]:
    """The functions of a Python module, by name."""
    return {s.qualified.split("::")[1]: s.kernel for s in _of((module,))}


def _of(namespaces: tuple[str, ...]) -> Iterator[Generated]:
    found = subjects(Path()).values()
    return (subject for subject in found if subject.namespace in namespaces)
