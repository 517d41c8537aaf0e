"""From a sentence to an ``Intent``: which number belongs to which word, and what is ruled out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from orchestrator.author.halops.intent import numbers
from orchestrator.author.halops.intent.lexer import Token, folded, is_chinese, tokens
from orchestrator.author.halops.intent.lexicon import COUNTED, IMPLIED
from orchestrator.author.halops.intent.model import Intent, Word

_LOGIC = {"true": True, "false": False}


def parse_intent(text: str) -> Intent:
    """What ``text``, Chinese or English or both, asks for; nothing in it is an error."""
    reading = _Reading(tokens(text))
    reading.all()
    return Intent(
        text=text,
        tags=tuple(dict.fromkeys(reading.tags)),
        not_tags=tuple(dict.fromkeys(reading.not_tags)),
        dtypes=_joined(reading.dtypes),
        cache_dtype=reading.cache_dtype,
        amounts=reading.amounts,
        shapes=tuple(dict.fromkeys(reading.shapes)),
        words=tuple(reading.words),
        named=reading.named,
        switches=reading.switches,
        all_backends=reading.all_backends,
        chinese=is_chinese(text),
        unclear=tuple(reading.unclear),
        unknown=_runs(reading.unknown),
        told=tuple(reading.told),
    )


@dataclass
class _Reading:
    """The tokens, how far they are read, and what they came to."""

    tokens: Sequence[Token]
    at: int = 0
    tags: list[str] = field(default_factory=list)
    not_tags: list[str] = field(default_factory=list)
    dtypes: list[str] = field(default_factory=list)
    cache_dtype: str | None = None
    amounts: dict[str, tuple[int, ...]] = field(default_factory=dict)
    shapes: list[tuple[int, ...]] = field(default_factory=list)
    words: list[Word] = field(default_factory=list)
    named: dict[str, Any] = field(default_factory=dict)
    switches: dict[str, bool] = field(default_factory=dict)
    all_backends: bool = False
    unclear: list[str] = field(default_factory=list)
    unknown: list[tuple[int, str]] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    loose: tuple[int, ...] = ()  # numbers whose word is still to come
    negated: bool = False
    ruled_out: bool = False  # a name was negated and only a comma came since
    of_backends: bool = False

    def all(self) -> None:
        """Read every token once."""
        while self.at < len(self.tokens):
            token = self.tokens[self.at]
            self.at += 1
            self._scope(token)
            getattr(self, f"_{token.kind}", self._nothing)(token)
            if token.kind in ("tag", "dtype", "switch") and not self._goes_on():
                self.negated = False
        self._drop_loose()

    def _goes_on(self) -> bool:
        """Whether a list goes on behind what was read."""
        return self.at < len(self.tokens) and self.tokens[self.at].kind in ("and", "sep")

    def _peek(self, kind: str) -> Token | None:
        """The next token that is no filler, where it is of that kind."""
        at = numbers.skip(self.tokens, self.at)
        found = at < len(self.tokens) and self.tokens[at].kind == kind
        return self.tokens[at] if found else None

    def _scope(self, token: Token) -> None:
        """A negation reaches over a list and ends with it."""
        if token.kind == "stop" or token.kind in ("but", "backends_all"):
            self.negated = self.ruled_out = False
        elif token.kind == "comma" and self.negated:
            self.negated, self.ruled_out = False, bool(self.words and self.words[-1].negated)
        elif token.kind in ("amount", "dtype", "shapes", "number") and self.ruled_out:
            self.ruled_out = False
        if token.kind in ("amount", "tag", "dtype", "stop"):
            self.of_backends = False

    def _nothing(self, token: Token) -> None:
        """Words and marks that say nothing by themselves."""

    def _unknown(self, token: Token) -> None:
        self.unknown.append((self.at - 1, token.text))

    def _not(self, token: Token) -> None:
        self.negated, self.ruled_out = True, False

    def _number(self, token: Token) -> None:
        self._drop_loose()
        found = numbers.take(self.tokens, self.at - 1, "")
        if found is not None:
            self.at = found.end
            self.loose = found.values
            self._say(found)

    def _list(self, token: Token) -> None:
        after = self._peek("amount")
        if after is None and len(token.numbers) in (3, 4):
            self._shape(token)
        else:
            self._number(token)

    def _shape(self, token: Token) -> None:
        if len(token.numbers) in (3, 4):
            self.shapes.append(token.numbers)
        else:
            self.unclear.append(f"{token.text} is no shape of 3 or 4 numbers")

    def _amount(self, token: Token) -> None:
        meaning = token.value
        if meaning == "mtp" or meaning == "chunk":
            self.tags.append(meaning)
        if meaning == "group":
            self.tags.append("gqa")
        if self.loose and (meaning in COUNTED or not numbers.follows(self.tokens, self.at)):
            self._set(meaning, self.loose)
            self.loose = ()
            return
        self._drop_loose()
        start = numbers.skip(self.tokens, self.at)
        found = numbers.take(self.tokens, start, meaning)
        if found is None:
            return
        self.at = found.end
        self._say(found)
        if meaning == "group":
            self._group(found)
        elif found.values:
            self._set(meaning, found.values)

    def _group(self, found: numbers.Numbers) -> None:
        """``GQA 8``, ``GQA 8:1`` and ``GQA 64/8``, which are the heads themselves."""
        values = found.values
        if self._peek_mark(":") and len(values) == 1:
            self.at += 1
            below = numbers.take(self.tokens, self.at, "")
            self.at = below.end if below else self.at
            values = (*values, *(below.values if below else ()))
        if len(values) == 2 and values[1] > 0 and values[0] % values[1] == 0:
            if values[1] > 1:
                self._set("q_heads", values[:1])
                self._set("kv_heads", values[1:])
                return
            values = values[:1]
        if len(values) == 1:
            self._set("group", values)
        else:
            self.unclear.append(f"GQA {'/'.join(map(str, values))} is no ratio")

    def _peek_mark(self, mark: str) -> bool:
        return self.at < len(self.tokens) and self.tokens[self.at].text == mark

    def _set(self, meaning: str, values: tuple[int, ...]) -> None:
        self.amounts[meaning] = tuple(dict.fromkeys((*self.amounts.get(meaning, ()), *values)))

    def _say(self, found: numbers.Numbers) -> None:
        if found.unclear:
            self.unclear.append(found.unclear)
        if found.told:
            self.told.append(found.told)

    def _drop_loose(self) -> None:
        if self.loose:
            self.unclear.append(f"{', '.join(map(str, self.loose))} is of nothing that was named")
        self.loose = ()

    def _tag(self, token: Token) -> None:
        tags = (token.value, *IMPLIED.get(folded(token.text), ()))
        if self.negated:
            self.not_tags.append(token.value)
        else:
            self.tags += tags
        if token.value == "mqa":
            self._set("kv_heads", (1,))
        elif token.value == "mha":
            self._set("group", (1,))

    def _dtype(self, token: Token) -> None:
        if self.negated:
            return
        if self._cache_is_next():
            self.cache_dtype = token.value
        else:
            self.dtypes.append(token.value)

    def _cache_is_next(self) -> bool:
        """``fp8 kv cache``, where neither a dtype nor a length of the cache comes behind it."""
        at = numbers.skip(self.tokens, self.at)
        if at >= len(self.tokens) or self.tokens[at].kind != "cache":
            return False
        behind = numbers.skip(self.tokens, at + 1)
        kinds = ("number", "list", "dtype")
        return behind >= len(self.tokens) or self.tokens[behind].kind not in kinds

    def _cache(self, token: Token) -> None:
        """The KV cache: its dtype, or how long it is."""
        at = self.at
        while at < len(self.tokens) and self.tokens[at].kind in ("is", "filler", "but", "colon"):
            at += 1
        if at < len(self.tokens) and self.tokens[at].kind == "dtype":
            self.cache_dtype = self.tokens[at].value
            self.at = at + 1
        elif self.loose or numbers.follows(self.tokens, self.at):
            self._amount(Token("amount", token.text, "kv_len"))

    def _switch(self, token: Token) -> None:
        self.switches[token.value] = not self.negated
        if self._peek("not"):  # "refcheck 关掉": the negation behind the word
            self.switches[token.value] = False
            self.at = numbers.skip(self.tokens, self.at) + 1
        following = self._peek("name")
        if following is not None and following.text in ("false", "off", "true"):
            self.switches[token.value] = following.text == "true"
            self.at = numbers.skip(self.tokens, self.at) + 1

    def _backends(self, token: Token) -> None:
        self.of_backends = True

    def _backends_all(self, token: Token) -> None:
        self.all_backends = True

    def _all(self, token: Token) -> None:
        if self._peek("backends") or not any(
            one.kind in ("amount", "dtype", "shapes") for one in self.tokens[self.at : self.at + 1]
        ):
            self.all_backends = True

    def _name(self, token: Token) -> None:
        if self._peek_mark("=") and not numbers.follows(self.tokens, self.at):
            self._assign(token)
            return
        start = numbers.skip(self.tokens, self.at)
        assigned = self._peek_mark("=")
        if numbers.follows(self.tokens, self.at) and (
            assigned or not numbers.is_for_next(self.tokens, start)
        ):
            found = numbers.take(self.tokens, start, "")
            if found is not None:
                self.at = found.end
                self.named[token.value] = _plain(found.values)
        if not assigned:
            if self.ruled_out:
                self.unclear.append(f"whether {token.text} is wanted or ruled out, too")
            self.words.append(Word(token.value, self.negated, self.of_backends))

    def _assign(self, token: Token) -> None:
        """``cache_quant_type=fp8``: the word as it stands, true and false as such."""
        self.at += 1
        if self.at < len(self.tokens):
            text = self.tokens[self.at].text
            self.at += 1
            self.named[token.value] = _LOGIC.get(text, text)


def _plain(values: tuple[int, ...]) -> Any:
    return values[0] if len(values) == 1 else list(values)


def _joined(dtypes: Sequence[str]) -> tuple[str, ...]:
    """``w8a8`` beside ``mxfp8`` is one format, said in two words."""
    left = list(dict.fromkeys(dtypes))
    for bits, formats in (("w8a8", ("mxfp8", "fp8", "int8")), ("w4a4", ("nvfp4",))):
        kind = next((one for one in formats if one in left), None)
        if bits in left and kind is not None:
            left[left.index(bits)] = f"{bits}-{kind}"
            left.remove(kind)
        elif bits in left and any(one.startswith(f"{bits}-") for one in left):
            left.remove(bits)
    return tuple(left)


def _runs(found: Sequence[tuple[int, str]]) -> tuple[str, ...]:
    """Characters that stood side by side, as the word that they probably are."""
    words: list[str] = []
    last = -2
    for at, text in found:
        if at == last + 1 and words and is_chinese(text):
            words[-1] += text
        else:
            words.append(text)
        last = at
    return tuple(dict.fromkeys(words))
