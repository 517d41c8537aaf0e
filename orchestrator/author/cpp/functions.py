"""Single C++ functions: found in the text by name, cut out, macros expanded, then parsed.

Each is parsed on its own as ``auto name(parameters) { body }``: what is wrong elsewhere in the file
does not matter, and qualifiers and macros in front of it cannot confuse the grammar.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache

import tree_sitter
import tree_sitter_cpp

from orchestrator.author.cpp.lexical import closing, without_strings
from orchestrator.author.cpp.preprocess import Expander, without_cuda
from orchestrator.author.cpp.project import Project, Source
from orchestrator.author.facts import Place

# Words after which a name and parentheses are no declaration.
_NO_TYPE = frozenset(
    ("return", "else", "new", "delete", "throw", "case", "goto", "co_return", "typename", "using")
)
_QUALIFIERS = re.compile(
    r"\b(?:static|inline|extern|constexpr|virtual|explicit|friend|const|volatile|template|typename"
    r"|class|struct)\b|\"[^\"]*\""
)
# After the parameters: a body, or the end of a declaration.
_AFTER = re.compile(
    r"\s*(?:const\b\s*|mutable\b\s*)?(?:noexcept\b(?:\s*\([^()]*\))?\s*)?(?:override\b\s*)?"
    r"(?:->\s*(?P<trailing>[^{};]{1,200}?)\s*)?(?P<mark>[{;]|=\s*0\s*;)"
)
_CASES = re.compile(r"\)(\s*)(?=\w*DISPATCH_CASE\w*\s*\()")
_LONGEST_BODY = 1 << 19
_LONGEST_PARAMETERS = 1 << 14
_LONGEST_FRONT = 600  # characters in front of a declared name
_LONGEST_TEXT = 1 << 14  # of a node whose text is asked for
# Macros that are read as what they are.
UNEXPANDED = re.compile(
    r"(?:STD_)?TORCH_(?:INTERNAL_)?CHECK\w*|AT_ASSERT\w*|AT_ERROR|(?:AT|THO)_DISPATCH\w*|TORCH_LIBRARY\w*"
)


@dataclass(frozen=True)
class Parameter:
    """A parameter as written: ``type`` without its name, ``default`` as C++ or None."""

    name: str
    type: str
    default: str | None = None

    @property
    def is_pointer(self) -> bool:
        """Whether it is a pointer or an array."""
        return self.type.rstrip().endswith(("*", "]"))

    @property
    def is_const(self) -> bool:
        """Whether what it points or refers to cannot be written through it."""
        return re.search(r"\bconst\b", self.type.rpartition("*")[0] or self.type) is not None


@dataclass(frozen=True)
class Function:
    """A function, declared or defined. ``node``: its ``function_definition`` or ``declaration``."""

    name: str
    place: Place
    returns: str
    parameters: tuple[Parameter, ...]
    node: tree_sitter.Node
    body: tree_sitter.Node | None
    source: Source
    text: str  # as it is in the file: macros not expanded
    local: bool = False  # static: its own file alone has it
    doubtful: bool = False  # only some builds have it

    def line(self, node: tree_sitter.Node) -> Place:
        """The place of a node of it."""
        return Place(self.place.path, self.place.line + node.start_point[0])


@cache
def _parser() -> tree_sitter.Parser:
    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_cpp.language()))


def text_of(node: tree_sitter.Node | None) -> str:
    """The node's text on one line; empty for no node, and for one longer than any expression."""
    if node is None or node.end_byte - node.start_byte > _LONGEST_TEXT:
        return ""
    return whole_text(node)


def whole_text(node: tree_sitter.Node) -> str:
    """The node's text on one line, however long it is."""
    text = node.text or b""
    return " ".join(text.decode("utf-8", errors="replace").split())


def walk(node: tree_sitter.Node) -> Iterator[tree_sitter.Node]:
    """The node and all below it, in the order of the text."""
    waiting = [node]
    while waiting:
        one = waiting.pop()
        yield one
        waiting.extend(reversed(one.children))


