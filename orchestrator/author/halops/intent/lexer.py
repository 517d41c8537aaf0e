"""A sentence's words and numbers; Chinese has no blanks, so the longest known word is taken."""

from __future__ import annotations

import functools
import re
import unicodedata
from dataclasses import dataclass

from orchestrator.author.halops.intent import lexicon

_UNITS = {"k": 1024, "m": 1024 * 1024}
_NUMBER = r"\d+(?:\.\d+)?(?:[km](?![a-z0-9_]))?"
_SHAPE = re.compile(rf"({_NUMBER})((?:\s*[x×*]\s*{_NUMBER})+)(?![a-z0-9_])")
_LIST = re.compile(rf"[\[(]\s*({_NUMBER}(?:\s*[,、]\s*{_NUMBER})*)\s*[\])]")
_PLAIN_NUMBER = re.compile(_NUMBER)
# As code spells backends, scenarios, fields: fi(trtllm-gen), decode_gqa, torch.sdpa.
_NAME = re.compile(r"[a-z_][a-z0-9_]*(?:[-.][a-z0-9_]+)*(?:\([a-z][a-z0-9_.-]*\))?")
_CHINESE = re.compile(r"[\u3400-\u9fff]")
_MARKS = {"/": "sep", "、": "sep", "|": "sep", "&": "and", "+": "and", ",": "comma", ";": "stop"}
_MARKS |= {"。": "stop", "\n": "stop", "=": "is", "~": "to", "-": "to", "–": "to", "—": "to"}
_MARKS |= {":": "colon", "!": "stop", "?": "stop", ".": "stop"}


@dataclass(frozen=True)
class Token:
    """A word of the lexicon, a number, a shape, a list, a name or a mark.

    ``value``: what the word stands for; ``numbers``: of a number one, of a shape or list all.
    ``text`` is as it was written, in lower case.
    """

    kind: str
    text: str
    value: str = ""
    numbers: tuple[int, ...] = ()


def is_chinese(text: str) -> bool:
    """Whether there is a Chinese character in it."""
    return _CHINESE.search(text) is not None


def tokens(text: str) -> list[Token]:
    """The tokens of ``text``; full-width characters are as their plain ones."""
    plain = unicodedata.normalize("NFKC", text).lower()
    found: list[Token] = []
    at = 0
    while at < len(plain):
        if plain[at].isspace() and plain[at] != "\n":
            at += 1
            continue
        token, end = _next(plain, at)
        if token is not None:
            found.append(token)
        at = end
    return found


def number(text: str) -> int | None:
    """``4k`` as 4096, ``1.5k`` as 1536; None where it is no whole number."""
    unit = _UNITS.get(text[-1:], 1)
    value = float(text.rstrip("km")) * unit
    return int(value) if value == int(value) else None


def _next(text: str, at: int) -> tuple[Token | None, int]:
    """The token at ``at`` and where it ends; None for what says nothing."""
    for pattern, kind in ((_LIST, "list"), (_SHAPE, "shape"), (_PLAIN_NUMBER, "number")):
        match = pattern.match(text, at)
        if match:
            values = [number(one) for one in re.findall(_NUMBER, match[0])]
            whole = tuple(value for value in values if value is not None)
            sort = kind if len(whole) == len(values) else "unknown"
            return Token(sort, match[0], numbers=whole), match.end()
    name = _NAME.match(text, at)
    word = _word().match(text, at)
    # What code spells, underscores and all, is a name, but for the words of the field.
    if word and (name is None or _is_word(word[0], name[0])):
        kind, value = _meanings()[folded(word[0])]
        return Token(kind, word[0], value), word.end()
    if name:
        return Token("name", name[0], name[0]), name.end()
    if text.startswith("..", at):
        return Token("to", ".."), at + 2
    if text[at] in _MARKS:
        return Token(_MARKS[text[at]], text[at]), at + 1
    if _CHINESE.match(text[at]):
        return Token("unknown", text[at]), at + 1
    return None, at + 1


def _is_word(word: str, name: str) -> bool:
    """Whether of two that begin alike the word is meant: ``bs16`` is no name, ``fa4_paged`` is."""
    rest = name[len(word) :]
    return len(name) <= len(word) or rest[:1] in "-(" or rest.isdigit()


def folded(word: str) -> str:
    """The word without what may stand between its parts."""
    return re.sub(r"[\s_-]+", "", word)


@functools.cache
def _meanings() -> dict[str, tuple[str, str]]:
    return {folded(word): (kind, value) for word, kind, value in lexicon.entries()}


@functools.cache
def _word() -> re.Pattern[str]:
    """Any word of the lexicon, the longest first.

    A Latin one ends where its letters end; an amount may have its number at once (``bs16``).
    """
    found = []
    for word, kind, _ in sorted(lexicon.entries(), key=lambda entry: -len(entry[0])):
        parts = r"[\s_-]*".join(re.escape(part) for part in word.split(" "))
        ends = ""
        if word[-1].isascii():
            ends = r"(?![a-z_])" if kind == "amount" else r"(?![a-z0-9_])"
        starts = r"(?<![a-z_])" if word[0].isascii() else ""
        found.append(f"{starts}{parts}{ends}")
    return re.compile("|".join(found))
