"""Where a generated benchmark that does not verify goes wrong: the argument, or the step.

From what the run's row says: an exception names an argument or a check of the operator's; a
difference has an output, a first element, and perhaps the place where NaN begins.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from orchestrator.author.facts import Draft
from orchestrator.events import Row

_ARGUMENT = re.compile(r"argument '(\w+)'|(?:keyword )?argument `(\w+)`|'(\w+)' \(position")
_LINE = re.compile(r"_runners\.py[\"']?(?:, line |:)(\d+)")
_NOT_FINITE = re.compile(r"(\d+) of \d+ output values and (\d+) reference values")
_LEAST_WORDS = 3  # of a constraint's message that have to be in the exception's


def explain(row: Row, drafts: Sequence[Draft], printed: Sequence[str] = ()) -> list[str]:
    """Sentences on a row that is not a pass; none where it is not of a draft.

    ``printed``: lines of the job's output, a traceback among them.
    """
    return list(dict.fromkeys(_sentences(row, drafts, printed)))


def _sentences(row: Row, drafts: Sequence[Draft], printed: Sequence[str]) -> Iterator[str]:
    made = next((one for one in drafts if one.name == row.op), None)
    if made is None or row.status in ("PASSED", "UNVERIFIED"):
        return
    runner = next(path for path in made.files if path.endswith(".py"))
    source = made.files[runner]
    if row.worst:
        for output in row.worst:
            yield from _output(output, made, runner, source)
        return
    yield from _exception(row.message or "", printed, made, runner, source)


def _output(output: Mapping[str, Any], made: Draft, runner: str, source: str) -> Iterator[str]:
    name = str(output.get("output") or "the output")
    line = _line_of(source, f'name="{name}"')
    where = f"{runner}:{line}" if line else runner
    got, wanted = _kind(output, ""), _kind(output, "expected_")
    if got != wanted:
        yield (
            f"{where}: {name} is {got} where the reference has {wanted}; look at how _prepare "
            f"makes it and at what {_reference(source, runner)} returns"
        )
        return
    elements = output.get("elements") or ()
    first = min(elements, key=lambda one: tuple(one["index"]), default=None)
    text = f"{where}: {name} {got} differs from {_reference(source, runner)}"
    if first is not None:
        index = " ".join(map(str, first["index"]))
        text += f", first seen at [{index}]: {first['got']} where {first['expected']} is expected"
    yield text
    reason = str(output.get("reason") or "")
    broken = _NOT_FINITE.search(reason)
    if broken is not None:
        yield from _not_finite(broken, elements, name, source, runner)


def _not_finite(
    broken: re.Match[str], elements: Any, name: str, source: str, runner: str
) -> Iterator[str]:
    """Whose the values are that are not finite, and where they begin."""
    theirs, ours = int(broken[1]), int(broken[2])
    odd = [one for one in elements if _odd(one["got"]) or _odd(one["expected"])]
    begins = min(odd, key=lambda one: tuple(one["index"]), default=None)
    at = f", from [{' '.join(map(str, begins['index']))}] on" if begins is not None else ""
    if ours:
        yield (
            f"{_reference(source, runner)} makes {ours} values that are not finite{at}: its inputs "
            "or a step of it leave the range of the dtype"
        )
    elif theirs:
        poisoned = "poison(" in source
        unwritten = "; where it wrote nothing they are what the output was poisoned with"
        yield (
            f"the operator leaves {theirs} values of {name} that are not finite{at}"
            f"{unwritten if poisoned else ''}"
        )


def _odd(value: object) -> bool:
    return isinstance(value, str) and value.lower() in ("nan", "inf", "-inf")


def _kind(output: Mapping[str, Any], prefix: str) -> str:
    shape = " ".join(str(size) for size in output.get(f"{prefix}shape") or ())
    return f"({shape}) {output.get(f'{prefix}dtype')}"


def _exception(
    message: str, printed: Sequence[str], made: Draft, runner: str, source: str
) -> Iterator[str]:
    operator = made.operator
    lines = [int(found[1]) for text in printed for found in [_LINE.search(text)] if found]
    if lines:
        yield from _raised(lines[-1], made, runner, source)
    named = _ARGUMENT.search(message)
    name = next((word for word in named.groups() if word), None) if named is not None else None
    argument = next((one for one in operator.arguments if one.name == name), None)
    if argument is not None:
        place = f" ({operator.sources[0]})" if operator.sources else ""
        yield f"it concerns {argument.name}, which {operator.call} takes as {argument.type}{place}"
    for one in operator.constraints:
        if one.message and _same_words(one.message, message):
            yield f"the operator checks {one.condition} at {one.place}"


def _raised(line: int, made: Draft, runner: str, source: str) -> Iterator[str]:
    """Where in the runner it was raised; of the operator's call what it was given."""
    lines = source.split("\n")
    if not 1 <= line <= len(lines):
        return
    where = f"{runner}:{line}"
    method = _method_at(source, line) or "the module"
    operator = made.operator
    call = _call_at(source, line, operator.call)
    if call is None:
        yield f"{where}: raised in {method}, not in the operator: {lines[line - 1].strip()}"
        return
    names = [one.name for one in operator.arguments]
    given = [ast.unparse(one) for one in call.args]
    pairs = [f"{name}={text}" for name, text in zip(names, given, strict=False)]
    pairs += [ast.unparse(one) for one in call.keywords]
    yield f"{where}: raised by the operator, called with {', '.join(pairs)}"


def _call_at(source: str, line: int, name: str) -> ast.Call | None:
    for node in ast.walk(ast.parse(source)):
        within = isinstance(node, ast.Call) and node.lineno <= line <= (node.end_lineno or 0)
        if within and ast.unparse(node.func) == name:  # type: ignore[attr-defined]
            return node  # type: ignore[return-value]
    return None


def _same_words(constraint: str, message: str) -> bool:
    words = re.findall(r"[A-Za-z_]{3,}", constraint)
    return len(words) >= _LEAST_WORDS and all(word in message for word in words)


def _line_of(source: str, text: str) -> int | None:
    lines = source.split("\n")
    return next((number for number, line in enumerate(lines, 1) if text in line), None)


def _reference(source: str, runner: str) -> str:
    """The golden logic's function and its place; the runner where it has none."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("_ref_"):
            return f"{node.name} ({runner}:{node.lineno})"
    return f"the reference in {runner}"


def _method_at(source: str, line: int) -> str | None:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef) and node.lineno <= line <= (node.end_lineno or 0):
            return node.name
    return None
