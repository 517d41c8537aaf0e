"""How a run goes about what goes wrong: what is tried again, how long, and when it is given up."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception_type,
    stop_after_attempt,
    stop_after_delay,
    wait_exponential_jitter,
)
from tenacity.nap import sleep_using_event

from orchestrator.errors import MxfleetError, TargetError, TransientError
from orchestrator.events import Note, Sink
from orchestrator.inventory.model import Target

_FIRST_WAIT, _LONGEST_WAIT = 1.0, 30.0  # seconds between tries of a connect
_FEWEST = 3  # targets that have to fail alike before it is called most of them

Made = TypeVar("Made")


@dataclass(frozen=True)
class Policy:
    """What was asked for; ``detached``: the run outlives its terminal, its jobs their links."""

    retry_hung: bool = False
    serial: bool = False
    all_lanes: bool = False
    detached: bool = False


def persistently(
    call: Callable[[], Made], target: Target, stopping: threading.Event, sink: Sink, limit: float
) -> Made:
    """``call`` again and again while its target is unreachable for now, with growing pauses.

    At most the target's ``retries``, or within ``limit`` seconds if that is longer.
    """

    def tell(state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome is not None else None
        told = error.message if isinstance(error, MxfleetError) else str(error)
        wait = state.next_action.sleep if state.next_action is not None else 0.0
        text = f"{told}; trying again in {wait:.0f} s"
        sink(Note(text, target=target.name, level="warning"))

    enough, too_long = stop_after_attempt(1 + target.retries), stop_after_delay(limit)

    def stop(state: RetryCallState) -> bool:
        return stopping.is_set() or (enough(state) and too_long(state))

    retrying = Retrying(
        retry=retry_if_exception_type(TransientError),
        stop=stop,
        wait=wait_exponential_jitter(_FIRST_WAIT, _LONGEST_WAIT),
        sleep=sleep_using_event(stopping),
        before_sleep=tell,
        reraise=True,
    )
    return retrying(call)


class NotTriedError(TargetError):
    """A target was given up because of the others."""


class MassFailure:
    """Notices that most targets fail the same way: then it is not the targets' fault."""

    def __init__(self, targets: Sequence[Target], sink: Sink) -> None:
        self._total = len(targets)
        names = {n for t in targets for n in (t.name, t.host.name, t.host.address) if n}
        longest_first = "|".join(re.escape(name) for name in sorted(names, key=len)[::-1])
        self._names = re.compile(rf"(?<![\w-])(?:{longest_first})(?![\w-])")
        self._sink = sink
        self._seen: dict[str, set[str]] = {}
        self._lock = threading.Lock()
        self._most: str | None = None
        self.reason: str | None = None

    def count(self, target: Target, error: MxfleetError) -> bool:
        """A target failed; whether it was told already that most fail like this.

        Says so once, when this one makes them most.
        """
        shape = self._shape(error)
        with self._lock:
            if self.reason is not None:
                return shape == self._most or isinstance(error, NotTriedError)
            alike = self._seen.setdefault(shape, set())
            alike.add(target.name)
            if len(alike) < max(_FEWEST, self._total // 2 + 1):
                return False
            self.reason, self._most = error.message, shape
        text = f"{len(alike)} of {self._total} targets fail the same way, stopping: {error.message}"
        self._sink(Note(text, level="error"))
        return False

    def check(self, target: Target) -> None:
        """Raise for a target that was not begun when most others had failed."""
        if self.reason is not None:
            raise NotTriedError(
                f"not tried, since most targets fail the same way: {self.reason}",
                where=target.name,
            )

    def _shape(self, error: MxfleetError) -> str:
        """The message without what is particular to a host."""
        text = self._names.sub("HOST", error.message)
        return f"{type(error).__name__}: {re.sub('[0-9]+', 'N', text)}"
