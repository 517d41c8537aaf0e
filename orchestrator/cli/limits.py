"""Options on limits and retries that ``run`` and ``testall`` share: they override the inventory."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestrator.errors import UsageError

if TYPE_CHECKING:
    from orchestrator.inventory.model import Target
    from orchestrator.workflows.context import Context

_NEVER = "none"
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_TIME = re.compile(r"(\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+)([smhd]?)", re.A)

ConnectTimeoutOption = Annotated[
    str | None,
    typer.Option(
        "--connect-timeout",
        metavar="TIME",
        help="Time to connect and log in: seconds, or 2m; default 15.",
    ),
]
SilenceOption = Annotated[
    str | None,
    typer.Option(
        "--silence",
        metavar="TIME",
        help="Seconds, or 2m, 1h, without output after which a job counts as hung; "
        "none (default): no limit.",
    ),
]
JobTimeoutOption = Annotated[
    str | None,
    typer.Option(
        "--job-timeout",
        metavar="TIME",
        help="Seconds, or 2m, 1h, that one job may take; default 1h; none: no limit.",
    ),
]
RunTimeoutOption = Annotated[
    str | None,
    typer.Option(
        "--run-timeout",
        metavar="TIME",
        help="Seconds, or 2m, 1h, that the whole run may take; none (default): no limit.",
    ),
]
RetriesOption = Annotated[
    int | None,
    typer.Option(
        "--retries",
        min=0,
        max=20,
        metavar="N",
        help="How often a job is tried again after a lost link; default 2.",
    ),
]
RetryHungOption = Annotated[bool, typer.Option("--retry-hung", help="Try a hung job again, once.")]
DetachOption = Annotated[
    bool,
    typer.Option("--detach", help="Go on in the background; see attach, logs --follow and kill."),
]


def limited(
    context: Context,
    *,
    connect: str | None,
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
    to_connect = None if connect is None else _time("--connect-timeout", connect, "")

    def within(target: Target) -> Target:
        changed = replace(target, timeouts=replace(target.timeouts, **times))
        if retries is not None:
            changed = replace(changed, retries=retries)
        if to_connect is not None:
            changed = replace(changed, host=replace(target.host, connect_timeout=to_connect))
        return changed

    inventory = replace(
        context.inventory, targets=tuple(within(target) for target in context.inventory.targets)
    )
    return replace(
        context, inventory=inventory, targets=tuple(within(target) for target in context.targets)
    )


def _seconds(name: str, text: str) -> float | None:
    return None if text == _NEVER else _time(name, text, f", or {_NEVER}")


def _time(name: str, text: str, otherwise: str) -> float:
    """The seconds of ``90``, ``1.5m``, ``2h``; raises ``UsageError`` for what is no time."""
    found = _TIME.fullmatch(text)
    value = float(found[1]) * _UNITS[found[2]] if found is not None else 0.0
    if not 0 < value < float("inf"):
        raise UsageError(
            f"{name} {text!r} is no time", hint=f"write seconds above 0, 2m, 1h{otherwise}"
        )
    return value
