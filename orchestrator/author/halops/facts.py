"""What is known of a HALOps checkout: what the reader finds and the writers and checks use.

Everything says where it was read. Nothing here reads files, and nothing of a checkout is imported
or run. Layout and terms: ``OP_REGISTRY`` of ``benchmark.py``, ``SCENARIOS`` of
``kernel/<op>/scenarios/__init__.py``, ``GPU_SPECS`` of ``core/metrics.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field as made
from pathlib import Path
from typing import Any, Literal

from orchestrator.author.facts import Place, Todo

__all__ = [
    "BackendFact",
    "Checkout",
    "ConstraintFact",
    "DtypeSpelling",
    "Field",
    "GpuSpecs",
    "Neighbour",
    "NeighbourStyle",
    "Op",
    "Place",
    "Refusal",
    "Scenario",
    "Todo",
    "Violation",
]

Severity = Literal["error", "warning", "note", "run"]


@dataclass(frozen=True)
class Field:
    """One field of a scenario's config.

    ``required``: read as ``cfg[name]`` somewhere and nowhere with a default. ``default``: the
    default's value where it is a literal or a constant, else None; ``default_source``: its Python
    code, None where it has no default. ``sweep``: the code goes through its values one by one;
    ``columns``: names that one value of a sweep is taken apart to, as ``("M", "N", "K")``.
    ``choices``: strings that the code compares it with, in the code's order; other values may be
    allowed, too. ``expands_to``: the entry layer sets this scalar to each of the values in turn
    (``batch_sizes`` to ``batch_size``). ``entry``: read by ``benchmark.py``, not by the scenario.
    ``names_backends``: its values are names of backends.
    """

    name: str
    required: bool
    place: Place
    default: Any = None
    default_source: str | None = None
    sweep: bool = False
    columns: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    expands_to: str | None = None
    entry: bool = False
    names_backends: bool = False


@dataclass(frozen=True)
class Refusal:
    """A backend's ``raise`` for a value of a field: ``adapt_fa2`` with ``dtype: fp8``."""

    field: str
    value: str
    place: Place
    message: str = ""


@dataclass(frozen=True)
class BackendFact:
    """One backend of a scenario: where it is registered, and the dtypes and modes it refuses.

    ``refuses`` is by value (``"float8_e4m3fn"``, ``"fp8"``, ``"w4a4-nvfp4"``), for the values that
    the scenario is known to accept; a combination of several fields is found by ``check_config``.
    """

    name: str
    place: Place
    adapt: str | None = None  # name of its adapt function
    adapt_place: Place | None = None
    refuses: Mapping[str, Refusal] = made(default_factory=dict)


@dataclass(frozen=True)
class ConstraintFact:
    """One ``assert`` (or ``if ...: raise``) on values of the config.

    ``expression``: what must hold, as Python code of the checkout. ``branch``: conditions,
    outermost first, under which it stands (``mode == 'w4a4-nvfp4'``). ``variables``: its names,
    ``fields``: the config's fields that they come from. ``message``: its text where it has one.
    ``run_only``: it depends on what only a run can show.
    """

    expression: str
    place: Place
    branch: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    message: str = ""
    run_only: bool = False


@dataclass(frozen=True)
class DtypeSpelling:
    """How a dtype field must be spelled.

    ``torch``: place at which it is handed to ``getattr(torch, ...)``, None where it is not.
    ``aliases``: other spellings that this scenario takes, with their places. ``accepts``: all
    spellings, of those that are common, that it was seen to take.
    """

    field: str
    torch: Place | None = None
    aliases: Mapping[str, Place] = made(default_factory=dict)
    accepts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Scenario:
    """One scenario of an op; ``fields`` in the code's order, those of the entry layer behind.

    ``halops_moved``: place at which the code itself puts ``halops`` first, else None.
    ``first_is_base``: place at which the first backend that succeeds becomes the base.
    """

    name: str
    op: str
    place: Place
    function: str
    fields: Mapping[str, Field] = made(default_factory=dict)
    backends: Mapping[str, BackendFact] = made(default_factory=dict)
    constraints: tuple[ConstraintFact, ...] = ()
    dtypes: Mapping[str, DtypeSpelling] = made(default_factory=dict)
    halops_moved: Place | None = None
    first_is_base: Place | None = None
    todos: tuple[Todo, ...] = ()

    @property
    def sweeps(self) -> tuple[Field, ...]:
        """The fields that the code or the entry layer goes through value by value."""
        return tuple(each for each in self.fields.values() if each.sweep)


