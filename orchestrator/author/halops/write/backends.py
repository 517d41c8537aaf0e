"""Which of a scenario's backends somebody means, and in what order the config has them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field as made

from orchestrator.author.halops.facts import Checkout, Scenario
from orchestrator.author.halops.intent.lexer import folded
from orchestrator.author.halops.intent.lexicon import NAMES
from orchestrator.author.halops.intent.model import Intent, Word

FIRST = "halops"
_KNOWN = frozenset({*NAMES, "halops", "golden", "cudnn", "cublas", "sdpa", "fa3", "triton"})


@dataclass
class Chosen:
    """The backends; ``unclear`` is what to ask, ``notes`` what to say, ``rest`` other words."""

    names: list[str] = made(default_factory=list)
    unclear: list[str] = made(default_factory=list)
    notes: list[str] = made(default_factory=list)
    rest: list[Word] = made(default_factory=list)


def choose(checkout: Checkout, scenario: Scenario, intent: Intent, dtype: str | None) -> Chosen:
    """The backends that ``intent`` names, ``halops`` first.

    A name that only another scenario has is kept, for the checks to refuse it with its line.
    """
    found = Chosen()
    elsewhere = {
        name
        for op in checkout.ops.values()
        for one in op.scenarios.values()
        for name in one.backends
    }
    ruled_out: set[str] = set()
    for word in intent.words:
        fit = _fit(word.text, scenario)
        if len(fit) > 1 and not word.negated:
            found.unclear.append(f"{word.text}: {', '.join(fit)}?")
        elif fit and word.negated:
            ruled_out.update(fit)
        elif fit:
            found.names += fit
        elif _is_backend(word, elsewhere) and not word.negated:
            found.names.append(word.text)
        else:
            found.rest.append(word)
    if intent.all_backends:
        found.names = [*found.names, *_able(scenario, ruled_out, dtype, found)]
    left = [name for name in dict.fromkeys(found.names) if name not in ruled_out]
    found.names = first(left, scenario, found.notes)
    return found


def first(names: Sequence[str], scenario: Scenario, notes: list[str]) -> list[str]:
    """``names`` with ``halops`` in front; says why where it was not."""
    if FIRST not in names or names[0] == FIRST:
        return list(names)
    base = scenario.first_is_base
    why = f", since the first backend that succeeds is the base ({base})" if base else ""
    notes.append(f"{FIRST} is moved to the front of backends{why}")
    return [FIRST, *(name for name in names if name != FIRST)]


def _fit(text: str, scenario: Scenario) -> list[str]:
    """Backends of that name; else those of which it is a part: ``flash`` of ``sdpa_flash``."""
    plain = _squeezed(text)
    same = [name for name in scenario.backends if _squeezed(name) == plain]
    if text in same:
        return [text]
    if same:
        return same[:1]
    if text in NAMES:  # said in other words than the code's, so its variants are meant, too
        return [name for name in scenario.backends if _squeezed(name).startswith(plain)]
    parts = [name for name in scenario.backends if plain in folded_parts(name)]
    if len(parts) != 1 and _is_own_part(text, scenario):
        return parts
    return parts if len(parts) == 1 else []


def folded_parts(name: str) -> set[str]:
    """The parts of a backend's name, as ``sdpa`` and ``flash`` of ``sdpa_flash``."""
    plain = name.lower().replace("(", "_").replace(")", "").replace("-", "_").replace(".", "_")
    return {part for part in plain.split("_") if part}


def _is_own_part(text: str, scenario: Scenario) -> bool:
    return any(folded_parts(name) > {text} for name in scenario.backends)


def _is_backend(word: Word, elsewhere: set[str]) -> bool:
    plain = _squeezed(word.text)
    return (
        word.backend
        or plain in {_squeezed(name) for name in elsewhere}
        or plain in {folded(name) for name in _KNOWN}
    )


def _squeezed(name: str) -> str:
    return "".join(char for char in name.lower() if char.isalnum())


def _able(scenario: Scenario, ruled_out: set[str], dtype: str | None, found: Chosen) -> list[str]:
    """All that are not ruled out and can do the dtype; says which cannot, with the line."""
    able = []
    for name, fact in scenario.backends.items():
        refusal = fact.refuses.get(dtype) if dtype is not None else None
        if refusal is not None and name not in ruled_out:
            found.notes.append(f"{name} is left out, it refuses {dtype} ({refusal.place})")
        elif name not in ruled_out:
            able.append(name)
    return able
