"""Options of ``run``, ``testall`` and ``verify``: what is run, how it is measured and merged."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from orchestrator.cli.common import split_names
from orchestrator.errors import UsageError

if TYPE_CHECKING:
    from orchestrator.suites.measuring import Measuring
    from orchestrator.workflows.context import Context

_GLOB = frozenset("*?[")


class SamplingChoice(str, Enum):
    """How often and how long a case is measured."""

    adaptive = "adaptive"
    established = "established"


OpOption = Annotated[
    list[str],
    typer.Option(
        "--op", metavar="A[,B]", help="Operators or globs ('torch_*'), in order; may be repeated."
    ),
]
OpsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--ops",
        metavar="A,B",
        help="Operators or globs ('torch_*'); default: all. May be repeated.",
    ),
]
GenerateOption = Annotated[
    bool, typer.Option("--generate", help="Merge: append missing rows (default).")
]
UpdateOption = Annotated[
    bool, typer.Option("--update", help="Merge: also replace rows when > 5 % faster.")
]
SamplesOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="Samples, with --sampling established or on a CPU; no file is changed.",
    ),
]
SamplingOption = Annotated[
    SamplingChoice | None,
    typer.Option(
        help="adaptive (default): several short processes a case; established: one long one."
    ),
]
RepeatsOption = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="Processes a case; default 5, established 1."),
]
CaseOption = Annotated[
    list[str] | None,
    typer.Option(metavar="KEY=VALUE", help="Only the cases of a sweep with this; may be repeated."),
]
StrictOption = Annotated[
    bool,
    typer.Option("--strict", help="UNVERIFIED exits 6; a device that the config does not name, 3."),
]
ProfileOption = Annotated[
    str | None,
    typer.Option(
        "--profile",
        metavar="WORDS",
        help="A profiler to put before the command: 'ncu --set full'; what it writes below {job} "
        "comes back, times are not merged.",
    ),
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Print the commands, run nothing.")]


def named_operators(texts: Sequence[str]) -> list[str]:
    """The operators and globs that ``--op`` names; raises ``UsageError`` when there are none."""
    names = split_names(list(texts))
    if not names:
        raise UsageError("--op names no operator", hint="for example: --op torch_rms_norm")
    return names


def matching(context: Context, names: Sequence[str]) -> list[str]:
    """``names`` with the working folder's operators in the place of globs, each once.

    Raises ``UsageError`` for a glob that fits none.
    """
    found: dict[str, None] = {}
    for name in names:
        fitting = [name]
        if _GLOB & set(name):
            fitting = [op for op in context.suite.operators() if fnmatchcase(op, name)]
            if not fitting:
                raise UsageError(
                    f"{name!r} fits no operator",
                    where=str(context.suite.folder),
                    hint="quote a glob, or name operators; mxfleet testall --dry-run lists all",
                )
        found.update(dict.fromkeys(fitting))
    return list(found)


def merge_mode(generate: bool, update: bool) -> Literal["generate", "update"]:
    """How rows are merged; raises ``UsageError`` when both are asked for."""
    if generate and update:
        raise UsageError("--generate and --update exclude each other", hint="name one of them")
    return "update" if update else "generate"


def measuring_of(
    *,
    samples: int | None,
    sampling: SamplingChoice | None,
    repeats: int | None,
    case: Sequence[str] | None,
    strict: bool,
    profile: str | None,
) -> Measuring:
    """How the options want cases to be measured; ``UsageError`` for what is no filter or words."""
    from orchestrator.suites.measuring import Measuring
    from orchestrator.suites.profilers import profiler_words

    return Measuring(
        samples=samples,
        sampling=sampling.value if sampling else None,
        repeats=repeats,
        cases=parse_cases(case),
        strict=strict,
        profiler=() if profile is None else profiler_words(profile),
    )


def parse_cases(texts: Sequence[str] | None) -> tuple[str, ...]:
    """The ``--case`` filters, each once; raises ``UsageError`` for one that is no KEY=VALUE."""
    cases = tuple(dict.fromkeys(texts or ()))
    for text in cases:
        key, equals, _ = text.partition("=")
        if not equals or not key.strip():
            raise UsageError(
                f"--case {text!r} is no KEY=VALUE", hint="for example: --case num_tokens=4096"
            )
    return cases
