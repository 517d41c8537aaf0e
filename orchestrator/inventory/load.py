"""Read ``inventory.yaml``.

Every mistake in the file is a ConfigError of one sentence with ``path:line``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from orchestrator.errors import ConfigError
from orchestrator.inventory.document import Document, Place, read_document
from orchestrator.inventory.model import Inventory
from orchestrator.inventory.resolve import resolve
from orchestrator.inventory.schema import (
    ContainerEntry,
    FlopsEntry,
    GpuSpecsEntry,
    GroupEntry,
    InventoryFile,
    PushEntry,
    Settings,
    Strict,
    SuiteEntry,
    SuitesEntry,
    TimeoutsEntry,
)
from orchestrator.inventory.spelling import near, short, unknown
from orchestrator.inventory.values import SECRET_KEY

_SHOWN = 3  # mistakes in one error

_MODELS: dict[str, type[Strict]] = {
    "timeouts": TimeoutsEntry,
    "suites": SuitesEntry,
    "mcoplib": SuiteEntry,
    "halops": SuiteEntry,
    "flops": FlopsEntry,
}
_WANTED = {
    "model_type": "a mapping (`key: value` lines)",
    "model_attributes_type": "a mapping (`key: value` lines)",
    "dict_type": "a mapping (`key: value` lines)",
    "tuple_type": "a list",
    "string_type": "text",
}


def load(path: Path) -> Inventory:
    """Read an inventory file and resolve it: no default is left to look up.

    Raises ConfigError with ``path:line`` for everything that is wrong with the file.
    """
    document = read_document(path)
    try:
        file = InventoryFile.model_validate(document.data)
    except ValidationError as error:
        raise _explain(document, error) from None
    return resolve(document, file)


def _explain(document: Document, error: ValidationError) -> ConfigError:
    """The topmost mistakes of the file, each with its line, and how many more there are."""
    problems = [
        (tuple(part for part in detail["loc"] if part != "[key]"), detail)
        for detail in error.errors(include_url=False)
    ]
    # A misspelt key also leaves the right one missing: the spelling is the better message.
    misspelt = {at[:-1] for at, detail in problems if detail["type"] == "extra_forbidden"}
    problems = [
        (at, detail)
        for at, detail in problems
        if detail["type"] != "missing" or at[:-1] not in misspelt
    ]
    problems.sort(key=lambda problem: document.line(problem[0]))
    # What an alias repeats is one mistake.
    said = dict.fromkeys(
        (document.where(at), document.line(at), *_sentence(at, detail, "[key]" in detail["loc"]))
        for at, detail in problems
    )
    (where, _, message, hint), *others = said
    hints = [hint] if hint else []
    for _, line, also, way_out in others[: _SHOWN - 1]:
        hints.append(f"line {line}: {also}" + (f" ({way_out})" if way_out else ""))
    if len(others) >= _SHOWN:
        hints.append(f"and {len(others) - _SHOWN + 1} more")
    return ConfigError(message, where=where, hint="; ".join(hints) or None)


def _sentence(at: Place, detail: Mapping[str, Any], on_key: bool) -> tuple[str, str | None]:
    kind, value, key = detail["type"], detail["input"], str(at[-1]) if at else ""
    name = f'"{at[-2]}", item {at[-1] + 1}' if at and isinstance(at[-1], int) else f'"{short(key)}"'
    if kind == "extra_forbidden":
        return _unknown_key(at, key)
    if kind == "missing":
        return f"{name} is missing{_inside(at)}", None
    if kind == "empty":
        return f"{name} is empty{_inside(at)}", "name at least one"
    if kind == "literal_error":
        allowed = re.findall(r"'([^']*)'", detail["ctx"]["expected"])
        guess = near(str(value), allowed)
        if guess:
            return f'{name} cannot be {_shown(value)}, did you mean "{guess}"?', None
        return f"{name} cannot be {_shown(value)}", f"it can be {', '.join(allowed)}"
    if value is None and not on_key:
        return f"{name} has no value", "remove the line or give it one"
    if kind == "value_error":
        shown = f'"{key}"' if on_key else f"{name} cannot be {_shown(value)}"
        return f"{shown}: {detail['ctx']['error']}", None
    if kind in _WANTED:
        return f"{name} has to be {_WANTED[kind]}, not {_kind(value)}", None
    return f"{name}: {detail['msg']}", None


def _unknown_key(at: Place, key: str) -> tuple[str, str | None]:
    if SECRET_KEY.search(key):
        return (
            f'"{key}": secrets do not belong into the inventory',
            "use ssh-agent, or name a key file with `identity_file`",
        )
    model = _model_at(at[:-1])
    if model is ContainerEntry and key in Settings.model_fields:
        return f'"{key}" belongs to the host, not to a container', "move it to the host"
    return unknown("key", key, model.model_fields)


def _model_at(at: Place) -> type[Strict]:
    if not at:
        return InventoryFile
    if at == ("push",):
        return PushEntry
    if at[-1] in _MODELS and len(at) > (1 if at[0] == "defaults" else 2):
        return _MODELS[str(at[-1])]
    if len(at) > 2 and at[-2] == "gpu_specs":
        return GpuSpecsEntry
    if isinstance(at[-1], int):
        return ContainerEntry
    return GroupEntry if at[0] == "groups" else Settings


def _inside(at: Place) -> str:
    return f' in "{at[-2]}"' if len(at) > 1 else ""


def _shown(value: Any) -> str:
    return f'"{short(value)}"' if isinstance(value, str) else short(repr(value))


def _kind(value: Any) -> str:
    kinds = {dict: "a mapping", list: "a list", str: "text", bool: "a truth value"}
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return "a number"
    return kinds.get(type(value), "nothing")
