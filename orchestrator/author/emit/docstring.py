"""A runner's docstring, in the form that docs/operators.md is made from."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path

from orchestrator.author.emit import code
from orchestrator.author.emit.material import Given, Material
from orchestrator.author.emit.settings import Setting, Settings
from orchestrator.author.facts import Argument, Operator, Trial

_WIDTH = 100
_LIBRARIES = {"vllm": "vllm, mcoplib", "sgl": "sgl_kernel, mcoplib", "mcoplib": "mcoplib"}
_FRAMEWORKS = {"vllm": "vLLM", "sgl": "SGLang", "mcoplib": "mcoplib", "torch": "PyTorch"}
_MOST_CONSTRAINTS = 8


def docstring(
    operator: Operator,
    trial: Trial,
    settings: Settings,
    material: Material,
    notes: Sequence[str],
) -> str:
    """The text between the quotes."""
    what = operator.name.replace("_", " ").strip()
    words = ", ".join(one.argument.name for one in material.given)
    lines = [
        f"{what[:1].upper()}{what[1:]} of {_FRAMEWORKS[operator.framework]}; the reference is that "
        f"of {Path(trial.place.path).name}.",
        "",
        *_folded(f"Call: ``{operator.call}({words})``"),
        f"Libraries: {_LIBRARIES.get(operator.framework, operator.namespace.split('.')[0])}",
        "",
        "Arguments:",
        *(line for one in material.given for line in _item(_argument(one, material))),
        *(_item(f"returns: {', '.join(operator.returns)}.") if operator.returns else []),
        "Parameters:",
        *(line for one in settings.own for line in _item(_parameter(one))),
        *_item(_dtype(settings.dtype, operator)),
    ]
    pitfalls = [*_pitfalls(operator, material), *(f"{n[:1].upper()}{n[1:]}." for n in notes)]
    if pitfalls:
        lines += ["Pitfalls:", *(line for one in pitfalls for line in _item(f"- {one}", hang=2))]
    return "\n".join(_safe(line) for line in lines)


def _argument(one: Given, material: Material) -> str:
    argument = one.argument
    words = [argument.type]
    if one.name is not None:
        made = material.tensors[one.name]
        if made.shape is not None:
            words = [f"[{', '.join(made.shape)}]"]
        if made.dtype is not None:
            words.append(made.dtype.removeprefix("torch."))
    elif not code.reads(one.code):
        words.append(f"here {one.code}")
    if one.name in material.outputs:
        words[-1] += "; written"
    elif one.name in material.overwritten:
        words[-1] += "; read, then written"
    if argument.inferred:
        words[-1] += f" (concluded from the code: {', '.join(concluded(argument))})"
    return f"{argument.name}: {', '.join(words)}."


def concluded(argument: Argument) -> list[str]:
    """What was concluded of an argument rather than read, in words."""
    effect = "written" if argument.mutated else "read only"
    return [effect if one == "mutated" else one for one in argument.inferred]


def _parameter(one: Setting) -> str:
    source = f"inferred: {one.why}" if one.why else f"from {one.place}"
    source = "as set" if one.is_set else source
    return f"{one.key}: {_shown(one.value)}, {source}."


def _dtype(one: Setting, operator: Operator) -> str:
    allowed = f"; the source lets {', '.join(operator.dtypes)} through" if operator.dtypes else ""
    return f"dtype: {_shown(one.value)}{allowed}."


def _shown(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(_shown, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _pitfalls(operator: Operator, material: Material) -> list[str]:
    found = []
    first = material.given[0] if material.given else None
    if first is not None and first.name in material.outputs:
        found.append(f"The output comes first: {first.argument.name}.")
    changed = [o.argument.name for o in material.passed if o.name in material.overwritten]
    if changed:
        found.append(f"Changed in place: {', '.join(changed)}; each timed call goes on from there.")
    for one in operator.constraints[:_MOST_CONSTRAINTS]:
        said = f": {one.message}" if one.message else ""
        found.append(f"It checks {one.condition}{said} ({one.place}).")
    for place in operator.allocates[:1]:
        found.append(f"Every call allocates or synchronises ({place}): few samples.")
    return found


def _item(text: str, hang: int = 4) -> list[str]:
    return textwrap.wrap(
        " ".join(text.split()),
        _WIDTH,
        initial_indent="    ",
        subsequent_indent=" " * (4 + hang),
        break_long_words=False,
        break_on_hyphens=False,
    )


def _folded(text: str) -> list[str]:
    return textwrap.wrap(
        text, _WIDTH, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    )


def _safe(line: str) -> str:
    """Foreign words within a docstring of ours."""
    return line.replace("\\", "\\\\").replace('"""', "'''").rstrip()
