"""How a run measures, if at all: samples, repeats, cases, how strictly; and who can honour it.

What is not asked for is left to the front door, which has defaults of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

Sampling = Literal["adaptive", "established"]


@dataclass(frozen=True)
class Measuring:
    """What the user asked of a run's measurements; ``cases`` are ``KEY=VALUE`` filters.

    ``verify_only``: only the accuracy step, nothing is timed.
    """

    samples: int | None = None
    sampling: Sampling | None = None
    repeats: int | None = None
    cases: tuple[str, ...] = ()
    strict: bool = False
    verify_only: bool = False

    def words(self) -> list[str]:
        """The arguments that our own front door takes for it."""
        words = []
        if self.samples is not None:
            words += ["--set", f"samples={self.samples}"]
        if self.sampling is not None:
            words += ["--sampling", self.sampling]
        if self.repeats is not None:
            words += ["--repeats", str(self.repeats)]
        for case in self.cases:
            words += ["--case", case]
        if self.strict:
            words.append("--strict")
        if self.verify_only:
            words.append("--verify")
        return words

    def beyond_established(self) -> list[str]:
        """The options that an established script cannot honour.

        It measures all cases of its config, in one process with the established settings; asking
        for just that asks for nothing. To verify takes no script of theirs (``accuracy_step``).
        """
        if self.verify_only:
            return []
        options = []
        if self.sampling == "adaptive":
            options.append("--sampling adaptive")
        if self.repeats not in (None, 1):
            options.append(f"--repeats {self.repeats}")
        options += [f"--case {case}" for case in self.cases]
        return options

    def as_dict(self) -> dict[str, Any]:
        """For ``plan.json``; ``from_dict`` reads it."""
        return {**asdict(self), "cases": list(self.cases)}

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Measuring:
        """What ``as_dict`` gave; raises ``TypeError`` for anything else."""
        return cls(**{**saved, "cases": tuple(saved.get("cases", ()))})
