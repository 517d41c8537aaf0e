"""The preprocessor's part: which branch of a conditional is read, macros and their expansion.

Nothing is known of the build, so a condition is judged by what is common to all of them: the code
for another platform gives way to the one beside it, and a part that would leave a bracket open is
left out. Lines keep their numbers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

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
_OTHER_PLATFORM = re.compile(r"\b(USE_ROCM|__HIP\w*|USE_XPU|USE_MUSA|_WIN32|_MSC_VER)\b")
_REGISTERS = re.compile(r"(?:\.|->)\s*(?:def|impl)\s*\(")
_CONDITIONS = frozenset(("if", "ifdef", "ifndef"))
_WORD = re.compile(r'"(?:\\.|[^"\\\n])*"|[A-Za-z_]\w*')
_PIECE = re.compile(r'"(?:\\.|[^"\\\n])*"|\s*##\s*|#\s*[A-Za-z_]\w*|[A-Za-z_]\w*|[\s\S]', re.DOTALL)
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


@dataclass
class _Branch:
    truth: bool | None  # None: nobody knows
    dead: bool  # #if 0
    first: int
    last: int


def preprocess(text: str) -> Preprocessed:
    """Take the directives out of a text that has no comments any more."""
    lines = text.split("\n")
    directives = _directives(lines)
    dropped = _dropped(lines, directives)
    found = Preprocessed("")
    for first, last, word, rest in directives:
        if not dropped[first]:
            _note(found, word, rest, first + 1)
        for number in range(first, last + 1):
            lines[number] = ""
    kept = ("" if drop else line for line, drop in zip(lines, dropped, strict=True))
    found.code = "\n".join(kept)
    return found


def _directives(lines: list[str]) -> list[tuple[int, int, str, str]]:
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
        match = _DEFINE.match(rest)
        if match is not None:
            listed = match[3]
            parameters = None
            if match[2] is not None:
                parameters = tuple(p.strip() for p in listed.split(",")) if listed.strip() else ()
            found.macros.setdefault(match[1], Macro(match[1], parameters, match[4].strip(), line))


def _dropped(lines: list[str], directives: list[tuple[int, int, str, str]]) -> list[bool]:
    dropped = [False] * len(lines)
    open_ones: list[list[_Branch]] = []
    for first, last, word, rest in directives:
        if word in _CONDITIONS:
            dead = word == "if" and rest.strip() == "0"
            open_ones.append([_Branch(_truth(word, rest), dead, last + 1, last)])
        elif word in ("elif", "else", "endif") and open_ones:
            branches = open_ones[-1]
            branches[-1].last = first - 1
            if word != "endif":
                truth = _truth("if", rest) if word == "elif" else None
                branches.append(_Branch(truth, False, last + 1, last))
                continue
            open_ones.pop()
            kept = _kept(lines, branches)
            for branch in branches:
                if branch is not kept:
                    for number in range(branch.first, branch.last + 1):
                        dropped[number] = True
    return dropped


def _kept(lines: list[str], branches: list[_Branch]) -> _Branch | None:
    if len(branches) > 1:
        possible = [b for b in branches if b.truth is not False]
        return next((b for b in possible if b.truth), possible[0] if possible else None)
    (only,) = branches
    text = "\n".join(lines[only.first : only.last + 1])
    if only.dead:
        return None
    if only.truth is False:
        # What is registered for another platform only is better than nothing.
        return only if _REGISTERS.search(text) and balanced(without_strings(text)) else None
    return only if only.truth or balanced(without_strings(text)) else None


def _truth(word: str, rest: str) -> bool | None:
    condition = rest.strip()
    if word == "if" and condition in ("0", "1"):
        return condition == "1"
    if condition == "__cplusplus":
        return None  # guards extern "C" {, which nothing needs
    if _OTHER_PLATFORM.search(condition) and "||" not in condition:
        negated = word == "ifndef" or condition.startswith("!")
        return True if negated and "&&" not in condition else None if negated else False
    return None


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
