"""What a C++ function requires of its arguments, and whether it allocates or waits at each call.

Its own checks and those of the host functions that it hands its arguments to, in the words of the
source, with the names that the operator's arguments have.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import tree_sitter

from orchestrator.author.cpp.dispatch import dispatched
from orchestrator.author.cpp.functions import Function, Functions, text_of, walk, whole_text
from orchestrator.author.cpp.lexical import arguments, closing, string_value, without_strings
from orchestrator.author.cpp.preprocess import Expander
from orchestrator.author.cpp.types import dtype_name
from orchestrator.author.facts import Constraint, Place

_CHECK = re.compile(
    r"(?:STD_)?TORCH_(?:INTERNAL_)?(?:CHECK|ASSERT)(?:_DEBUG_ONLY|_(?:TYPE|VALUE|INDEX|LINALG))?"
    r"|AT_ASSERTM?|AT_CHECK|(?:FLASHINFER|TVM_FFI)_(?:I?CHECK)"
)
_COMPARED = re.compile(r"(?:STD_)?(?:TORCH_)?I?CHECK_(EQ|NE|GE|GT|LE|LT)")
_OWN_CHECK = re.compile(r"(?:CHECK|ASSERT)_[A-Z0-9_]+")
_SIGNS = {"EQ": "==", "NE": "!=", "GE": ">=", "GT": ">", "LE": "<=", "LT": "<"}
_DISPATCH = re.compile(r"\b(\w*DISPATCH\w*)\s*\(")
_DTYPE = (
    r"(\w+)\s*(?:\.\s*value\s*\(\s*\))?\s*(?:\[\s*0\s*\])?\s*(?:\.|->)\s*"
    r"(?:scalar_type|dtype)\s*\(\s*\)"
)
_SUBJECT = re.compile(_DTYPE)
_NAMED_DTYPE = re.compile(rf"(\w+)\s*=\s*{_DTYPE}")
_EQUAL = re.compile(rf"{_DTYPE}\s*==\s*((?:\w+\s*::\s*)*\w+)")
_POINTER = re.compile(
    r"(\w+)\s*(?:\.\s*value\s*\(\s*\))?\s*(?:\.|->)\s*(?:mutable_|const_)?data_ptr\s*<\s*"
    r"(?:const\s+)?((?:\w+\s*::\s*)*\w+)\s*>"
)
_SWITCH = re.compile(rf"switch\s*\(\s*{_DTYPE}\s*\)\s*\{{")
_CASE = re.compile(r"\bcase\s+((?:\w+\s*::\s*)*\w+)\s*:")
_WAITS = re.compile(
    r"(?:cuda|hip|mc|mu)(?:Malloc\w*|Free|DeviceSynchronize|StreamSynchronize|EventSynchronize)"
)
_FETCHES = frozenset(("item", "cpu", "synchronize"))
_DEEPEST = 3


@dataclass
class Examined:
    """What was found. The dtypes by argument, as they were told: dispatched
    on, required, by a typed pointer, or by a branch.
    """

    constraints: list[Constraint] = field(default_factory=list)
    allocates: list[Place] = field(default_factory=list)
    dispatched: dict[str, set[str]] = field(default_factory=dict)
    checked: dict[str, set[str]] = field(default_factory=dict)
    typed: dict[str, set[str]] = field(default_factory=dict)
    compared: dict[str, set[str]] = field(default_factory=dict)

    def dtypes(self, tensors: list[str], mutated: frozenset[str]) -> tuple[str, ...]:
        """The dtypes of the operator: those of the argument that its kernel is chosen by.

        ``tensors``: names of the tensor arguments in their order. Of a floating point operator that
        is the first floating point input; what is known of a scale or an index says nothing of it.
        """
        order = sorted(tensors, key=lambda name: name in mutated)
        chosen = [self.dispatched[name] for name in order if name in self.dispatched]
        floating = [dtypes for dtypes in chosen if _is_floating(dtypes)]
        if floating:
            return tuple(sorted(floating[0]))
        others: list[set[str]] = []
        for name in order:
            tables = (self.checked, self.typed, self.compared)
            dtypes = next((table[name] for table in tables if name in table), None)
            if dtypes is None:
                break
            if _is_floating(dtypes):
                return tuple(sorted(dtypes))
            others.append(dtypes)
        others = [*chosen, *others, *(self.checked[name] for name in order if name in self.checked)]
        integers = [dtypes for dtypes in others if not _is_floating(dtypes)]
        return tuple(sorted(integers[0])) if integers else ()


def _is_floating(dtypes: set[str]) -> bool:
    return any(name.startswith(("float", "bfloat")) for name in dtypes)


def examine(functions: Functions, function: Function, names: Mapping[str, str]) -> Examined:
    """Examine a function and what it hands its arguments to.

    ``names``: what the operator calls the function's parameters.
    """
    found = Examined()
    for one, bound in _frames(functions, function, names):
        _Frame(functions, one, bound, found).examine()
    return found


def _frames(
    functions: Functions, function: Function, names: Mapping[str, str]
) -> Iterator[tuple[Function, Mapping[str, str]]]:
    waiting: list[tuple[Function, Mapping[str, str], int]] = [(function, names, 0)]
    seen: set[Place] = set()
    while waiting:
        one, bound, depth = waiting.pop(0)
        if one.place in seen or one.body is None:
            continue
        seen.add(one.place)
        yield one, bound
        if depth >= _DEEPEST:
            continue
        for call in walk(one.body):
            if call.type != "call_expression":
                continue
            listed = call.child_by_field_name("arguments")
            given = [text_of(node) for node in listed.named_children] if listed else []
            # Kernels take pointers; who takes an argument itself is a function of the host.
            if not any(piece in bound for piece in given):
                continue
            name = _called(call)
            callee = functions.callee(name, len(given), one) if name else None
            if callee is None:
                continue
            pairs = zip(callee.parameters, given, strict=False)
            inner = {p.name: bound[piece] for p, piece in pairs if piece in bound}
            waiting.append((callee, inner, depth + 1))


class _Frame:
    """One function on the way, and what the operator calls its parameters."""

    def __init__(
        self, functions: Functions, function: Function, names: Mapping[str, str], found: Examined
    ) -> None:
        self._functions = functions
        self._function = function
        self._names = names
        self._found = found

    def examine(self) -> None:
        body = self._function.body
        if body is None:
            return
        for node in walk(body):
            if node.type == "call_expression":
                self._check(node)
                self._waits(node)
        self._dispatches()
        self._comparisons(whole_text(body))

    def _renamed(self, text: str) -> str:
        """The text with the operator's names for the function's."""
        return re.sub(
            r"(?<![\w.])(?<!->)(?<!::)[A-Za-z_]\w*", lambda m: self._names.get(m[0], m[0]), text
        )

    def _check(self, node: tree_sitter.Node) -> None:
        name = _called(node) or ""
        listed = node.child_by_field_name("arguments")
        given = listed.named_children if listed is not None else []
        if not given:
            return
        compared = _COMPARED.fullmatch(name)
        rest = given[1:]
        if compared is not None and len(given) >= 2:
            rest = given[2:]
            condition = f"{text_of(given[0])} {_SIGNS[compared[1]]} {text_of(given[1])}"
        elif _CHECK.fullmatch(name):
            condition = text_of(given[0])
        elif _OWN_CHECK.fullmatch(name):
            condition = text_of(node)
        else:
            return
        if condition == "false":
            condition = _guard(node) or ""
        message = _message(rest)
        condition = self._renamed(_plain(condition))
        if condition and condition != "true":
            known = {(c.condition, c.message) for c in self._found.constraints}
            if (condition, message) not in known:
                place = self._function.line(node)
                self._found.constraints.append(Constraint(condition, message, place))
            self._dtype_check(condition)

    def _dtype_check(self, condition: str) -> None:
        """``x.dtype() == A || x.dtype() == B`` lets A and B through."""
        for clause in re.split(r"&&", condition):
            parts = [_alone(part) for part in clause.split("||")]
            if not parts or None in parts:
                continue
            subjects = {part[1] for part in parts if part is not None}
            dtypes = {name for part in parts if part is not None and (name := dtype_name(part[2]))}
            if len(subjects) == 1 and dtypes:
                subject = subjects.pop()
                known = self._found.checked.get(subject)
                self._found.checked[subject] = dtypes & known if known else dtypes

    def _waits(self, node: tree_sitter.Node) -> None:
        function = node.child_by_field_name("function")
        listed = node.child_by_field_name("arguments")
        name = _called(node) or ""
        waits = _WAITS.fullmatch(name) is not None
        if function is not None and function.type == "field_expression":
            field_name = text_of(function.child_by_field_name("field")).partition("<")[0]
            waits = field_name in _FETCHES and listed is not None and not listed.named_children
        place = self._function.line(node)
        if waits and place not in self._found.allocates:
            self._found.allocates.append(place)

    def _dispatches(self) -> None:
        source = self._function.source
        macros = self._functions.project.macros(source)
        never = frozenset(name for name in macros if "DISPATCH" in name or _CHECK.fullmatch(name))
        text = Expander(macros, never).expand(self._function.text)
        bare = without_strings(text)
        for match in _DISPATCH.finditer(bare):
            end = closing(bare, match.end() - 1)
            if end is None:
                continue
            given = [piece for _, piece in arguments(text, bare, match.end() - 1, end)]
            dtypes = dispatched(match[1], given, macros)
            subject = self._subject([piece for piece in given if not piece.startswith("[")], text)
            if dtypes and subject is not None:
                self._found.dispatched.setdefault(subject, set()).update(dtypes)

    def _subject(self, given: list[str], text: str) -> str | None:
        """The operator's argument whose dtype is dispatched on."""
        for piece in given:
            found = _SUBJECT.search(piece)
            if found is not None:
                return self._names.get(found[1])
        named = {match[1]: match[2] for match in _NAMED_DTYPE.finditer(text)}
        for piece in given:
            if piece in named:
                return self._names.get(named[piece])
        return None

    def _comparisons(self, body: str) -> None:
        """Dtypes that the code branches on by hand, or takes pointers to."""
        for match in _POINTER.finditer(body):
            subject, dtype = self._names.get(match[1]), dtype_name(match[2])
            if subject is not None and dtype is not None:
                self._found.typed.setdefault(subject, set()).add(dtype)
        for match in _EQUAL.finditer(body):
            subject, dtype = self._names.get(match[1]), dtype_name(match[2])
            if subject is not None and dtype is not None:
                self._found.compared.setdefault(subject, set()).add(dtype)
        for match in _SWITCH.finditer(body):
            subject = self._names.get(match[1])
            end = closing(without_strings(body), match.end() - 1)
            names = (dtype_name(word) for word in _CASE.findall(body[match.end() : end]))
            dtypes = {name for name in names if name is not None}
            if subject is not None and dtypes:
                self._found.dispatched.setdefault(subject, set()).update(dtypes)


