"""Which limits an output may be held against, and who has to give a reason.

The rules of the working description: cosine 0.999999; quantised operators 0.99 or more. Per-element
limits follow from the dtype (``elements``). Whatever is looser is allowed, but told in the record
with its reason, and warned of where it has none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

COSINE = 0.999999
QUANTISED_COSINE = 0.99

_QUANTISED_NAME = re.compile(
    r"quant|awq|gptq|marlin|wna16|scaled_mm|fp8|fp4|int8|int4|(?:^|_)w[48](?:a\d+)?(?:_|$)"
)


@dataclass(frozen=True)
class Limit:
    """What one output was held against: the least cosine, or the largest relative error."""

    check: str
    threshold: float
    reason: str | None
    outside_rules: bool

    def entry(self) -> dict[str, Any]:
        """As the record's ``verification.thresholds`` has it."""
        return {
            "check": self.check,
            "threshold": self.threshold,
            "reason": self.reason,
            "outside_rules": self.outside_rules,
        }


def quantised_name(op: str) -> bool:
    """Whether an operator's name says that it quantises or works on quantised numbers."""
    return _QUANTISED_NAME.search(op.lower()) is not None


def cosine_outside(threshold: float, quantised: bool) -> bool:
    """Whether a least cosine is looser than the rules allow."""
    return threshold < (QUANTISED_COSINE if quantised else COSINE)
