"""What measures: ``nvbench`` on a GPU, ``torch`` (torch.utils.benchmark) on the CPU.

Both hand a runner the same ``State``, so a runner does not know which one it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from harness.engines.state import CaseState
from harness.timing import Timer


@dataclass(frozen=True)
class Settings:
    """How long and how often one process measures; seconds, None: the sampling's own default.

    ``sampling`` is ``established`` (nvbench's minimum time and noise limit, as other scripts have
    it) or ``adaptive`` (stop as soon as more samples of this process would tell nothing new).
    """

    sampling: str = "established"
    samples: int = 100
    min_time: float | None = None
    timeout: float | None = None
    # Whether launches are also timed back to back; once is enough for several processes.
    batched: bool = True
    # Flags that only nvbench knows, in the order given.
    nvbench_flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Measurement:
    """What an engine measured, and what the runner declared while it did."""

    state: CaseState
    cold_gpu: Timer | None = None
    cpu: Timer | None = None
    batch_gpu: Timer | None = None
    elements_per_second: float | None = None
    bytes_per_second: float | None = None
    bandwidth_utilisation: float | None = None
    # What ended the sampling, as nvbench names it.
    criterion: str | None = None


class Engine(Protocol):
    """One way of measuring; used for one case in one process."""

    name: str

    def measure(self, op: str, dev_id: int, body: Callable[[CaseState], None]) -> Measurement:
        """Call ``body`` with a state; ``body`` prepares, declares and calls ``state.exec``."""
