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

    ``verify_only``: only the accuracy step, nothing is timed. ``profiler``: the words in front of
    the command; what is timed under one is kept, but no reference for anything.
    """

    samples: int | None = None
    sampling: Sampling | None = None
    repeats: int | None = None
    cases: tuple[str, ...] = ()
    strict: bool = False
    verify_only: bool = False
    profiler: tuple[str, ...] = ()

    def words(self) -> list[str]:
        """The arguments that our own front door takes for it."""
        words = []
        if self.samples is not None:
            words += ["--set", f"samples={self.samples}"]
        if self.sampling is not None:
            words += ["--sampling", self.sampling]
        repeats = self.repeats or (1 if self.profiler else None)  # several would be profiled alike
        if repeats is not None:
            words += ["--repeats", str(repeats)]
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
        lists = {"cases": list(self.cases), "profiler": list(self.profiler)}
        return {**asdict(self), **lists}

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Measuring:
        """What ``as_dict`` gave; raises ``TypeError`` for anything else."""
        tuples = {name: tuple(saved.get(name, ())) for name in ("cases", "profiler")}
        return cls(**{**saved, **tuples})
