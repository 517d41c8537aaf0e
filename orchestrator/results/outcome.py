"""How a job's command ended, as its agent tells it: well only by itself and with exit code 0."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from typing import Any


def ended_well(outcome: Mapping[str, Any]) -> bool:
    """Whether the command came to its own end with exit code 0; a signal has no exit code."""
    return (
        outcome.get("ended") == "exited"
        and outcome.get("exit_code") == 0
        and not outcome.get("signal")
    )


def how_it_ended(outcome: Mapping[str, Any]) -> str:
    """``was killed by SIGSEGV``, ``ended with exit code 1``."""
    number = outcome.get("signal")
    if number:
        try:
            return f"was killed by {signal.Signals(number).name}"
        except ValueError:
            return f"was killed by signal {number}"
    code = outcome.get("exit_code")
    return f"ended with {'an unknown exit code' if code is None else f'exit code {code}'}"
