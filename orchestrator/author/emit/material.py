"""What a runner is made of: the unit test's parts, brought into the places that a runner has.

A test does all in a row. A runner makes its data apart from the call, knows which tensors are
outputs, and has its golden logic in functions of their own; which statement goes where follows from
the names that it reads, binds and changes.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from orchestrator.author.emit import code, devices, golden
from orchestrator.author.emit.golden import Reference
from orchestrator.author.emit.settings import Settings
from orchestrator.author.emit.tensors import Tensor, tensor
from orchestrator.author.facts import Argument, Operator, Output, Todo, Trial
from orchestrator.author.trial.literals import canonical
from orchestrator.author.trial.scopes import dotted

_METHODS = frozenset(
    {"flops", "device", "stream", "generator", "verify", "poison", "moves", "synchronize", "name"}
)


@dataclass(frozen=True)
class Given:
    """One argument of the call. ``code``: what the test passes; ``name``: of the tensor it is."""

    argument: Argument
    code: str
    name: str | None = None


@dataclass(frozen=True)
class Material:
    """The parts of a runner, all code still with the test's names of data.

    ``prepare``: statements of ``_prepare``; ``data``: the names that it returns, those of the call
    first; ``keys``: of the configuration. ``results``: names of what the call returns. ``outputs``:
    tensors that the call fills and that hold nothing before; ``overwritten``: that it reads and
    writes. ``after`` and ``compared`` follow call and reference.
    ``aliases``: two names of one tensor, or of a part of it.
    """

    given: tuple[Given, ...]
    prepare: tuple[str, ...]
    data: tuple[str, ...]
    results: tuple[str, ...]
    outputs: tuple[str, ...]
    overwritten: tuple[str, ...]
    reference: Reference
    after: tuple[str, ...]
    compared: tuple[Output, ...]
    tensors: Mapping[str, Tensor]
    spelled: Mapping[str, str]
    keys: frozenset[str] = frozenset()
    aliases: tuple[tuple[str, str], ...] = ()
    todos: tuple[Todo, ...] = ()

    @property
    def called(self) -> list[str]:
        """Names of data that the call takes, each once."""
        bound = set(self.data)
        names = [name for one in self.given for name in code.reads(one.code) if name in bound]
        return list(dict.fromkeys(names))

    @property
    def passed(self) -> list[Given]:
        """The tensors of the call, each once."""
        found: dict[str, Given] = {}
        for one in self.given:
            if one.name is not None:
                found.setdefault(one.name, one)
        return list(found.values())

    @property
    def follows_dtype(self) -> bool:
        """Whether anything that the call gets depends on the case's dtype."""
        # What merely has another dtype's name in it, ``self.dtype_in``, is none of it.
        texts = [*self.prepare, *(self.spelled.get(one.code, one.code) for one in self.given)]
        return any(
            isinstance(node, ast.Attribute)
            and node.attr == "dtype"
            and isinstance(node.value, ast.Name)
            and node.value.id == "self"
            for text in texts
            for node in ast.walk(ast.parse(text))
        )

    @property
    def unseen(self) -> list[str]:
        """Arguments that the call writes and that nothing is compared of."""
        texts = [t for one in self.compared for t in _texts(one)]
        read = set(code.reads([*self.after, *texts])) if texts else set()
        # ``key = cache[0]``: who compares the one sees the other.
        for alike in (*reversed(self.aliases), *self.aliases):
            if set(alike) & read:
                read |= set(alike)
        written = [o for o in self.passed if o.name in (*self.outputs, *self.overwritten)]
        return [o.argument.name for o in written if o.name not in read]

    @property
    def maybe_none(self) -> list[str]:
        """Tensors of the call that may be None, by how the test makes them."""
        optional = [o.name for o in self.passed if o.argument.optional and o.name is not None]
        return [name for name in optional if _may_be_none(name, self.prepare)]

    def attribute(self, name: str) -> str:
        """The runner's attribute that holds a tensor of the timed call."""
        return f"timed_{name}" if name in self.keys | _METHODS else name


