"""What a C++ function writes to, concluded from its code and that of what it calls.

A tensor is written where its elements are assigned, where a method that ends in ``_`` is called on
it, where a function writes to it, or where a pointer to its data goes to something that is written.
A pointer is followed through casts, offsets, local names and calls into kernels. What cannot be
followed is *unknown*, which is neither.
"""

from __future__ import annotations

import re
from enum import Enum

import tree_sitter

from orchestrator.author.cpp.functions import (
    Function,
    Functions,
    declared_name,
    parameters_of,
    text_of,
    walk,
    whole_text,
)


class Fate(Enum):
    """What becomes of a parameter."""

    READ = "read"
    WRITTEN = "written"
    UNKNOWN = "unknown"

    def __or__(self, other: Fate) -> Fate:
        for worst in (Fate.WRITTEN, Fate.UNKNOWN):
            if worst in (self, other):
                return worst
        return Fate.READ


_DEEPEST = 8  # calls followed below the operator's own function
_DEEPEST_EXPRESSION = 40
_CASTS = frozenset(
    ("reinterpret_cast", "static_cast", "const_cast", "bit_cast", "ptr_cast", "cast", "get_ptr")
)
# Methods that hand the same storage on, as a tensor or as a pointer.
_SAME_TENSOR = frozenset(
    [
        *("value", "view", "view_as", "flatten", "reshape", "unsqueeze", "squeeze"),
        *("transpose", "t", "permute", "slice", "select", "narrow", "index", "get"),
        *("toTensor", "expand", "detach", "packed_accessor32", "packed_accessor64"),
        *("accessor", "packed_accessor", "value_or", "data_ptr", "mutable_data_ptr", "data"),
    ]
)
# Functions of others that write to what their first argument points at.
_WRITES_FIRST = re.compile(
    r"atomic\w+|(?:cuda|hip|mc)?[mM]em(?:cpy|set|move)\w*|st_\w+|st\w*_global\w*|__st\w+|\w*_out"
    r"|swap|red_\w+|fill_n"
)
_WRITING = re.compile(
    r"(?:^|_)(?:store|write|scatter|save|set|put|dump|stg|st)(?:_|\d|$)|[sS]tore(?:[A-Z_\d]|$)"
)
# An address as a number, to be put into a table; uintptr_t asks for its alignment.
_AS_NUMBER = re.compile(
    r"(?:reinterpret|static)_cast\s*<\s*(?:std::)?"
    r"(?:u?int64_t|(?:unsigned )?long(?: long)?)\s*>"
)
_REFERENCE = re.compile(r"\b(const\s+)?[\w:<>]+\s*&\s*(\w+)\s*=")
_IN_PLACE = re.compile(r"[a-z]\w*[a-z0-9]_|set_data|storeU?|Store")


class Effects:
    """Fates of functions' parameters, each concluded once."""

    def __init__(self, functions: Functions) -> None:
        self._functions = functions
        self._known: dict[tuple[str, int, int], Fate] = {}

    def of(self, function: Function, index: int, depth: int = 0) -> Fate:
        """What becomes of the parameter at ``index``."""
        if index >= len(function.parameters):
            return Fate.UNKNOWN
        parameter = function.parameters[index]
        if parameter.is_pointer and parameter.is_const:
            return Fate.READ
        if function.body is None or depth > _DEEPEST:
            return Fate.UNKNOWN
        key = (function.place.path, function.place.line, index)
        if key not in self._known:
            self._known[key] = Fate.READ  # what a recursive call concludes of itself
            self._known[key] = _Reading(self, self._functions, function, index, depth).fate()
        return self._known[key]


