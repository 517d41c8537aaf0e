"""The preprocessor's part: which branch of a conditional is read, macros and their expansion.

Nothing is known of the build, so a condition is judged by what is common to all of them
(``conditions``): the code for another platform gives way to the one beside it, and a part that
would leave a bracket open is left out. Lines keep their numbers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from orchestrator.author.cpp.conditions import Meaning, truth
from orchestrator.author.cpp.lexical import (
    arguments,
    balanced,
    blank,
    closing,
    without_strings,
)

_DIRECTIVE = re.compile(r"[ \t]*#[ \t]*(\w+)(.*)", re.DOTALL)
_DEFINE = re.compile(r"\s*(\w+)(\(([^()]*)\))?(.*)", re.DOTALL)
_INCLUDE = re.compile(r'\s*"([^"\n]+)"')
_REGISTERS = re.compile(r"(?:\.|->)\s*(?:def|impl)\s*\(")
# A function that takes tensors, or its declaration.
_DECLARES = re.compile(r"[\w&*>]\s+\w+\s*\([^(){};]*\bTensor\b[^;{}]{0,4000}\)\s*(?:const\s*)?[{;]")
_CONDITIONS = frozenset(("if", "ifdef", "ifndef"))
_WORD = re.compile(r'"(?:\\.|[^"\\\n])*"|[A-Za-z_]\w*')
_PIECE = re.compile(r'"(?:\\.|[^"\\\n])*"|\s*##\s*|#\s*[A-Za-z_]\w*|[A-Za-z_]\w*|[\s\S]', re.DOTALL)
Included: TypeAlias = Callable[[str, Sequence[str]], "Macro | None"]
_Directive: TypeAlias = tuple[int, int, str, str]
_DEEPEST = 16
_LONGEST = 1 << 18  # characters of an expansion


@dataclass(frozen=True)
class Macro:
    """A ``#define``. ``parameters`` is None where it takes none; the last may be ``...``."""

    name: str
    parameters: tuple[str, ...] | None
    body: str
    line: int


@dataclass
class Preprocessed:
    """A file's text without directives, and what they said."""

    code: str
    macros: dict[str, Macro] = field(default_factory=dict)
    includes: list[str] = field(default_factory=list)
    # Macros that are defined for certain, and lines that only some builds have.
    settled: dict[str, Macro] = field(default_factory=dict)
    doubtful: set[int] = field(default_factory=set)


@dataclass
class _Branch:
    """Lines from ``first`` to ``last``. ``elsewhere``: it is only for another platform."""

    truth: bool | None  # None: nobody knows
    elsewhere: bool
    first: int
    last: int


def preprocess(text: str, included: Included | None = None) -> Preprocessed:
    """Take the directives out of a text that has no comments any more.

    ``included``: the macro of a name in the files that are included by these names.
    """
    lines = text.split("\n")
    directives = _directives(lines)
    found = Preprocessed("")
    dropped = _Conditionals(lines, directives, included, found).dropped()
    for first, last, word, rest in directives:
        if not dropped[first]:
            _note(found, word, rest, first + 1)
        for number in range(first, last + 1):
            lines[number] = ""
    kept = ("" if drop else line for line, drop in zip(lines, dropped, strict=True))
    found.code = "\n".join(kept)
    return found


def _directives(lines: list[str]) -> list[_Directive]:
    """First line, last line, word and rest of each, continued lines joined."""
    found = []
    number = 0
    while number < len(lines):
        first = number
        if lines[number].lstrip().startswith("#"):
            while lines[number].rstrip().endswith("\\") and number + 1 < len(lines):
                number += 1
            joined = " ".join(
                line.rstrip().removesuffix("\\") for line in lines[first : number + 1]
            )
            match = _DIRECTIVE.match(joined)
            if match is not None:
                found.append((first, number, match[1], match[2]))
        number += 1
    return found


def _note(found: Preprocessed, word: str, rest: str, line: int) -> None:
    if word == "include":
        quoted = _INCLUDE.match(rest)
        if quoted is not None:
            found.includes.append(quoted[1])
    elif word == "define":
        macro = _macro(rest, line)
        if macro is not None:
            found.macros.setdefault(macro.name, macro)


def _macro(rest: str, line: int) -> Macro | None:
    match = _DEFINE.match(rest)
    if match is None:
        return None
    parameters = None
    if match[2] is not None:
        listed = match[3]
        parameters = tuple(p.strip() for p in listed.split(",")) if listed.strip() else ()
    return Macro(match[1], parameters, match[4].strip(), line)


