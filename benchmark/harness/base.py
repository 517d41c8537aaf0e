"""``OpBenchmarkBase``: what every runner derives from.

A runner says what is called (``prepare_and_get_launcher``), what it should compute
(``run_verification``) and what it moves (``define_metrics``). It does not know which engine
measures it: streams, devices and timers come from outside.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch

from harness import markers, storage
from harness.checks import Comparison
from harness.verify import Verify


def _dtype(config: dict[str, Any]) -> torch.dtype:
    name = str(config.get("dtype", "float16")).removeprefix("torch.")
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise ValueError(f"dtype {name!r} is no torch dtype; write float16, bfloat16, float32, ...")
    return found


def _bytes(tensor: torch.Tensor) -> int:
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    return math.prod(n if step else min(n, 1) for n, step in steps) * tensor.element_size()


@dataclass
class _Noted:
    """What the harness remembers of a runner, out of the way of the runner's own names."""

    comparisons: list[Comparison] = field(default_factory=list)
    poisoned: bool = False
    streams: dict[tuple[int, int], torch.cuda.Stream] = field(default_factory=dict)


class OpBenchmarkBase:
    """Base of all runners; see the methods for what to override.

    Established runners know ``name``, ``config``, ``dtype``, ``as_torch_stream``, ``make_launcher``
    and ``check_diff``. Any other name may be one of their own: the harness and these methods do not
    rely on it (``hook``), nor on ``__init__`` having been called.
    """

    _noted: _Noted

    # "cuda" or "cpu"; the harness sets it before a runner is made, alone it follows torch.
    device_type: str | None = None
    # Name of the distribution that holds the kernel, when it is not an operator library.
    library: str | None = None
    # Synchronous operators set this: they are then timed without batching.
    _force_sync = False
    # Why a threshold or limit is looser than the rules (``harness.thresholds``) allow.
    threshold_reason: str | None = None
    # Whether the operator quantises; None: the harness tells by its name and the tensors.
    quantised: bool | None = None

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Make the runner with nothing noted of it yet."""
        made = super().__new__(cls)
        made._noted = _Noted()
        return made

    def __init__(self, name: str, config: dict[str, Any]) -> None:
        self.name = name
        self.config = config
        self.dtype = _dtype(config)

    # What a runner overrides.

    def define_metrics(self, state: Any) -> None:
        """Declare columns (``state.add_summary``), elements and bytes moved by one call."""

    def prepare_and_get_launcher(self, dev_id: int, tc_s: Any) -> Callable[[Any], None]:
        """Make the data under stream ``tc_s``; return a launcher that only calls the operator."""
        raise NotImplementedError(f"{type(self).__name__} has no prepare_and_get_launcher")

    def run_verification(self, dev_id: int) -> tuple[bool, float] | None:
        """Return (passed, difference) for data of another seed; None: there is no reference."""
        return None

    def compute_dtype(self) -> torch.dtype | None:
        """The dtype that ``flops`` are done in, where it is another one than the case's."""
        return getattr(self, "dtype", None)

    def verify_timed(self, dev_id: int) -> tuple[bool, float] | None:
        """Check the buffers that were timed, after measuring; None: they are not offered."""
        return None

    def flops(self) -> int | None:
        """Floating-point operations of one call, where that means something."""
        return None

    # What a runner uses.

    @functools.cached_property
    def verify(self) -> Verify:
        """The checks that outputs are held to."""
        return Verify(self)

    def device(self, dev_id: int) -> torch.device:
        """The device the case runs on: ``cuda:<dev_id>``, or the CPU."""
        if self._on_cpu():
            return torch.device("cpu")
        return torch.device("cuda", dev_id)

    def stream(self, tc_s: Any) -> contextlib.AbstractContextManager[Any]:
        """Context in which data is made: the given stream; nothing on the CPU."""
        return contextlib.nullcontext() if tc_s is None else torch.cuda.stream(tc_s)

    def synchronize(self, dev_id: int) -> None:
        """Wait until the device has done its work; nothing to wait for on the CPU."""
        if not self._on_cpu():
            torch.cuda.synchronize(dev_id)

    def generator(self, dev_id: int, seed: int) -> torch.Generator:
        """A seeded random generator on the case's device."""
        return torch.Generator(device=self.device(dev_id)).manual_seed(seed)

    def as_torch_stream(self, stream: Any, dev_id: int) -> torch.cuda.Stream | None:
        """The engine's stream as torch's; None where there is none (CPU).

        Remembered by address, because a launcher asks at every call.
        """
        if stream is None:
            return None
        key = (int(stream.addressof()), dev_id)
        streams = self._noted.streams
        if key not in streams:
            streams[key] = torch.cuda.ExternalStream(  # type: ignore[no-untyped-call]
                key[0], device=torch.device("cuda", dev_id)
            )
        return streams[key]

    def make_launcher(
        self, dev_id: int, op: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> Callable[[Any], None]:
        """Wrap ``op(*args, **kwargs)`` as ``launcher(launch)`` on the engine's stream."""
        if self._on_cpu():

            def call(launch: Any) -> None:
                op(*args, **kwargs)

            return call

        def call_on_stream(launch: Any) -> None:
            with torch.cuda.stream(self.as_torch_stream(launch.get_stream(), dev_id)):
                op(*args, **kwargs)

        return call_on_stream

    def check_diff(
        self, out: torch.Tensor, ref: torch.Tensor, threshold: float = 0.999999
    ) -> tuple[bool, float]:
        """Return (passed, 1 - cosine) of ``out`` against ``ref``, computed in float64.

        The established name of ``self.verify.cosine``: also demands equal shapes, finite values
        and norms within 1 %; the figures go into the record.
        """
        return Verify(self).cosine(out, ref, threshold)

    def poison(self, *outputs: torch.Tensor) -> None:
        """Fill ``outputs`` with values no operator leaves behind, so that untouched ones fail.

        Not for arguments that the operator also reads.
        """
        for tensor in outputs:
            storage.poison(tensor)
        self._noted.poisoned |= bool(outputs)

    def moves(
        self,
        state: Any,
        *,
        read: Iterable[torch.Tensor | int] = (),
        written: Iterable[torch.Tensor | int] = (),
    ) -> None:
        """Declare what one call reads and writes: tensors, or bytes where it is a part of one.

        What is expanded counts once: it lies in memory once. Raises ``TypeError`` for a single
        tensor in place of a tuple.
        """
        for add, moved in (
            (state.add_global_memory_reads, read),
            (state.add_global_memory_writes, written),
        ):
            if isinstance(moved, torch.Tensor):
                raise TypeError("moves takes tuples: read=(x,), written=(out,)")
            counts = [one if isinstance(one, int) else _bytes(one) for one in moved]
            if counts:
                add(sum(counts))

    def _on_cpu(self) -> bool:
        if self.device_type is None:
            return not torch.cuda.is_available()
        return self.device_type == "cpu"


def hook(runner: OpBenchmarkBase, name: str, *args: Any) -> Any:
    """Ask the runner's method ``name``, which the base has too.

    What the runner has under that name for a use of its own, a number say, is not asked: the base
    answers, and a warning says so.
    """
    own = getattr(runner, name)
    try:
        inspect.signature(own).bind(*args)
    except (TypeError, ValueError):
        markers.warn(f"the runner has a {name!r} of its own, which the harness leaves alone")
        return getattr(OpBenchmarkBase, name)(runner, *args)
    return own(*args)