class _Reading:
    """One parameter of one function."""

    def __init__(
        self, effects: Effects, functions: Functions, function: Function, index: int, depth: int
    ) -> None:
        self._effects = effects
        self._functions = functions
        self._function = function
        self._depth = depth
        # Local names through which its storage can be reached; the value says whether to write.
        self._names: dict[str, bool] = {function.parameters[index].name: True}
        self._targets: dict[str, str] = {}  # local names of functions
        self._lambdas: dict[str, list[tuple[str, bool]]] = {}  # names, and whether to write
        self._references: set[str] = set()  # local names declared as T& name =

    def fate(self) -> Fate:
        body = self._function.body
        if body is None:
            return Fate.UNKNOWN
        nodes = list(walk(body))
        self._references = {
            match[2] for match in _REFERENCE.finditer(whole_text(body)) if match[1] is None
        }
        # Twice: a loop may use above what it declares below.
        for _ in range(2):
            for node in nodes:
                self._alias(node)
        fate = Fate.READ
        for node in nodes:
            fate = fate | self._of(node)
            if fate is Fate.WRITTEN:
                break
        return fate

    def _alias(self, node: tree_sitter.Node) -> None:
        """Note a local name for the same storage, or for a function."""
        if node.type == "for_range_loop":
            self._element(node)
        if node.type == "call_expression":
            self._bind(node)
        if node.type not in ("init_declarator", "assignment_expression"):
            return
        assigned = node.type == "assignment_expression"
        value = node.child_by_field_name("right" if assigned else "value")
        target = node.child_by_field_name("left" if assigned else "declarator")
        if value is None or target is None:
            return
        if assigned and target.type not in ("identifier", "field_expression"):
            return  # written through, which is no new name
        name = text_of(target) if assigned else declared_name(target)
        if value.type == "lambda_expression":
            self._lambdas[name] = _lambda_parameters(value)
            return
        if value.type == "argument_list":  # T* p(out)
            value = value.named_children[0] if value.named_child_count == 1 else value
        root = self._root(value)
        if root is None:
            called = _function_name(value)
            if called is not None and not assigned:
                self._targets.setdefault(name, called)
            return
        reached = self._reaches(value)
        if not reached:
            return
        declaration = node.parent
        front = "" if assigned or declaration is None else text_of(declaration)
        read_only = re.match(r"(?:static\s+|constexpr\s+)*(?:[\w:<>, ]+\s)?const\b[^=]*[*&]", front)
        const = bool(read_only) and not re.match(r"[^=]*\*\s*const\s+\w+\s*=", front)
        const = const or bool(re.match(r"const\b", front) and "*" in front.split("=")[0])
        if name not in self._names:
            self._names[name] = not const and self._names.get(root, True)

    def _bind(self, call: tree_sitter.Node) -> None:
        """What a local lambda is called with has the names of its parameters, too."""
        taken = self._lambdas.get(text_of(call.child_by_field_name("function")))
        listed = call.child_by_field_name("arguments")
        if taken is None or listed is None:
            return
        for (name, writable), argument in zip(taken, listed.named_children, strict=False):
            root = self._root(argument)
            if root is not None:
                self._names.setdefault(name, writable and self._names[root])

    def _element(self, loop: tree_sitter.Node) -> None:
        """``for (auto& one : tensors)`` names an element."""
        declarator = loop.child_by_field_name("declarator")
        root = self._root(loop.child_by_field_name("right"))
        if root is None or declarator is None:
            return
        const = re.match(r"for\s*\(\s*const\b", text_of(loop)) is not None
        self._names.setdefault(declared_name(declarator), self._names[root] and not const)

    def _reaches(self, value: tree_sitter.Node) -> bool:
        """Whether a name for this value reaches the storage: a tensor, a pointer, a reference."""
        kind = value.type
        if kind in ("identifier", "field_expression", "pointer_expression"):
            return True
        if kind == "call_expression":
            method = _method(value)
            if method is not None:
                return method in _SAME_TENSOR
            return True
        if kind == "subscript_expression":
            # auto& x = out[i] does, scalar_t x = out[i] does not.
            holder = value.parent
            declarator = holder.child_by_field_name("declarator") if holder else None
            return declarator is not None and declarator.type == "reference_declarator"
        return kind in (
            *("binary_expression", "parenthesized_expression", "cast_expression"),
            *("conditional_expression", "initializer_list", "compound_literal_expression"),
        )

    def _root(self, node: tree_sitter.Node | None, depth: int = 0) -> str | None:
        """The known name whose storage an expression is part of; None where it is of no such."""
        while node is not None and depth < _DEEPEST_EXPRESSION:
            kind = node.type
            if kind in ("identifier", "field_expression") and text_of(node) in self._names:
                return text_of(node)
            if kind == "call_expression":
                node = self._through_call(node)
            elif kind in ("subscript_expression", "field_expression", "pointer_expression"):
                node = node.child_by_field_name("argument")
            elif kind == "cast_expression":
                node = node.child_by_field_name("value")
            elif kind == "parenthesized_expression":
                node = node.named_children[0] if node.named_children else None
            elif kind == "conditional_expression":
                first = self._root(node.child_by_field_name("consequence"), depth + 1)
                return first or self._root(node.child_by_field_name("alternative"), depth + 1)
            elif kind == "binary_expression":
                if text_of(node.child_by_field_name("operator")) not in ("+", "-"):
                    return None
                left = self._root(node.child_by_field_name("left"), depth + 1)
                return left or self._root(node.child_by_field_name("right"), depth + 1)
            elif kind in ("initializer_list", "compound_literal_expression"):
                inner = node.child_by_field_name("value") or node
                found = (self._root(child, depth + 1) for child in inner.named_children)
                return next((root for root in found if root is not None), None)
            else:
                return None
        return None

    def _through_call(self, node: tree_sitter.Node) -> tree_sitter.Node | None:
        """What a call's value is part of: the object of a method, or what is cast."""
        function = node.child_by_field_name("function")
        if function is None:
            return None
        if function.type == "field_expression":
            method = _method(node)
            if method in _SAME_TENSOR:
                return function.child_by_field_name("argument")
            return None
        listed = node.child_by_field_name("arguments")
        given = listed.named_children if listed is not None else []
        name = _function_name(function)
        if len(given) >= 1 and (name in _CASTS or (name or "").endswith("_ptr") or name == "move"):
            return given[0]
        if len(given) == 1 and name is not None and name[:1].isupper():
            return given[0]  # a view made of it: Tensor1D(out)
        held = [argument for argument in given if text_of(argument) in self._names]
        if held and name is not None:
            callee = self._functions.callee(name, len(given), self._function)
            if callee is not None and callee.returns.rstrip().endswith("*"):
                return held[0]  # the place of something in it
        return None

    def _of(self, node: tree_sitter.Node) -> Fate:
        kind = node.type
        if kind == "assignment_expression":
            return self._assigned(node.child_by_field_name("left")) | self._kept(node)
        if kind == "update_expression":
            return self._assigned(node.child_by_field_name("argument"))
        if kind == "call_expression":
            return self._called(node)
        if kind == "initializer_list":
            # Params params{out.data_ptr(), n}
            for value in node.named_children:
                root = self._root(value) if "data_ptr" in text_of(value) else None
                if root is not None and self._names[root]:
                    return Fate.UNKNOWN
        return Fate.READ

    def _assigned(self, left: tree_sitter.Node | None) -> Fate:
        """An assignment writes where its left side is an element, not the name itself."""
        while left is not None and left.type == "parenthesized_expression":
            left = left.named_children[0] if left.named_children else None
        if left is None:
            return Fate.READ
        if left.type == "identifier":
            # auto& x = out[i]; x = 1;
            return Fate.WRITTEN if self._is_reference(text_of(left)) else Fate.READ
        root = self._root(left)
        if root is None or not self._names[root]:
            return Fate.READ
        if left.type == "field_expression" and text_of(left) == root:
            return Fate.READ  # params.out = out: a new name
        return Fate.WRITTEN

    def _kept(self, assignment: tree_sitter.Node) -> Fate:
        """A pointer that is put into a struct goes where nobody follows."""
        left = assignment.child_by_field_name("left")
        right = assignment.child_by_field_name("right")
        if left is None or right is None or left.type != "field_expression":
            return Fate.READ
        root = self._root(right)
        handed = root is not None and self._names[root] and self._reaches(right)
        return Fate.UNKNOWN if handed else Fate.READ

    def _is_reference(self, name: str) -> bool:
        return self._names.get(name, False) and name in self._references

    def _called(self, node: tree_sitter.Node) -> Fate:
        function = node.child_by_field_name("function")
        listed = node.child_by_field_name("arguments")
        if function is None:
            return Fate.READ
        method = _method(node)
        if method is not None:
            owner = self._root(function.child_by_field_name("argument"))
            if owner is not None and self._names[owner] and _IN_PLACE.fullmatch(method):
                return Fate.WRITTEN
            if method.endswith("_"):
                return Fate.READ  # what a tensor is changed by
        given = listed.named_children if listed is not None else []
        if len(given) == 1 and _AS_NUMBER.fullmatch(text_of(function)) and self._root(given[0]):
            return Fate.UNKNOWN  # its address goes where nobody follows
        fate = Fate.READ
        if text_of(function) in self._lambdas:
            return Fate.READ  # its body is looked at with all the rest
        functor = text_of(function) in (p.name for p in self._function.parameters)
        for position, argument in enumerate(given):
            root = self._root(argument)
            if root is None or not self._names[root]:
                continue
            if functor and argument.type == "subscript_expression":
                return Fate.WRITTEN  # op(out[i], in[i]): by reference, and not const
            if not self._hands_on(argument):
                continue
            fate = fate | self._passed(method or _function_name(function), position, len(given))
        return fate

    def _hands_on(self, argument: tree_sitter.Node) -> bool:
        """Whether an argument gives the callee the storage: not an element's value."""
        return argument.type not in ("subscript_expression",) and not (
            argument.type == "pointer_expression" and text_of(argument).startswith("*")
        )

    def _passed(self, name: str | None, position: int, count: int) -> Fate:
        if name is None:
            return Fate.UNKNOWN
        name = self._targets.get(name, name)
        if name in _CASTS or name in _HARMLESS or name.startswith(("TORCH_", "AT_", "CHECK")):
            return Fate.READ
        callee = self._functions.callee(name, count, self._function)
        if callee is not None:
            return self._effects.of(callee, position, self._depth + 1)
        if _WRITES_FIRST.fullmatch(name):
            return Fate.WRITTEN if position == 0 else Fate.READ
        if _WRITING.search(name):
            return Fate.WRITTEN
        # Torch's own functions and constructors take tensors and leave them as they are.
        return Fate.UNKNOWN


