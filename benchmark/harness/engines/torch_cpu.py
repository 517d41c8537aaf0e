"""The ``torch`` engine: wall-clock time on the CPU with ``torch.utils.benchmark``.

A sample is the mean of a block of calls, long enough for the clock. Sampling ends when ``samples``
blocks are there or the minimum time (0.5 s; adaptive, in each of several processes: 0.1 s) is
spent, whichever comes first, but not before five blocks or one timeout: an upper bound, so that
``samples`` 1000 does not run for minutes. There is no GPU time here and none is made up; caches
stay warm between calls.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from harness import timing
from harness.engines import Measurement, Settings
from harness.engines.state import CaseState, Launch

DEFAULT_MIN_TIME = 0.5
ADAPTIVE_MIN_TIME = 0.1
DEFAULT_TIMEOUT = 600.0
FEWEST_BLOCKS = 5


class _EnoughError(Exception):
    """Raised out of the timer's loop once there are samples enough."""


class TorchState(CaseState):
    """State of the CPU: no stream, one timer."""

    def __init__(self, dev_id: int, settings: Settings) -> None:
        super().__init__(dev_id)
        self._settings = settings
        self.times: list[float] = []

    def get_stream(self) -> None:
        """The CPU has no streams."""
        return

    def __getattr__(self, name: str) -> Callable[..., None]:
        # nvbench's knobs (blocking kernel, throttling, ...) set nothing on a CPU.
        if name.startswith("set_"):
            return lambda *args, **kwargs: None
        raise AttributeError(f"the CPU's state has no {name!r}")

    def exec(
        self, launcher: Callable[[Any], None], *, batched: bool | None = None, sync: bool = False
    ) -> None:
        """Sample ``launcher`` into ``times``, seconds a call."""
        self.times = sample(launcher, self._settings)


def sample(launcher: Callable[[Any], None], settings: Settings) -> list[float]:
    """Return the seconds a call of each block; see the module for when it ends."""
    import torch
    from torch.utils.benchmark import Timer

    usual = ADAPTIVE_MIN_TIME if settings.sampling == "adaptive" else DEFAULT_MIN_TIME
    min_time = usual if settings.min_time is None else settings.min_time
    timeout = DEFAULT_TIMEOUT if settings.timeout is None else settings.timeout
    wanted = max(1, settings.samples)
    fewest = min(FEWEST_BLOCKS, wanted)
    times: list[float] = []
    began = time.monotonic()

    def keep(number: int, seconds: float) -> Any:
        times.append(seconds / number)
        spent = time.monotonic() - began
        enough = len(times) >= wanted or (spent >= min_time and len(times) >= fewest)
        if enough or spent >= timeout:
            raise _EnoughError

    # The timer would otherwise measure with one thread, unlike any real caller.
    timer = Timer(
        "launcher(launch)",
        globals={"launcher": launcher, "launch": Launch(None)},
        num_threads=torch.get_num_threads(),
    )
    try:
        while True:
            timer.blocked_autorange(callback=keep, min_run_time=max(min_time, 1e-3))
    except _EnoughError:
        return times


class TorchEngine:
    """Measures on the CPU."""

    name = "torch"

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def measure(self, op: str, dev_id: int, body: Callable[[CaseState], None]) -> Measurement:
        """Run ``body`` and return its CPU timer and the rates that follow from it."""
        state = TorchState(dev_id, self._settings)
        body(state)
        if not state.times:
            raise RuntimeError("nothing was sampled: state.exec was never called")
        cpu = timing.summarise(state.times)
        mean = cpu["mean"] or None
        moved = None
        if state.bytes_read is not None or state.bytes_written is not None:
            moved = (state.bytes_read or 0) + (state.bytes_written or 0)
        return Measurement(
            state,
            cpu=cpu,
            elements_per_second=state.elements / mean if state.elements and mean else None,
            bytes_per_second=moved / mean if moved and mean else None,
            criterion="min-time",
        )
