"""The config's values: what was asked for by the scenario's own fields, inferences, questions."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as made
from typing import Any

from orchestrator.author.halops.facts import Checkout, Field, Scenario
from orchestrator.author.halops.intent import meaning
from orchestrator.author.halops.intent.meaning import (
    BACKENDS,
    CACHE_DTYPE,
    DTYPE,
    GEOMETRY,
    GPU,
    SHAPES,
)
from orchestrator.author.halops.intent.model import Intent
from orchestrator.author.halops.intent.question import Question
from orchestrator.author.halops.write import ask, backends, infer, shapes
from orchestrator.author.halops.write.answers import is_list, value_of
from orchestrator.author.halops.write.dtypes import spelled
from orchestrator.errors import UsageError
from orchestrator.inventory.spelling import unknown

# Where a scenario has only one of two lengths, a number given for the other is meant for it.
_INSTEAD = {"kv_len": "q_len", "q_len": "kv_len", "m": "max_m", "max_m": "m"}


@dataclass
class Composed:
    """``values`` in the config's order; ``inferred``: why, by field; ``questions`` are open.

    ``geometry``: those of the inferred that decide shapes, to be pointed out. ``unused`` says what
    of the intent found no place.
    """

    values: dict[str, Any] = made(default_factory=dict)
    inferred: dict[str, str] = made(default_factory=dict)
    geometry: list[str] = made(default_factory=list)
    questions: list[Question] = made(default_factory=list)
    notes: list[str] = made(default_factory=list)
    unused: list[str] = made(default_factory=list)


def compose(
    checkout: Checkout, scenario: Scenario, intent: Intent, given: Mapping[str, Any]
) -> Composed:
    """Everything that can be said of the config; ``given`` (``--set``, answers) wins.

    Raises ``UsageError`` for a field in ``given`` that the scenario does not read.
    """
    work = _Composing(checkout, scenario, intent)
    work.take_given({**_known_names(intent.named, scenario, work.out.unused), **given})
    work.take_dtypes()
    work.take_backends()
    work.take_shapes()
    work.take_amounts()
    work.take_switches()
    work.derive_heads()
    work.fill()
    work.out.values = ordered(checkout, scenario, work.out.values)
    return work.out


def _known_names(named: Mapping[str, Any], scenario: Scenario, unused: list[str]) -> dict[str, Any]:
    """Values that the sentence has by a field's own name, in its spelling."""
    found = {}
    for name, value in named.items():
        field = next((one for one in scenario.fields if one.lower() == name), None)
        if field is None:
            unused.append(f"{name}={value}: {scenario.name} reads no such field")
        else:
            found[field] = value
    return found


def ordered(checkout: Checkout, scenario: Scenario, values: Mapping[str, Any]) -> dict[str, Any]:
    """As the nearest config has its fields, others of the op next, then as the code reads them."""
    same, _ = infer.family(checkout, scenario)
    near = max(same, key=lambda one: len(set(one.values) & set(values)), default=None)
    order = [*(near.values if near else ()), *checkout.ops[scenario.op].style.order]
    order += ["scenario", *scenario.fields]
    known = {"scenario": scenario.name, **values}
    return {name: known[name] for name in dict.fromkeys(order) if name in known}