def parse(code: str) -> tree_sitter.Node:
    """Parse C++ text; what is no C++ becomes ERROR nodes in it."""
    return _parser().parse(code.encode("utf-8", errors="replace")).root_node


class Functions:
    """Finds functions by name in a project's files; each is parsed once."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self._found: dict[tuple[str, str], list[Function]] = {}
        self._expanders: dict[str, Expander] = {}

    def named(self, name: str, files: Iterable[Source]) -> list[Function]:
        """All declarations and definitions of ``name`` in these files, in their order."""
        found: list[Function] = []
        for source in files:
            key = (str(source.path), name)
            if key not in self._found:
                self._found[key] = [
                    function
                    for function in (self._cut(source, *cut) for cut in _cuts(source, name))
                    if function is not None
                ]
            found += self._found[key]
        return found

    def callee(self, name: str, count: int, caller: Function) -> Function | None:
        """The definition of what ``caller`` calls with ``count`` arguments.

        In its own file or what that includes; else, if there it is only declared, anywhere.
        """
        near = self.project.around(caller.source)
        for files in (near, None):
            known = self.named(name, self.project.mentioning(name, files))
            defined = [f for f in known if f.body is not None]
            fitting = [f for f in defined if _takes(f, count)]
            if fitting or defined:
                return (fitting or defined)[0]
        return None

    def expanded(self, text: str, source: Source) -> str:
        """Text of the file with the macros expanded that the file sees."""
        key = str(source.path)
        if key not in self._expanders:
            macros = self.project.macros(source)
            never = frozenset(name for name in macros if UNEXPANDED.fullmatch(name))
            self._expanders[key] = Expander(macros, never)
        return self._expanders[key].expand(text)

    def snippet(self, name: str, tail: str, source: Source, offset: int) -> Function | None:
        """The function of which ``tail`` is all from its parameters on, as if called ``name``."""
        bare = without_strings(tail)
        end = closing(bare, 0, _LONGEST_PARAMETERS)
        after = _AFTER.match(bare, end + 1) if end is not None else None
        returns = (after["trailing"] or "").strip() if after is not None else ""
        return self._cut(source, offset, returns, tail, name)

    def _cut(
        self, source: Source, offset: int, returns: str, tail: str, name: str
    ) -> Function | None:
        # The cases of a dispatch follow each other without commas, which only macros can.
        code = _CASES.sub(r"),\1", without_cuda(self.expanded(tail, source)))
        root = parse(f"auto {name}{code}")
        for node in walk(root):
            if node.type == "function_declarator":
                break
        else:
            return None
        listed = node.child_by_field_name("parameters")
        owner = node
        while owner.parent is not None and owner.type not in ("function_definition", "declaration"):
            owner = owner.parent
        return Function(
            name=name,
            place=source.place(offset),
            returns=returns,
            parameters=tuple(parameters_of(listed)) if listed is not None else (),
            node=owner,
            body=owner.child_by_field_name("body"),
            source=source,
            text=tail,
            local=_is_static(source.bare, offset),
            doubtful=source.is_doubtful(offset),
        )


def _cuts(source: Source, name: str) -> Iterator[tuple[int, str, str, str]]:
    """Offset of the name, type returned, all from the parameters on, and the name."""
    bare = source.bare
    # A declared name stands after a type, a qualifier or a scope.
    pattern = re.compile(rf"(?<=[\w*&>:\s])(?<!\w){re.escape(name)}\s*\(")
    at = 0
    while True:
        match = pattern.search(bare, at)
        if match is None:
            return
        at = match.end()
        before = _before(bare, match.start())
        if before is None:
            continue
        opened = match.end() - 1
        end = closing(bare, opened, _LONGEST_PARAMETERS)
        after = _AFTER.match(bare, end + 1) if end is not None else None
        if after is None:
            continue
        stop: int | None = after.end()
        if after["mark"] == "{":
            stop = closing(bare, after.end() - 1, _LONGEST_BODY)
            # Without its end, what is there of it is better than nothing.
            stop = min(len(bare), opened + _LONGEST_BODY) if stop is None else stop + 1
            at = stop
        returns = (after["trailing"] or before).strip()
        yield match.start(), returns, source.code[opened:stop], name


def _is_static(bare: str, at: int) -> bool:
    """Whether ``static`` stands in front of a declared name."""
    start = max(bare.rfind(mark, 0, at) for mark in ";{}") + 1
    return re.search(r"\bstatic\b", bare[max(start, at - _LONGEST_FRONT) : at]) is not None


def _before(bare: str, at: int) -> str | None:
    """The type in front of a declared name; None where no declaration is."""
    start = max(bare.rfind(mark, 0, at) for mark in ";{}") + 1
    front = bare[max(start, at - _LONGEST_FRONT) : at]
    front = re.sub(r"(?:\w+\s*::\s*)+$", "", front)
    front = re.sub(r"^\s*(?:public|private|protected)\s*:", "", front)
    front = _without_template(without_cuda(front))
    # A macro in front of it, with or without arguments, is no type.
    front = re.sub(r"\b[A-Z][A-Z0-9_]{2,}\s*\([^()]*\)", " ", front)
    outer = _without_angles(front)
    words = re.findall(r"\w+", outer)
    if not words or _NO_TYPE & set(words) or re.search(r"[=()?!|+/\[\].]|->", outer):
        return None
    if front.rstrip().endswith((",", ":", "<")) or front.lstrip().startswith(("&", "*", ",")):
        return None
    plain = " ".join(_QUALIFIERS.sub(" ", front).split())
    return plain or None


def _without_template(front: str) -> str:
    match = re.match(r"\s*template\s*<", front)
    while match is not None:
        depth, at = 1, match.end()
        while at < len(front) and depth:
            depth += (front[at] == "<") - (front[at] == ">" and front[at - 1] != "-")
            at += 1
        front = front[at:]
        match = re.match(r"\s*template\s*<", front)
    return front


def _without_angles(front: str) -> str:
    """A type without template arguments, which may hold anything: std::enable_if_t<(N > 0)>."""
    if "<" not in front:
        return front
    kept, depth = [], 0
    for at, char in enumerate(front):
        # N > 0 inside of parentheses closes nothing, nor does the arrow.
        if char == "<" and not front[at - 1 : at].isspace():
            depth += 1
        elif char == ">" and depth and front[at - 1] not in " -":
            depth -= 1
        elif not depth:
            kept.append(char)
    return "".join(kept)


def _takes(function: Function, count: int) -> bool:
    least = sum(1 for p in function.parameters if p.default is None)
    return least <= count <= len(function.parameters)


def parameters_of(listed: tree_sitter.Node) -> Iterator[Parameter]:
    for number, node in enumerate(listed.named_children):
        if node.type not in (
            "parameter_declaration",
            "optional_parameter_declaration",
            "variadic_parameter_declaration",
        ):
            continue
        default = node.child_by_field_name("default_value")
        declarator = node.child_by_field_name("declarator")
        whole = text_of(node)
        if default is not None:
            whole = whole[: whole.rindex(text_of(default))].rstrip().removesuffix("=").rstrip()
        name = declared_name(declarator)
        kind = whole
        if name:
            # The name is the last word of that spelling: only brackets may follow.
            found = list(re.finditer(rf"(?<!\w){re.escape(name)}(?!\w)", whole))
            last = found[-1]
            kind = f"{whole[: last.start()].rstrip()}{whole[last.end() :].strip()}"
        if kind == "void" and not name:
            continue
        yield Parameter(name or f"arg{number}", kind, text_of(default) if default else None)


def declared_name(node: tree_sitter.Node | None) -> str:
    """The name that a declarator declares; empty where it is abstract."""
    while node is not None and node.type not in ("identifier", "field_identifier"):
        inner = node.child_by_field_name("declarator")
        if inner is None:
            inner = next(
                (c for c in node.named_children if c.type.endswith(("declarator", "identifier"))),
                None,
            )
        node = inner
    return text_of(node)
