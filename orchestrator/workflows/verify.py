"""``mxfleet verify``: only the accuracy step of operators, on every selected target.

A run like any other, in all but this: nothing is timed, so nothing is merged.
"""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.errors import ExitCode
from orchestrator.suites.measuring import Measuring
from orchestrator.workflows.context import Context
from orchestrator.workflows.run import run


def verify(
    context: Context,
    ops: Sequence[str],
    *,
    cases: Sequence[str] = (),
    strict: bool = False,
    dry_run: bool = False,
) -> ExitCode:
    """Verify ``ops`` on the context's targets; ``cases`` are ``KEY=VALUE`` filters."""
    measuring = Measuring(cases=tuple(cases), strict=strict, verify_only=True)
    return run(context, ops, measuring=measuring, dry_run=dry_run, command="verify")