def _alone(text: str) -> re.Match[str] | None:
    """The comparison of a dtype that a text is, but for parentheses around it."""
    match = _EQUAL.search(text)
    rest = "" if match is None else text[: match.start()] + text[match.end() :]
    return match if not rest.strip(" ()") else None


def _called(call: tree_sitter.Node) -> str | None:
    function = call.child_by_field_name("function")
    if function is None or function.type == "field_expression":
        return None
    return text_of(function).partition("<")[0].rpartition("::")[2].strip() or None


def _plain(condition: str) -> str:
    """Without parentheses around all of it, or around a lone name."""
    condition = re.sub(r"(?<![\w>\])])\(\s*(\w+)\s*\)", r"\1", condition)
    bare = without_strings(condition)
    while condition.startswith("(") and closing(bare, 0) == len(condition) - 1:
        condition = condition[1:-1].strip()
        bare = without_strings(condition)
    return condition


def _guard(node: tree_sitter.Node) -> str | None:
    """What must not hold for a check that always fails not to be reached."""
    inner: tree_sitter.Node = node
    outer = node.parent
    while outer is not None and outer.type != "function_definition":
        if outer.type == "if_statement":
            branch = outer.child_by_field_name("consequence")
            if branch is None or not branch.start_byte <= inner.start_byte < branch.end_byte:
                return None  # an else branch: nothing that one sentence could say
            return f"!{text_of(outer.child_by_field_name('condition'))}"
        inner, outer = outer, outer.parent
    return None


def _message(nodes: list[tree_sitter.Node]) -> str:
    """The message as it would read, with what it prints in braces."""
    parts = []
    for node in nodes:
        literal = string_value(text_of(node))
        parts.append(literal if literal is not None else f"{{{text_of(node)}}}")
    return " ".join("".join(parts).split())