_HARMLESS = frozenset(
    [
        *("device_of", "get_device", "OptionalCUDAGuard", "CUDAGuard", "DeviceGuard"),
        *("sizeof", "empty_like", "zeros_like", "ones_like", "full_like", "size_to_dim"),
        *("printf", "assert", "min", "max", "abs", "__ldg", "ldg", "__ldcs", "__ldca"),
        *("is_same", "decltype", "numel", "scalar_type", "has_value", "check_type"),
        *("element_size", "Tensor", "optional", "make_optional", "add", "mul", "matmul"),
        *("mm", "linear", "softmax", "sum", "to", "cast", "float2half", "get_num_sms"),
    ]
)


def _lambda_parameters(node: tree_sitter.Node) -> list[tuple[str, bool]]:
    """Names of a lambda's parameters, and whether the arguments can be written through them."""
    declarator = node.child_by_field_name("declarator")
    listed = declarator.child_by_field_name("parameters") if declarator is not None else None
    if listed is None:
        return []
    return [(each.name, not each.is_const) for each in parameters_of(listed)]


def _method(call: tree_sitter.Node) -> str | None:
    """The name of the method that is called; None for a function."""
    function = call.child_by_field_name("function")
    if function is None or function.type != "field_expression":
        return None
    field = function.child_by_field_name("field")
    if field is not None and field.type == "template_method":
        field = field.child_by_field_name("name")
    return text_of(field)


def _function_name(node: tree_sitter.Node | None) -> str | None:
    """The unqualified name of a function that an expression names, without template arguments."""
    while node is not None:
        if node.type in ("identifier", "type_identifier"):
            return text_of(node)
        if node.type in ("qualified_identifier", "template_function", "template_type"):
            node = node.child_by_field_name("name")
        elif node.type == "dependent_name":
            node = node.named_children[0] if node.named_children else None
        elif node.type in ("pointer_expression", "parenthesized_expression"):
            node = node.child_by_field_name("argument") or (
                node.named_children[0] if node.named_children else None
            )
        else:
            return None
    return None
