"""Options on limits and retries that ``run`` and ``testall`` share: they override the inventory."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestrator.errors import UsageError

if TYPE_CHECKING:
    from orchestrator.inventory.model import Target
    from orchestrator.workflows.context import Context

_NEVER = "none"

ConnectTimeoutOption = Annotated[
    float | None, typer.Option("--connect-timeout", metavar="S", help="To connect and log in.")
]
SilenceOption = Annotated[
    str | None,
    typer.Option("--silence", metavar="S", help="Without any output a job hangs; none: never."),
]
JobTimeoutOption = Annotated[
    str | None, typer.Option("--job-timeout", metavar="S", help="That one job may take, or none.")
]
RunTimeoutOption = Annotated[
    str | None, typer.Option("--run-timeout", metavar="S", help="That the run may take, or none.")
]
RetriesOption = Annotated[
    int | None,
    typer.Option("--retries", min=0, max=20, metavar="N", help="After a lost link; default 2."),
]
RetryHungOption = Annotated[
    bool, typer.Option("--retry-hung", help="Run a job that hung once more.")
]
DetachOption = Annotated[
    bool,
    typer.Option("--detach", help="Go on in the background; see attach, logs --follow and kill."),
]


def limited(
    context: Context,
    *,
    connect: float | None,
    silence: str | None,
    job: str | None,
    run: str | None,
    retries: int | None,
) -> Context:
    """The context with all targets' limits as they were given on the command line."""
    given = {"silence": silence, "job": job, "run": run}
    names = {"silence": "--silence", "job": "--job-timeout", "run": "--run-timeout"}
    times: dict[str, Any] = {
        key: _seconds(names[key], text) for key, text in given.items() if text is not None
    }
    if connect is not None and not 0 < connect < float("inf"):
        raise UsageError("--connect-timeout is no time", hint="write seconds above 0")

    def within(target: Target) -> Target:
        changed = replace(target, timeouts=replace(target.timeouts, **times))
        if retries is not None:
            changed = replace(changed, retries=retries)
        if connect is not None:
            changed = replace(changed, host=replace(target.host, connect_timeout=connect))
        return changed

    inventory = replace(
        context.inventory, targets=tuple(within(target) for target in context.inventory.targets)
    )
    return replace(
        context, inventory=inventory, targets=tuple(within(target) for target in context.targets)
    )


def _seconds(name: str, text: str) -> float | None:
    if text == _NEVER:
        return None
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise UsageError(f"{name} {text!r} is no time", hint="write seconds above 0, or none")
    return value