class _Conditionals:
    """Walks the directives once: what is defined where, and which lines are left out."""

    def __init__(
        self,
        lines: list[str],
        directives: list[_Directive],
        included: Included | None,
        found: Preprocessed,
    ) -> None:
        self._lines = lines
        self._directives = directives
        self._included = included
        self._found = found
        self._includes: list[str] = []
        self._open: list[list[_Branch]] = []
        self._known: dict[str, Macro | bool | None] = {}

    def dropped(self) -> list[bool]:
        """Whether each line is left out; lines that may be are noted as doubtful."""
        dropped = [False] * len(self._lines)
        for index, (first, last, word, rest) in enumerate(self._directives):
            if word in _CONDITIONS:
                truth, elsewhere = self._truth(word, rest)
                if truth is None and self._guards(index, rest):
                    truth = True
                self._open.append([_Branch(truth, elsewhere, last + 1, last)])
            elif word in ("elif", "elifdef", "elifndef", "else", "endif") and self._open:
                branches = self._open[-1]
                branches[-1].last = first - 1
                if word != "endif":
                    branches.append(self._another(branches, word, rest, last))
                    continue
                self._open.pop()
                kept = _kept(self._lines, branches)
                for branch in branches:
                    numbers = range(branch.first, branch.last + 1)
                    if branch not in kept:
                        for number in numbers:
                            dropped[number] = True
                    elif branch.truth is not True:
                        self._found.doubtful.update(numbers)
            elif word == "include":
                quoted = _INCLUDE.match(rest)
                if quoted is not None and all(b[-1].truth is not False for b in self._open):
                    self._includes.append(quoted[1])
            elif word in ("define", "undef"):
                self._define(word, rest, first + 1)
        self._found.settled.update(
            (name, macro) for name, macro in self._known.items() if isinstance(macro, Macro)
        )
        return dropped

    def _another(self, branches: list[_Branch], word: str, rest: str, last: int) -> _Branch:
        """The branch after those; nobody comes to it where one of them is taken."""
        before = [branch.truth for branch in branches]
        if True in before:
            return _Branch(False, False, last + 1, last)
        truth: bool | None = True
        elsewhere = False
        if word != "else":
            truth, elsewhere = self._truth(word.removeprefix("el"), rest)
        if truth is True and None in before:
            truth = None
        return _Branch(truth, elsewhere, last + 1, last)

    def _guards(self, index: int, condition: str) -> bool:
        """Whether the next directive defines what is asked for: a file is read a first time."""
        following = self._directives[index + 1 : index + 2]
        if not following or following[0][2] != "define":
            return False
        macro = _macro(following[0][3], 0)
        negated = self._directives[index][2] == "ifndef" or condition.strip().startswith("!")
        return macro is not None and negated and macro.name in re.findall(r"\w+", condition)

    def _define(self, word: str, rest: str, line: int) -> None:
        macro = _macro(rest, line)
        sure = [branches[-1].truth for branches in self._open]
        if macro is not None and False not in sure:
            self._known[macro.name] = None if None in sure else macro if word == "define" else False

    def _truth(self, word: str, rest: str) -> tuple[bool | None, bool]:
        """Whether the condition holds, and whether it would on another platform only."""
        condition = rest.strip()
        if condition == "__cplusplus":
            return None, False  # guards extern "C" {, which nothing needs
        if word != "if":
            name = re.match(r"\w*", condition)
            condition = f"{'!' if word == 'ifndef' else ''}defined({name[0] if name else ''})"
        here = truth(condition, self._meaning, other_platforms=False)
        anywhere = truth(condition, self._meaning, other_platforms=True)
        return here, here is False and anywhere is not False

    def _meaning(self, name: str) -> Meaning:
        macro = self._known.get(name)
        if name not in self._known and self._included is not None:
            macro = self._included(name, self._includes)
        if isinstance(macro, Macro):
            return macro.body if macro.parameters is None else None
        return macro


def _kept(lines: list[str], branches: list[_Branch]) -> list[_Branch]:
    """The branches that are read.

    Of several that may be built the first, but all that register or declare an operator: which of
    them it is, is for others to tell.
    """
    possible = [branch for branch in branches if branch.truth is not False]
    if len(branches) > 1 and len(possible) > 1:
        texts = [_bare(lines, branch) for branch in possible]
        if all(map(balanced, texts)) and any(map(_offers, texts)):
            return possible
    if possible and (len(branches) > 1 or possible[0].truth or balanced(_bare(lines, possible[0]))):
        return possible[:1]
    # What is registered for another platform only is better than nothing.
    only = branches[0]
    if len(branches) == 1 and only.elsewhere:
        text = _bare(lines, only)
        return [only] if _REGISTERS.search(text) and balanced(text) else []
    return []