@dataclass
class _Composing:
    """One config in the making."""

    checkout: Checkout
    scenario: Scenario
    intent: Intent
    out: Composed = made(default_factory=Composed)
    said: dict[str, Question] = made(default_factory=dict)

    def __post_init__(self) -> None:
        self.roles = meaning.roles(self.scenario)
        self.amounts = dict(self.intent.amounts)

    def take_given(self, given: Mapping[str, Any]) -> None:
        for name, value in given.items():
            field = self.scenario.fields.get(name)
            if field is None:
                message, hint = unknown("field", name, list(self.scenario.fields))
                raise UsageError(message, where=str(self.scenario.place), hint=hint)
            self.out.values[name] = value_of(value, field, self.scenario)

    def used(self, field: Field) -> list[Any]:
        """What configs of this scenario, then of the op, have there."""
        configs = itertools.chain(*infer.family(self.checkout, self.scenario))
        found = [one.values[field.name] for one in configs if field.name in one.values]
        if field.columns:  # configs of another scenario may have shapes of another kind
            wanted = len(field.columns)
            found = [one for one in found if one and len(one[0]) == wanted]
        return found

    def ask(self, field: Field, trouble: str | None = None) -> None:
        """Ask for the field, once; ``trouble``: why what was said does not do."""
        if field.name not in self.said and field.name not in self.out.values:
            self.said[field.name] = ask.about(
                field, self.scenario, self.used(field), trouble, chinese=self.intent.chinese
            )

    @property
    def dtype(self) -> tuple[str, Any] | None:
        """Field and value of the dtype or mode, None while it is open or swept."""
        for field in self.roles.get(DTYPE, ())[:1]:
            value = self.out.values.get(field.name)
            if isinstance(value, list) and len(value) == 1:
                value = value[0]
            return None if value is None or isinstance(value, list) else (field.name, value)
        return None

    def take_dtypes(self) -> None:
        for sort, meant in (
            (DTYPE, self.intent.dtypes),
            (CACHE_DTYPE, (self.intent.cache_dtype,) if self.intent.cache_dtype else ()),
        ):
            field = next(iter(self.roles.get(sort, ())), None)
            if field is None or not meant or field.name in self.out.values:
                if meant and field is None:
                    self.out.unused.append(
                        f"{', '.join(meant)}: {self.scenario.name} reads no {sort}"
                    )
                continue
            self._take_dtype(field, meant)

    def _take_dtype(self, field: Field, meant: Sequence[str]) -> None:
        values = [spelled(one, field, self.scenario, self.used(field)) for one in meant]
        known = [value for value in values if value is not None]
        if len(known) < len(meant):
            lost = [one for one, value in zip(meant, values, strict=True) if value is None]
            self.ask(field, f"{', '.join(lost)}: {self.scenario.name} has no such {field.name}")
        elif is_list(field, self.scenario):
            self.out.values[field.name] = known
        elif len(known) > 1:
            self.ask(field, f"{', '.join(meant)}: {field.name} takes one value")
        else:
            self.out.values[field.name] = known[0]

    def take_backends(self) -> None:
        dtype = self.dtype[1] if self.dtype else None
        chosen = backends.choose(self.checkout, self.scenario, self.intent, dtype)
        field = next(iter(self.roles.get(BACKENDS, ())), None)
        if field is not None and field.name in self.out.values:
            names = self.out.values[field.name]
            self.out.values[field.name] = backends.first(names, self.scenario, self.out.notes)
        elif field is not None and chosen.unclear:
            self.ask(field, "; ".join(chosen.unclear))
        elif field is not None and any("ruled out" in one for one in self.intent.unclear):
            self.ask(field, "; ".join(self.intent.unclear))
        elif field is not None and chosen.names:
            self.out.values[field.name] = chosen.names
            self.out.notes += chosen.notes
        self._take_words(chosen)

    def _take_words(self, chosen: backends.Chosen) -> None:
        """GPUs; names of ops, scenarios and their parts have done their work."""
        specs = self.checkout.gpu_specs
        gpus = {name.lower(): name for name in specs.specs} if specs else {}
        field = next(iter(self.roles.get(GPU, ())), None)
        own = {self.scenario.name.lower(), self.scenario.op.lower()}
        own |= set(self.scenario.name.lower().split("_"))
        for word in chosen.rest:
            if word.text in gpus and field is not None and field.name not in self.out.values:
                self.out.values[field.name] = gpus[word.text]
            elif word.text not in (*gpus, *own, *self.intent.named):
                self.out.unused.append(word.text)

    def take_shapes(self) -> None:
        field = next(iter(self.roles.get(SHAPES, ())), None)
        if field is None:
            self.out.unused += ["x".join(map(str, one)) for one in self.intent.shapes]
            return
        found, trouble = shapes.of(self.intent.shapes, self.amounts, field, self.used(field))
        for key in shapes.DIMENSIONS:
            self.amounts.pop(key, None)
        if found:
            self.out.values.setdefault(field.name, found)
        elif trouble is not None:
            self.ask(field, trouble)

    def take_amounts(self) -> None:
        for key, values in self.amounts.items():
            if key == "group":
                continue
            fields = self.roles.get(key) or self.roles.get(_INSTEAD.get(key, ""), [])
            fields = [one for one in fields if meaning.is_live(one, self.scenario)]
            if not fields:
                self.out.unused.append(f"{key} {'/'.join(map(str, values))}")
            elif not any(one.name in self.out.values for one in fields):
                self._take_amount(fields, values)

    def _take_amount(self, fields: Sequence[Field], values: tuple[int, ...]) -> None:
        sweeps = [one for one in fields if is_list(one, self.scenario)]
        if sweeps:
            self.out.values[sweeps[0].name] = list(values)
        elif len(values) == 1:
            self.out.values[fields[0].name] = values[0]
        else:
            shown = "/".join(map(str, values))
            self.ask(fields[0], f"{shown}: {fields[0].name} takes one value")

    def take_switches(self) -> None:
        for key, value in self.intent.switches.items():
            field = next(iter(self.roles.get(key, ())), None)
            if field is None:
                self.out.unused.append(key)
            else:
                self.out.values.setdefault(field.name, value)

    def derive_heads(self) -> None:
        """With a GQA ratio and one kind of heads the other is no longer open."""
        ratio = self.amounts.get("group", ())
        q, kv = (next(iter(self.roles.get(key, ())), None) for key in ("q_heads", "kv_heads"))
        if len(ratio) != 1 or q is None or kv is None or ratio[0] < 1:
            return
        values = self.out.values
        if kv.name in values and q.name not in values:
            values[q.name] = values[kv.name] * ratio[0]
        elif q.name in values and kv.name not in values:
            if values[q.name] % ratio[0]:
                self.ask(kv, f"{values[q.name]} heads are no multiple of {ratio[0]}")
            else:
                values[kv.name] = values[q.name] // ratio[0]
        elif q.name not in values:
            self._heads_of_ratio(q, kv, ratio[0])

    def _heads_of_ratio(self, q: Field, kv: Field, ratio: int) -> None:
        same, others = infer.family(self.checkout, self.scenario)
        for one in (*same, *others):
            pair = [one.values.get(field.name) for field in (q, kv)]
            if isinstance(pair[0], int) and isinstance(pair[1], int) and pair[0] == pair[1] * ratio:
                for field, value in zip((q, kv), pair, strict=True):
                    self.out.values[field.name] = value
                    self.out.inferred[field.name] = f"as in {one.shown}"
                    self.out.geometry.append(field.name)
                return
        self.ask(q)

    def fill(self) -> None:
        """Ask for what decides what is measured, infer the rest."""
        covered = self._covered()
        open_ = [
            one
            for one in self.scenario.fields.values()
            if one.name not in self.out.values
            and one.name not in covered
            and one.name not in self.said
            and one.name != "scenario"
        ]
        shape = []
        for field in open_:
            sort = meaning.role(field, self.scenario)
            if meaning.is_key(field, self.scenario):
                self.ask(field)
            elif sort in GEOMETRY or (
                field.required and not meaning.sweeps(field) and sort not in (GPU, BACKENDS)
            ):
                shape.append(field)
            elif sort != GPU and meaning.is_live(field, self.scenario):
                self._infer(field)
        self._fill_shape(shape)
        self.out.questions = [self.said[name] for name in self.scenario.fields if name in self.said]

    def _covered(self) -> set[str]:
        """Scalars that the entry layer sets, and sweeps whose scalar was given."""
        found: set[str] = set()
        for field in self.scenario.fields.values():
            if field.expands_to is None:
                continue
            given = field.expands_to in self.out.values and field.name not in self.out.values
            found.add(field.name if given else field.expands_to)
            if not meaning.is_live(field, self.scenario):
                found.add(field.name)
        return found

    def _fill_shape(self, missing: Sequence[Field]) -> None:
        """Head geometry and the like, all from one config; asked for where none has it."""
        needed = [one for one in missing if one.required or self.used(one)]
        known = {
            one.name: self.out.values[one.name]
            for sort in GEOMETRY
            for one in self.roles.get(sort, ())
            if one.name in self.out.values
        }
        found = infer.geometry(self.checkout, self.scenario, needed, known) if needed else {}
        for field in needed:
            if field.name in found:
                self._keep(field, found[field.name])
                self.out.geometry.append(field.name)
            elif field.required:
                self.ask(field)

    def _infer(self, field: Field) -> None:
        found = infer.secondary(self.checkout, self.scenario, field, self.dtype)
        if found is not None:
            self._keep(field, found)
        elif field.required:
            self.ask(field)

    def _keep(self, field: Field, found: infer.Inferred) -> None:
        self.out.values[field.name] = found.value
        self.out.inferred[field.name] = found.why
