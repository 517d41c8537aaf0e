"""Time one launch: cold L2, a CUDA graph where asked, warmed up until the times are steady.

GPU: between two events of the launch's stream, or (``timer="cpu"``) by the wall clock around a
launch and a synchronisation. Cold: before every sample a buffer of at least five times the L2
cache is overwritten, outside of what is timed, also where the launch is a graph. CPU: the wall
clock; caches stay as they are, and no time is called cold.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from harness import timing as harness_timing

from core.backends import Launch

# The cache counts as emptied once this many times its size was written.
L2_MULTIPLE = 5
# What is taken for the L2 cache where torch does not tell.
_USUAL_L2 = 64 << 20
# Steady: the medians of two windows in a row differ by less than this part.
_STEADY = 0.02
_WINDOW, _MOST_WINDOWS, _LONGEST_WARMUP = 5, 20, 2.0
# Without a number of repetitions: as many as this time takes, within these bounds.
_SECONDS, _FEWEST, _MOST = 0.3, 10, 1000


@dataclass(frozen=True)
class Timing:
    """Times of one launch, in seconds, and how they were taken.

    ``timer``: ``events`` or ``cpu``. ``cold``: the L2 cache was emptied before each sample, by
    writing ``flushed_bytes``. ``steady``: the warm-up ended because times no longer changed; None
    where it had a given length.
    """

    samples: list[float] = field(repr=False)
    timer: str
    cold: bool
    flushed_bytes: int
    graph: bool
    warmup: int
    steady: bool | None

    @property
    def summary(self) -> harness_timing.Timer:
        """Mean, median, extremes and quartiles, as records hold them."""
        return harness_timing.summarise(self.samples)

    @property
    def median(self) -> float:
        """The median sample."""
        return statistics.median(self.samples)


def l2_bytes(device: torch.device) -> int:
    """Bytes of the device's L2 cache, or what is usual where torch does not tell."""
    properties = torch.cuda.get_device_properties(device)
    return int(getattr(properties, "L2_cache_size", 0) or _USUAL_L2)


class Flush:
    """Empties the L2 cache by writing a buffer of ``L2_MULTIPLE`` times its size."""

    def __init__(self, device: torch.device) -> None:
        self.bytes = L2_MULTIPLE * l2_bytes(device)
        self._buffer = torch.empty(self.bytes // 4, dtype=torch.int32, device=device)

    def __call__(self) -> None:
        self._buffer.zero_()


class Graph:
    """A launch captured as a CUDA graph; a call replays it and returns the captured output."""

    def __init__(self, launch: Launch) -> None:
        # Libraries initialise at the first call, which a capture forbids: on a side stream, as
        # torch asks for.
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                launch()
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self.output = launch()

    def __call__(self) -> torch.Tensor:
        self._graph.replay()
        return self.output


def measure(
    launch: Launch,
    device: torch.device,
    *,
    cold: bool = True,
    timer: str = "events",
    warmup: int | None = None,
    repeats: int | None = None,
) -> Timing:
    """Warm up, then sample ``launch`` (a ``Graph``, perhaps).

    ``warmup`` and ``repeats`` None: until times are steady, and as many samples as 0.3 s take, at
    least 10. ``timer``: ``events`` or ``cpu``; on the CPU always ``cpu``.
    """
    on_gpu = device.type == "cuda"
    flush = Flush(device) if cold and on_gpu else None
    by_events = on_gpu and timer == "events"

    def once() -> float:
        return _by_events(launch, flush) if by_events else _by_clock(launch, flush, on_gpu)

    spent, steady = _warm_up(once, warmup)
    samples: list[float] = []
    began = time.monotonic()
    while not _enough(len(samples), time.monotonic() - began, repeats):
        samples.append(once())
    return Timing(
        samples,
        "events" if by_events else "cpu",
        flush is not None,
        0 if flush is None else flush.bytes,
        isinstance(launch, Graph),
        spent,
        steady,
    )


def _enough(taken: int, seconds: float, repeats: int | None) -> bool:
    if repeats is not None:
        return taken >= max(1, repeats)
    return taken >= _MOST or (taken >= _FEWEST and seconds >= _SECONDS)


def _warm_up(once: Callable[[], float], warmup: int | None) -> tuple[int, bool | None]:
    """Call ``once`` ``warmup`` times, or until steady; how often, and whether it became steady."""
    if warmup is not None:
        for _ in range(warmup):
            once()
        return warmup, None
    before, began = 0.0, time.monotonic()
    for window in range(1, _MOST_WINDOWS + 1):
        now = statistics.median(once() for _ in range(_WINDOW))
        if before and abs(now - before) <= _STEADY * before:
            return window * _WINDOW, True
        if time.monotonic() - began > _LONGEST_WARMUP:
            return window * _WINDOW, False
        before = now
    return _MOST_WINDOWS * _WINDOW, False


def _by_events(launch: Launch, flush: Flush | None) -> float:
    start = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    end = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    if flush is not None:
        # While it runs the CPU gets ahead: the launch is queued before the start event is reached.
        flush()
    start.record()
    launch()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / 1e3


def _by_clock(launch: Launch, flush: Flush | None, on_gpu: bool) -> float:
    if flush is not None:
        flush()
    if on_gpu:
        torch.cuda.synchronize()
    began = time.perf_counter()
    launch()
    if on_gpu:
        torch.cuda.synchronize()
    return time.perf_counter() - began


def coldness(device: torch.device, graph: bool) -> float:
    """How many times longer a read of a quarter of the L2 cache takes after a flush.

    Near 1: flushing does not empty the cache here, and no time may be called cold. ``graph``: the
    read is replayed from a CUDA graph, as timed launches are.
    """
    probe = torch.ones(l2_bytes(device) // 16, dtype=torch.float32, device=device)
    total = torch.zeros((), dtype=torch.float32, device=device)

    def read() -> torch.Tensor:
        return torch.sum(probe, dim=0, out=total)

    launch: Launch = Graph(read) if graph else read
    warm, cold = (
        measure(launch, device, cold=flushed, warmup=10, repeats=30).median
        for flushed in (False, True)
    )
    return cold / warm
