"""The runner's source: all parts in the working description's skeleton."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence

from orchestrator.author.emit import code, compare, devices, traffic
from orchestrator.author.emit.compare import Checks
from orchestrator.author.emit.dialect import POISON, Dialect
from orchestrator.author.emit.lines import (
    INFERRED,
    TODO,
    beside,
    class_name,
    import_lines,
    indented,
    taken_from,
    text_code,
    todo_line,
    too_long,
)
from orchestrator.author.emit.material import Material
from orchestrator.author.emit.settings import Settings
from orchestrator.author.emit.tidy import tidy
from orchestrator.author.facts import Operator, Todo, Trial

TIMED_SEED, OTHER_SEED = 42, 7
_FEW = 3  # parameters that stand in the Shape without their names
_LONGEST_TEXT = 80  # of one piece of a text


class Runner:
    """Writes the runner of one operator."""

    def __init__(
        self,
        name: str,
        operator: Operator,
        trial: Trial,
        settings: Settings,
        material: Material,
        dialect: Dialect,
    ) -> None:
        self._name = name
        self._operator = operator
        self._trial = trial
        self._settings = settings
        self._material = material
        self._dialect = dialect
        self._checks = self._compared()

    def source(self, docstring: str, todos: Sequence[Todo]) -> str:
        """The whole module, set in its form; compiles."""
        pieces = [
            f'"""{docstring}\n"""{"  # noqa: E501" if too_long(docstring) else ""}',
            self._imports(),
            *([POISON.strip()] if not self._dialect.rich and self._material.outputs else []),
            *self._material.reference.helpers,
            self._class(todos),
        ]
        return tidy("\n\n\n".join(piece.rstrip() for piece in pieces) + "\n")

    # The module.

    def _imports(self) -> str:
        lines = import_lines(["import torch", *self._trial.imports])
        lines += ["from mcoplib_mxbenchmark_op_wrapper import OpBenchmarkBase", ""]
        if self._operator.imports:
            lines += ["try:", *(f"    {line}{self._noqa(line)}" for line in self._operator.imports)]
            lines += ["except ImportError:", "    pass"]
        return "\n".join(lines).strip()

    def _noqa(self, line: str) -> str:
        namespace = self._operator.call.rpartition(".")[0]
        registers = line.startswith("import ") and self._operator.call.startswith("torch.ops.")
        return f"  # noqa: F401 - registers {namespace}" if registers else ""

    def _class(self, todos: Sequence[Todo]) -> str:
        head = [f"class {class_name(self._name)}(OpBenchmarkBase):"]
        body = [f"{TODO} {todo_line(todo)}" for todo in todos]
        if self._checks.reason is not None:
            body += [f"threshold_reason = {text_code(self._checks.reason)}", ""]
        methods = [
            self._init(),
            self._metrics(),
            self._prepare(),
            *self._call(),
            self._launcher(),
            *self._verification(),
        ]
        for method in methods:
            body += [*method, ""]
        return "\n".join([*head, *indented(body)])

    def _init(self) -> list[str]:
        lines = [f"super().__init__(name, config){beside(self._settings.dtype, 'dtype: ')}"]
        if self._settings.dtype_is_fixed:
            only = self._settings.dtype.default
            lines += [
                f"if self.dtype is not torch.{only}:",
                f'    raise ValueError(f"the data is {only}, not {{self.dtype}}")',
            ]
        for one in self._settings.own:
            lines.append(f"self.{one.key} = {one.read}{beside(one)}")
        return ["def __init__(self, name, config):", *indented(lines)]

    def _metrics(self) -> list[str]:
        moved = traffic.traffic(self._material, self._held)
        lines = [
            'state.add_summary("Op", self.name)',
            'state.add_summary("dtype", str(self.dtype).removeprefix("torch."))',
            f'state.add_summary("Shape", {self._shape()})',
        ]
        if moved.elements:
            lines.append(f"state.add_element_count({moved.elements}.numel())")
        lines += [f"{INFERRED} {why}" for why in moved.why]
        lines += moved.before
        lines += self._dialect.moved(moved.read, moved.written, moved.maybe)
        return ["def define_metrics(self, state):", *indented(lines)]

    def _shape(self) -> str:
        """The parameters as text without a comma; lengths bare where they are few."""
        own = self._settings.own
        sizes = [one for one in own if type(one.default) is int]
        others = [one for one in own if type(one.default) is not int]
        if len(sizes) <= _FEW:
            words = [f"{{self.{one.key}}}" for one in sizes]
        else:
            words = [f"{one.key}={{self.{one.key}}}" for one in sizes]
        words += [f"{one.key}={{self.{one.key}}}" for one in others]
        if not words:
            tensor = next((o.name for o in self._material.passed if o.name), None)
            if tensor is None:
                return '"()"'
            return f'"(" + " ".join(map(str, {self._held(tensor)}.shape)) + ")"'
        lines = textwrap.wrap(f"({' '.join(words)})", _LONGEST_TEXT, break_long_words=False)
        pieces = [*(f"{line} " for line in lines[:-1]), lines[-1]]
        return " ".join(f'f"{piece}"' for piece in pieces)

    def _prepare(self) -> list[str]:
        material = self._material
        statements = list(material.prepare)
        body: list[str] = ["torch.manual_seed(seed)"]
        every = [*statements, *self._helpers_of(statements)]
        drawn_by = {name for text in every for name in code.reads(text)}
        body += [f"{name}.seed(seed)" for name in ("random",) if name in drawn_by]
        body += [f"{name}.random.seed(seed)" for name in ("np", "numpy") if name in drawn_by]
        needs = "device" in code.reads(statements)
        context = devices.makes_tensors(every)
        if needs:
            body.append(f"device = {self._dialect.device}")
        if len(material.data) == 1:
            statements = code.returning(statements, material.data)
        lines = [line for text in statements for line in text.split("\n")]
        where = "device" if needs else self._dialect.device
        body += [f"with {where}:", *indented(lines)] if context and lines else lines
        if len(material.data) > 1:
            body.append(f"return {', '.join(material.data)}")
        return ["def _prepare(self, dev_id, seed):", *indented(body)]

    def _helpers_of(self, statements: Sequence[str]) -> list[str]:
        """Sources of the test's functions that statements call, and of those that they call."""
        wanted, found = set(code.reads(statements)), []
        for text in reversed(self._material.reference.helpers):
            if set(code.binds(text)) & wanted:
                found.append(text)
                wanted |= set(code.reads(text))
        return found

    # The call.

    def _held(self, name: str) -> str:
        return f"self.{self._material.attribute(name)}"

    def _into(self, data: Callable[[str], str | None]) -> Callable[[str], str]:
        """Spells code of the test: parameters as attributes, data as ``data`` says."""
        spelled = self._material.spelled

        def new(name: str) -> str | None:
            if name in self._material.data:
                return data(name)
            if name in self._material.results:
                return f"self.{name}"
            return "0" if spelled.get(name) == "seed" else spelled.get(name)

        return lambda text: code.renamed(text, new)

    def _arguments(self, data: Callable[[str], str | None]) -> list[str]:
        """The arguments of a call: by position as far as there is no gap."""
        into, found = self._into(data), []
        gap, order = False, list(self._operator.arguments)
        for one in self._material.given:
            while order and order[0].name != one.argument.name:
                order.pop(0)
                gap = True
            order = order[1:]
            named = gap or one.argument.keyword_only
            found.append(f"{one.argument.name}={into(one.code)}" if named else into(one.code))
        return found

    def _by_name(self) -> bool:
        """Whether the call names arguments, which the launcher of an established base cannot."""
        given = self._arguments(lambda name: name)
        return any("=" in one.split("(")[0] and "==" not in one for one in given)

    def _call(self) -> list[list[str]]:
        """A method that calls and keeps the result, where the operator returns what is checked."""
        if not self._material.results and not (self._by_name() and not self._dialect.rich):
            return []
        taken = self._material.called
        given = ", ".join(self._arguments(lambda name: name))
        kept = ", ".join(f"self.{name}" for name in self._material.results)
        stored = f"{kept} = " if kept else ""
        head = f"def _call({', '.join(['self', *taken])}):"
        return [[head, *indented([f"{stored}{self._operator.call}({given})"])]]

    def _launcher(self) -> list[str]:
        material = self._material
        timed = set(material.called) | self._checked_later()
        names = [self._held(n) if n in timed else "_" for n in material.data]
        inner = taken_from(f"self._prepare(dev_id, seed={TIMED_SEED})", names)
        lines = [f"with {self._dialect.stream}:", *indented(inner)]
        if self._call():
            given = [self._held(name) for name in material.called]
            called = "self._call"
        else:
            given, called = self._arguments(self._held), self._operator.call
        lines.append(f"return self.make_launcher({', '.join(['dev_id', called, *given])})")
        return ["def prepare_and_get_launcher(self, dev_id, tc_s):", *indented(lines)]

    def _called(self) -> str:
        """The call in run_verification."""
        if self._call():
            return f"self._call({', '.join(self._material.called)})"
        return f"{self._operator.call}({', '.join(self._arguments(lambda name: name))})"

    # Verification.

    def _compared(self) -> Checks:
        into = self._into(lambda name: name)
        return compare.checks(self._material, self._operator, self._dialect, into)

    def _checkable(self) -> bool:
        """Whether the timed buffers can be checked: nothing that they come from is lost."""
        return (
            self._dialect.rich
            and bool(self._material.reference.call or self._material.after)
            and not self._material.overwritten
            and bool(self._material.compared)
        )

    def _needed(self) -> list[str]:
        """Names of data that reference and comparisons read."""
        material = self._material
        texts = [*material.reference.call, *material.after]
        names = [*code.reads(texts), *compare.names_of(material.compared)]
        return [name for name in material.data if name in names]

    def _checked_later(self) -> set[str]:
        return set(self._needed()) if self._checkable() else set()

    def _verification(self) -> list[list[str]]:
        material = self._material
        if not material.compared or not (material.reference.call or material.after):
            lines = ["return None"]
            return [["def run_verification(self, dev_id):", *indented(lines)]]
        lines = taken_from(f"self._prepare(dev_id, seed={OTHER_SEED})", material.data)
        late = self._depends_on_call()
        first = not self._checkable() and not late
        copies: list[str] = []
        if first and material.reference.call:
            if material.overwritten:
                lines.append("# Taken first: the call overwrites what it reads.")
            lines += self._expected()
        elif late:
            kept = [n for n in material.overwritten if n in material.reference.inputs]
            copies = [f"{n}_before = {self._cloned(n)}" for n in kept]
        lines += copies
        if material.outputs:
            emptied = [n for n in material.outputs if material.tensors[n].made == "empty"]
            sure = [n for n in emptied if n not in material.maybe_none]
            lines += [self._dialect.poison(sure)] if sure else []
            for name in emptied:
                if name not in sure:
                    lines += [f"if {name} is not None:", f"    {self._dialect.poison([name])}"]
        lines += [self._called(), self._dialect.synchronize]
        if self._checkable():
            needed = self._needed()
            checked = ", ".join(needed)
            lines.append(f"return self._check({checked})")
            check = ["def _check(" + ", ".join(["self", *needed]) + "):"]
            timed = ["def verify_timed(self, dev_id):"]
            held = ", ".join(self._held(name) for name in needed)
            return [
                [*check, *indented([*self._expected(), *self._rest()])],
                ["def run_verification(self, dev_id):", *indented(lines)],
                [*timed, *indented([f"return self._check({held})"])],
            ]
        lines += self._expected() if late else []
        lines += self._rest()
        return [["def run_verification(self, dev_id):", *indented(lines)]]

    def _rest(self) -> list[str]:
        into = self._into(lambda name: name)
        after = [line for text in self._material.after for line in into(text).split("\n")]
        return [*after, *self._checks.lines]

    def _depends_on_call(self) -> bool:
        """Whether the reference reads what only the call makes."""
        made = {*self._material.outputs, *self._material.results}
        return bool(made & set(self._material.reference.values))

    def _cloned(self, name: str) -> str:
        given = next((one for one in self._material.passed if one.name == name), None)
        optional = given is not None and given.argument.optional
        return f"None if {name} is None else {name}.clone()" if optional else f"{name}.clone()"

    def _expected(self) -> list[str]:
        """The statements that compute what is expected, from copies of what the call overwrites."""
        reference = self._material.reference
        late = self._depends_on_call()
        overwritten = set(self._material.overwritten) & set(reference.inputs)

        def data(name: str) -> str | None:
            if name not in overwritten or name in reference.cloned:
                return name
            return f"{name}_before" if late else self._cloned(name)

        into = self._into(data)
        lines = [line for text in reference.call for line in into(text).split("\n")]
        if reference.makes_tensors and self._material.passed:
            where = next((o.name for o in self._material.passed if not o.argument.optional), None)
            if where is not None:
                return [f"with {where}.device:", *indented(lines)]
        return lines