def gather(operator: Operator, trial: Trial, settings: Settings, label: str) -> Material:
    """Bring the parts of ``trial`` into place; ``label`` names the reference's function."""
    names = devices.device_names([*trial.helpers, *trial.prepare], trial.device_names)
    prepare = [
        text
        for whole in trial.prepare
        for text in devices.without_context(whole, names)
        if text not in settings.unpacked and not devices.only_sets_up(text, names)
    ]
    given, hoisted, todos = _given(operator, trial, prepare)
    helpers = [text for text in trial.helpers if not devices.only_sets_up(text, names)]
    results = _results(trial, operator, prepare)
    call_names = [name for one in given for name in code.reads(one.code)]
    wanted = [name for name in call_names if name not in code.binds(hoisted)]
    early, late = _parted(prepare, [*wanted, *code.reads(hoisted)], results)
    early += hoisted
    compared = [_plain(one) for one in trial.outputs]
    spelled = {**settings.spelled, **dict.fromkeys(trial.seed_names, "seed")}
    reference = golden.assemble(
        label=label,
        late=late,
        statements=[t for t in trial.reference if not devices.only_sets_up(t, names)],
        after=trial.after,
        changed=[*results, *(one.name for one in given if one.name and one.argument.mutated)],
        compared=compared,
        helpers=helpers,
        device_names=names,
        made=code.binds(early),
        parameters=list(spelled),
        place=str(trial.place),
    )
    compared = list(reference.compared)
    rest = [*reference.call, *reference.after, *(t for one in compared for t in _texts(one))]
    bound = set(code.binds(early))
    needed = [n for n in [*call_names, *code.reads(rest)] if n in bound]
    tensors = {one.name: tensor(one.name, early) for one in given if one.name is not None}
    outputs, overwritten = _written(given, tensors, reference)
    local = {name: text for name, text in spelled.items() if name not in code.bound_within(early)}
    copies = [f"{n} = {t}" for n, t in spelled.items() if n not in local and n in code.reads(early)]
    into = _speller(local)
    statements = [code.renamed(devices.in_method(text, names), into) for text in early]
    if settings.dtype_is_literal:
        statements = [_with_own_dtype(text, settings.dtype.default) for text in statements]
    if settings.dtype_is_default:
        statements = [_in_own_dtype(text) for text in statements]
    after = [devices.in_method(t, names, _device_of(given)) for t in reference.after]
    return Material(
        given=tuple(given),
        prepare=(*copies, *statements),
        data=tuple(dict.fromkeys(needed)),
        results=tuple(results),
        outputs=tuple(outputs),
        overwritten=tuple(overwritten),
        reference=reference,
        after=tuple(after),
        compared=tuple(compared),
        tensors=tensors,
        spelled=local,
        keys=frozenset(one.key for one in settings.own),
        aliases=tuple(filter(None, map(_same_memory, prepare))),
        todos=(*trial.todos, *todos),
    )


def _with_own_dtype(text: str, name: str) -> str:
    """The statement with the case's dtype where the test says outright which one it is."""
    edit = code.Edit(text)
    for node in ast.walk(edit.tree):
        path = dotted(node)
        if path is not None and path.startswith("torch.") and canonical(path) == f"torch.{name}":
            edit.replace(node, "self.dtype")
    return edit.done()


_VIEWS = frozenset({"view", "reshape", "flatten", "transpose", "squeeze", "unsqueeze", "unbind"})


def _same_memory(text: str) -> tuple[str, str] | None:
    """Two names of one tensor, after a statement that only gives it, or a part, another name."""
    for node in code.parsed(text):
        if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
            continue
        value = node.value
        while not isinstance(value, ast.Name):
            if isinstance(value, ast.Subscript):
                value = value.value
            elif isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
                if value.func.attr not in _VIEWS:
                    break
                value = value.func.value
            else:
                break
        if isinstance(value, ast.Name):
            return node.targets[0].id, value.id
    return None


# Make floating-point numbers where nothing else is said.
_FLOATS = frozenset({"rand", "randn", "empty", "zeros", "ones", "normal"})


def _in_own_dtype(text: str) -> str:
    """The statement with the case's dtype where the test leaves it to torch."""
    edit = code.Edit(text)
    for node in ast.walk(edit.tree):
        if not isinstance(node, ast.Call) or not (node.args or node.keywords):
            continue
        given = {keyword.arg for keyword in node.keywords}
        path = dotted(node.func) or ""
        known = path.startswith("torch.") and path.removeprefix("torch.") in _FLOATS
        if known and not given & {"dtype", "out", None}:
            ends: list[ast.expr | ast.keyword] = [*node.args, *node.keywords]
            last = max(ends, key=lambda one: (one.end_lineno or 0, one.end_col_offset or 0))
            edit.replace_between(last, node, ", dtype=self.dtype)")
    return edit.done()


def _may_be_none(name: str, prepare: Sequence[str]) -> bool:
    for text in prepare:
        if name not in code.binds(text):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Constant) and node.value is None:
                return True
    return False


def _speller(spelled: Mapping[str, str]) -> Callable[[str], str | None]:
    return lambda name: spelled.get(name)


