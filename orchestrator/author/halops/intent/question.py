"""What has to be asked, in the language of the one who is asked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field as made
from typing import Any


@dataclass(frozen=True)
class Question:
    """One question; ``field`` is the config's, or ``op`` or ``scenario``.

    ``choices``: what is allowed, empty for anything; ``example``: an answer, as the config has it;
    ``needs``: of a scenario that may be chosen the key fields that would still be open.
    """

    field: str
    text: str
    choices: tuple[str, ...] = ()
    example: Any = None
    needs: Mapping[str, tuple[str, ...]] = made(default_factory=dict)

    @property
    def option(self) -> str:
        """The words of the command line that answer it."""
        if self.field in ("op", "scenario"):
            return f"--{self.field} {self.choices[0] if self.choices else 'NAME'}"
        shown = (
            json.dumps(self.example, ensure_ascii=False) if self.example is not None else "VALUE"
        )
        return f"--set {self.field}={shown}"

    def as_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        found: dict[str, Any] = {"field": self.field, "question": self.text, "option": self.option}
        if self.choices:
            found["choices"] = list(self.choices)
        if self.example is not None:
            found["example"] = self.example
        if self.needs:
            found["needs"] = {name: list(fields) for name, fields in self.needs.items()}
        return found