def _bare(lines: list[str], branch: _Branch) -> str:
    return without_strings("\n".join(lines[branch.first : branch.last + 1]))


def _offers(text: str) -> bool:
    return bool(_REGISTERS.search(text) or _DECLARES.search(text))


class Expander:
    """Expands macros in a text; ``never`` are left as they are."""

    def __init__(self, macros: Mapping[str, Macro], never: frozenset[str] = frozenset()) -> None:
        self._macros = macros
        self._never = never
        self._budget = _LONGEST

    def expand(self, text: str) -> str:
        """The text with its macros expanded, each on the line it was used on.

        Where that would become too long or too deep, the rest stays as it is.
        """
        self._budget = _LONGEST
        return self._expand(text, frozenset())

    def _expand(self, text: str, active: frozenset[str]) -> str:
        bare: str | None = None
        parts: list[str] = []
        at = 0
        while True:
            match = self._next(text, at, active)
            if match is None:
                return "".join([*parts, text[at:]])
            macro = self._macros[match.group()]
            end, given = match.end(), None
            if macro.parameters is not None:
                bare = without_strings(text) if bare is None else bare
                called = self._call(text, bare, end)
                if called is None:
                    parts.append(text[at:end])
                    at = end
                    continue
                end, given = called
            body = _substitute(macro, given or [])
            self._budget -= len(body)
            if self._budget < 0:
                return "".join([*parts, text[at:]])
            if len(active) < _DEEPEST:
                body = self._expand(body, active | {macro.name})
            breaks = text.count("\n", match.start(), end)
            parts += [text[at : match.start()], body.replace("\n", " "), "\n" * breaks]
            at = end

    def _next(self, text: str, at: int, active: frozenset[str]) -> re.Match[str] | None:
        for match in _WORD.finditer(text, at):
            word = match.group()
            if word in self._macros and word not in active and word not in self._never:
                return match
        return None

    @staticmethod
    def _call(text: str, bare: str, at: int) -> tuple[int, list[str]] | None:
        while at < len(bare) and bare[at].isspace():
            at += 1
        if at >= len(bare) or bare[at] != "(":
            return None
        end = closing(bare, at)
        if end is None:
            return None
        return end + 1, [piece for _, piece in arguments(text, bare, at, end)]


def _substitute(macro: Macro, given: list[str]) -> str:
    names = macro.parameters or ()
    values = dict(zip(names, given, strict=False))
    for name in names:
        values.setdefault(name, "")
    if names and names[-1].endswith("..."):
        named = names[-1].removesuffix("...").strip() or "__VA_ARGS__"
        values[named] = ", ".join(given[len(names) - 1 :])
    parts: list[str] = []
    for piece in _PIECE.findall(macro.body):
        bare = piece.strip()
        if bare == "##":
            # A comma before variable arguments that are none goes with them.
            parts.append("\0")
        elif bare.startswith("#") and bare[1:].strip() in values:
            quoted = values[bare[1:].strip()].replace("\\", "\\\\").replace('"', '\\"')
            parts.append(f'"{" ".join(quoted.split())}"')
        else:
            parts.append(values.get(piece, piece))
    body = "".join(parts)
    body = re.sub(r",\s*\0\s*(?=[)\s]*$|\))", "", body) if "\0" in body else body
    return body.replace("\0", "")


def without_cuda(code: str) -> str:
    """CUDA's own syntax taken out: a launch becomes a call, qualifiers become blanks."""
    code = _LAUNCH.sub(lambda match: blank(match.group()), code) if "<<<" in code else code
    return _QUALIFIER.sub(lambda match: blank(match.group()), code)


_LAUNCH = re.compile(r"<<<(?:(?!>>>|[;{}])[\s\S]){0,2000}>>>")
_QUALIFIER = re.compile(
    r"\b__(?:global|device|host|restrict|forceinline|noinline|shared|constant|managed|inline|grid_constant)__\b"
    r"|\b__(?:launch_bounds|align|maxnreg|cluster_dims)__\s*\([^()]*(?:\([^()]*\)[^()]*)*\)"
    r"|\bextern\b(?=\s+[\w\s]*\w+\s*\[\s*\])"
    r"|\[\[[\w:, ]{1,60}\]\]|\b__restrict\b|\b__attribute__\s*\(\([^()]*\)\)"
    r"|#\s*pragma[^\n]*|_Pragma\s*\([^()\n]*\)"
)