def _texts(output: Output) -> list[str]:
    return [t for t in (output.actual, output.expected, output.when) if t is not None]


def _device_of(given: Sequence[Given]) -> str:
    """The device, where there is no ``dev_id``: that of a tensor of the call."""
    first = next(
        (one.name for one in given if one.name is not None and not one.argument.optional), None
    )
    return f"{first}.device" if first is not None else "torch.empty(0).device"


def _given(
    operator: Operator, trial: Trial, prepare: Sequence[str]
) -> tuple[list[Given], list[str], list[Todo]]:
    """The arguments in the order of the call, and statements that make what has no name yet."""
    bound = set(code.binds(prepare)) | {one.name for one in trial.parameters}
    found: list[Given] = []
    hoisted: list[str] = []
    todos: list[Todo] = []
    passed = list(trial.arguments)
    last = max((n for n, a in enumerate(operator.arguments) if a.name in passed), default=-1)
    for number, argument in enumerate(operator.arguments):
        text = trial.arguments.get(argument.name)
        if text is None:
            if number > last and (argument.default is not None or argument.keyword_only):
                continue
            text = argument.default
        if text is None:
            todos.append(
                Todo(f"the unit test passes nothing for {argument.name} ({argument.type})")
            )
            found.append(Given(argument, "None"))
            continue
        node = ast.parse(text, mode="eval").body
        is_tensor = argument.is_tensor or (
            argument.type in ("Any", "Any?") and _is_data(node, prepare)
        )
        if isinstance(node, ast.Constant) or not is_tensor:
            found.append(Given(argument, text))
        elif isinstance(node, ast.Name):
            found.append(Given(argument, text, node.id))
        else:
            name = argument.name if argument.name not in bound else f"{argument.name}_given"
            bound.add(name)
            hoisted.append(f"{name} = {text}")
            found.append(Given(argument, name, name))
    return found, hoisted, todos


def _is_data(node: ast.expr, prepare: Sequence[str]) -> bool:
    """Whether what is passed for an argument without a type is a tensor that the test makes."""
    if not isinstance(node, ast.Name):
        return False
    made = tensor(node.id, prepare)
    return made.shape is not None or made.dtype is not None or made.made != "data"


def _results(trial: Trial, operator: Operator, prepare: Sequence[str]) -> list[str]:
    """Names for what the call returns, as the test has them; none where it uses none of it."""
    if trial.result is None:
        return []
    return [name.strip() for name in trial.result.split(",") if name.strip()]


def _parted(
    prepare: Sequence[str], wanted: Iterable[str], results: Sequence[str]
) -> tuple[list[str], list[str]]:
    """Statements that make what the call takes, and those that only the reference needs.

    What draws random numbers is data, and stays with the first: the second may run twice.
    """
    random = [name for text in prepare if code.is_random(text) for name in code.binds(text)]
    kept = code.needed(prepare, [*wanted, *random])
    early = [text for text, flag in zip(prepare, kept, strict=True) if flag]
    late = [text for text, flag in zip(prepare, kept, strict=True) if not flag]
    return early, late


def _written(
    given: Sequence[Given], tensors: Mapping[str, Tensor], reference: Reference
) -> tuple[list[str], list[str]]:
    """Tensors that the call fills, and those that it reads and writes."""
    outputs: list[str] = []
    overwritten: list[str] = []
    for one in given:
        if one.name is None or not one.argument.mutated:
            continue
        filled = tensors[one.name].made
        # Of what holds nothing, a reference can only read what the call has left there.
        fills = filled == "empty" or (filled == "filled" and one.name not in reference.values)
        (outputs if fills else overwritten).append(one.name)
    return list(dict.fromkeys(outputs)), list(dict.fromkeys(overwritten))


_STRIPPED = ("cpu", "numpy", "detach", "tolist", "contiguous")
_WIDER = ("float", "double", "int", "long", "half", "bfloat16", "to", "type")


def _plain(output: Output) -> Output:
    """A comparison without the ways around: ``out.float().cpu()`` is ``out``.

    The checks compute in float64 themselves, and judge an output by its own dtype.
    """
    actual = _bare(output.actual, wider=True)
    expected = _bare(output.expected, wider=output.actual != actual and output.how == "exact")
    return replace(output, actual=actual, expected=expected)


def _bare(text: str, *, wider: bool) -> str:
    node = ast.parse(text, mode="eval").body
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        method = node.func.attr
        if not (method in _STRIPPED or (wider and method in _WIDER)) or code.root(node) == "torch":
            break
        node = node.func.value
    return ast.unparse(node)
