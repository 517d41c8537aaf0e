"""``mxfleet verify``: only the accuracy step of operators, on every selected target.

A run like any other, in all but this: nothing is timed, so nothing is merged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from orchestrator.errors import ExitCode
from orchestrator.events import Event, Summary
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

    def told(event: Event) -> None:
        context.sink(replace(event, command="verify") if isinstance(event, Summary) else event)

    measuring = Measuring(cases=tuple(cases), strict=strict, verify_only=True)
    return run(replace(context, sink=told), ops, measuring=measuring, dry_run=dry_run)
