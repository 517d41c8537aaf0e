"""The golden logic: the unit test's reference as functions of a runner's module.

A test that calls a function of its own has that function, under the name ``_ref_<operator>``;
otherwise the statements that compute what is expected become one.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from orchestrator.author.emit import code, devices, steps
from orchestrator.author.facts import Output
from orchestrator.author.trial.scopes import value_reads


@dataclass(frozen=True)
class Reference:
    """``helpers``: sources for the module, the last one the reference itself where there is one.

    ``call``: statements that compute ``expected`` names from ``inputs``; empty: there is none.
    ``after``: statements that need both it and what the call left; ``compared``: the comparisons.
    ``values``: inputs whose contents it reads, not only their shapes. ``cloned``: inputs of which
    it takes copies by itself. ``makes_tensors``: it needs a default device. ``function``: its name.
    """

    helpers: tuple[str, ...] = ()
    call: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    expected: tuple[str, ...] = ()
    values: frozenset[str] = frozenset()
    cloned: frozenset[str] = frozenset()
    function: str | None = None
    makes_tensors: bool = False
    compared: tuple[Output, ...] = ()
    after: tuple[str, ...] = ()


def assemble(
    *,
    label: str,
    late: Sequence[str],
    statements: Sequence[str],
    after: Sequence[str],
    changed: Collection[str],
    compared: Sequence[Output],
    helpers: Sequence[str],
    device_names: Collection[str],
    made: Sequence[str],
    parameters: Sequence[str],
    place: str,
) -> Reference:
    """The reference of a trial.

    ``late``: statements before the call that only the reference needs; ``made``: names of data;
    ``changed``: of those and of results, what the call makes or changes. ``parameters``: of the
    test. ``label``: what its function is called.
    """
    own = steps.several([devices.in_helper(text, device_names) for text in helpers])
    defined = code.binds(helpers)
    statements, after = _apart(statements, after, changed)
    statements, compared = _with_expected(statements, compared, defined, changed, after)
    body = _needed([*late, *statements], after, compared)
    rest = [*after, *(t for one in compared for t in (one.actual, one.expected, one.when or "0"))]
    bound = code.binds(body)
    expected = [name for name in code.reads(rest) if name in bound]
    inputs = [n for n in code.reads(body) if n in made or n in parameters]
    values = frozenset(
        name for text in body for node in code.parsed(text) for name in value_reads(node)
    )
    cloned = frozenset(name for name in inputs if _only_cloned(name, body))
    if not body or not expected:
        return Reference(tuple(own), compared=tuple(compared), after=tuple(after))
    simple = _single_call(body, defined)
    if simple is not None and not _used_elsewhere(simple, [*after, *own], own):
        named = [_with_name(text, simple, label) for text in own]
        call = [_with_name(text, simple, label) for text in body]
        call = [devices.in_helper(text, device_names) for text in call]
        return Reference(
            tuple(_last(named, label)),
            tuple(call),
            tuple(inputs),
            tuple(expected),
            values,
            cloned,
            label,
            devices.makes_tensors([*named, *call]),
            tuple(compared),
            tuple(after),
        )
    lines = steps.several([devices.in_helper(text, device_names) for text in body])
    returned = ", ".join(expected)
    source = "\n".join(
        [
            f"def {label}({', '.join(inputs)}):",
            f'    """As the unit test has it ({place})."""',
            *(
                f"    {line}"
                for text in code.returning(lines, expected)
                for line in text.split("\n")
            ),
        ]
    )
    return Reference(
        (*own, source),
        (f"{returned} = {label}({', '.join(inputs)})",),
        tuple(inputs),
        tuple(expected),
        values,
        cloned,
        label,
        devices.makes_tensors([*own, *lines]),
        tuple(compared),
        tuple(after),
    )


def _only_cloned(name: str, body: Sequence[str]) -> bool:
    """Whether the code takes nothing of ``name`` but ``name.clone()``."""
    nodes = [node for text in body for node in ast.walk(ast.parse(text))]
    clones = {
        id(node.func.value)
        for node in nodes
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "clone"
    }
    return all(id(n) in clones for n in nodes if isinstance(n, ast.Name) and n.id == name)


def _apart(
    statements: Sequence[str], after: Sequence[str], changed: Collection[str]
) -> tuple[list[str], list[str]]:
    """What computes only from the inputs, and what reads what the call has made or changed."""
    bound_after = set(code.binds(after))
    early = [text for text in statements if not bound_after & set(code.reads(text))]
    late = [text for text in statements if bound_after & set(code.reads(text))]
    tainted = set(changed)
    pure, rest = list(early), []
    for text in [*after, *late]:
        touched = set(code.binds(text)) | code.changes(text)
        if tainted & {*code.reads(text), *touched}:
            tainted |= touched
            rest.append(text)
        else:
            pure.append(text)
    return pure, rest


def _needed(body: Sequence[str], after: Sequence[str], compared: Sequence[Output]) -> list[str]:
    """The statements that what follows depends on: a tolerance, say, is not among them."""
    texts = [t for one in compared for t in (one.actual, one.expected, one.when or "0")]
    flags = code.needed(body, code.reads([*after, *texts]))
    return [text for text, flag in zip(body, flags, strict=True) if flag]


def _with_expected(
    body: Sequence[str],
    compared: Sequence[Output],
    defined: Collection[str],
    changed: Collection[str],
    after: Sequence[str],
) -> tuple[list[str], list[Output]]:
    """The body, with a name for what is only computed within a comparison."""
    found = list(body)
    outputs: list[Output] = []
    beyond = {*changed, *code.binds(after)}
    for output in compared:
        node = ast.parse(output.expected, mode="eval").body
        called = {code.root(n.func) for n in ast.walk(node) if isinstance(n, ast.Call)}
        if called & set(defined) and not beyond & set(code.reads(output.expected)):
            name = "expected" if "expected" not in code.binds(found) else f"expected_{len(outputs)}"
            found.append(f"{name} = {output.expected}")
            output = replace(output, expected=name)
        outputs.append(output)
    return found, outputs


def _single_call(body: Sequence[str], defined: Collection[str]) -> str | None:
    """The function of the test's that the whole body is one call of."""
    if len(body) != 1:
        return None
    (node,) = code.parsed(body[0]) if len(code.parsed(body[0])) == 1 else (None,)
    value = node.value if isinstance(node, ast.Assign) else None
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
        return value.func.id if value.func.id in defined else None
    return None


def _used_elsewhere(name: str, texts: Sequence[str], helpers: Sequence[str]) -> bool:
    """Whether others call the function too, or it is no function."""
    functions = [
        node
        for text in helpers
        for node in code.parsed(text)
        if isinstance(node, ast.FunctionDef) and node.name == name
    ]
    others = [text for text in texts if name not in code.binds(text)]
    return not functions or any(name in code.reads(text) for text in others)


def _with_name(text: str, former: str, name: str) -> str:
    edit = code.Edit(text)
    for node in ast.walk(edit.tree):
        if isinstance(node, ast.Name) and node.id == former:
            edit.replace(node, name)
    done = edit.done()
    return done.replace(f"def {former}(", f"def {name}(", 1)


def _last(helpers: Sequence[str], label: str) -> list[str]:
    """The helpers with the reference's own function at their end."""
    own = [text for text in helpers if label in code.binds(text)]
    return [*(text for text in helpers if label not in code.binds(text)), *own]