@dataclass(frozen=True)
class Neighbour:
    """One config that is already there; ``values`` as YAML has them, in its order."""

    path: Path
    shown: str
    values: Mapping[str, Any]
    marks: bool  # it has an "# inferred"

    @property
    def scenario(self) -> str | None:
        """Its scenario, None where it names none."""
        name = self.values.get("scenario")
        return name if isinstance(name, str) else None


@dataclass(frozen=True)
class NeighbourStyle:
    """How the configs of one op are written: what most of them do.

    ``order``: keys, those of most files first met first. ``flow``: lists in brackets on one line;
    ``flow_inner``: lists in lists so. ``indent``: spaces before a block list's dash.
    ``quotes``: strings in double quotes (``"``), single ones (``'``) or none (``""``).
    ``comments``: any has a comment; ``marks``: any has an ``# inferred``.
    """

    order: tuple[str, ...] = ()
    flow: bool = True
    flow_inner: bool = True
    indent: int = 2
    quotes: str = ""
    comments: bool = False
    marks: bool = False
    document_start: bool = False


@dataclass(frozen=True)
class Op:
    """One operator class; ``configs``: the folder its configs lie in (it may not be there yet)."""

    name: str
    place: Place
    configs: Path
    scenarios: Mapping[str, Scenario] = made(default_factory=dict)
    neighbours: tuple[Neighbour, ...] = ()
    style: NeighbourStyle = NeighbourStyle()


@dataclass(frozen=True)
class GpuSpecs:
    """``GPU_SPECS``: names of GPUs with what is known of each; ``fp4``: those with an FP4 peak.

    ``default``: what the code takes without ``gpu_type``. ``fallback``: place at which an unknown
    name silently becomes another's, None where it is an error.
    """

    place: Place
    specs: Mapping[str, Mapping[str, Any]] = made(default_factory=dict)
    fp4: frozenset[str] = frozenset()
    default: str | None = None
    fallback: Place | None = None


@dataclass(frozen=True)
class Checkout:
    """A benchmark folder of HALOps' shape. ``root`` holds ``benchmark.py``."""

    root: Path
    ops: Mapping[str, Op]
    gpu_specs: GpuSpecs | None = None
    entry_fields: Mapping[str, Field] = made(default_factory=dict)
    todos: tuple[Todo, ...] = ()

    def scenario(self, op: str, name: str) -> Scenario:
        """The scenario of that op; raises ``KeyError`` for a name that is not there."""
        return self.ops[op].scenarios[name]


@dataclass(frozen=True)
class Violation:
    """What is wrong with a config's values, or must be said of them.

    ``severity``: ``error`` (it would fail, or run something else than asked for), ``warning``,
    ``note`` (accepted, with the reason), ``run`` (only a run can show it). ``place``: the line of
    the checkout that says so. ``rule``: a stable name, as ``backend-dtype``. ``values``: values of
    the config at which it was found.
    """

    severity: Severity
    rule: str
    message: str
    place: Place | None = None
    field: str | None = None
    hint: str = ""
    values: Mapping[str, Any] = made(default_factory=dict)

    def __str__(self) -> str:
        place = f"{self.place}: " if self.place else ""
        advice = f"; {self.hint}" if self.hint else ""
        return f"{place}{self.message}{advice}"
