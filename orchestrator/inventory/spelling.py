"""What a misspelt word was probably meant to be."""

from __future__ import annotations

from collections.abc import Collection


def near(word: str, known: Collection[str]) -> str | None:
    """The known word nearest to ``word``, or None when none is near."""
    from difflib import get_close_matches

    if len(word) > 100 or len(known) > 5000:  # quadratic beyond any use
        return None
    folded = {name.lower(): name for name in known}
    found = get_close_matches(word.lower(), list(folded), n=1, cutoff=0.6)
    return folded[found[0]] if found else None


def short(text: str, limit: int = 60) -> str:
    """The text as an error may quote it: not endless, and no character that moves a cursor."""
    shown = text if len(text) <= limit else text[: limit - 3] + "..."
    return "".join(char if char.isprintable() else "?" for char in shown)


def unknown(
    kind: str, word: str, known: Collection[str], others: Collection[str] = ()
) -> tuple[str, str | None]:
    """Message and hint for an unknown word: the near spelling, else what there is.

    ``others`` are words of another kind, which are guessed where none of ``known`` is near.
    """
    message = f'unknown {kind} "{short(word)}"'
    guess = near(word, known) or near(word, others)
    if guess is not None:
        return f'{message}, did you mean "{guess}"?', None
    some = sorted(known)[:12]
    more = ", ..." if len(known) > len(some) else ""
    return message, f"known: {', '.join(some)}{more}" if some else None
