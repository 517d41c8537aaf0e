"""The ``nvbench`` engine: GPU time with ``cuda.bench`` (NVIDIA's cuda-bench or MetaX's mxbench).

One measurement a process: nvbench resets the device when its run ends, and torch with it. Flags are
the established ones (minimum time 1.5 s, timeout 600 s, no throttle check, minimum samples
``samples - 16``); flags of the caller come behind them and win.
"""

from __future__ import annotations

import importlib
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from harness import markers
from harness.engines import Measurement, Settings, nvbench_results
from harness.engines.state import CaseState
from harness.errors import TreeError, UnusableError

DEFAULT_MIN_TIME = 1.5
# Samples that nvbench takes beyond its minimum before it looks at any criterion.
SPARE_SAMPLES = 16


class NvbenchState(CaseState):
    """nvbench's own state, with the runner's declarations kept on the way."""

    def __init__(self, raw: Any, dev_id: int) -> None:
        super().__init__(dev_id)
        self._raw = raw

    def get_stream(self) -> Any:
        """The stream that nvbench times."""
        return self._raw.get_stream()

    def show_verdict(self, acc_pass: str, cos_dist: str) -> None:
        """Put the verification in front of the runner's columns in nvbench's table."""
        self._raw.add_summary("Acc_Pass", acc_pass)
        self._raw.add_summary("Cos_Dist", cos_dist)

    def add_summary(self, column_name: str, value: Any) -> None:
        """Declare a column, here and in nvbench's table."""
        super().add_summary(column_name, value)
        shown = value if isinstance(value, (int, float, str)) else str(value)
        self._raw.add_summary(column_name, shown)

    def add_element_count(self, count: int, column_name: str | None = None) -> None:
        """Declare elements processed by one call (adds up)."""
        super().add_element_count(count)
        self._raw.add_element_count(int(count), *_named(column_name))

    def add_global_memory_reads(self, nbytes: int, column_name: str = "") -> None:
        """Declare bytes read by one call (adds up)."""
        super().add_global_memory_reads(nbytes)
        self._raw.add_global_memory_reads(int(nbytes), *_named(column_name))

    def add_global_memory_writes(self, nbytes: int, column_name: str = "") -> None:
        """Declare bytes written by one call (adds up)."""
        super().add_global_memory_writes(nbytes)
        self._raw.add_global_memory_writes(int(nbytes), *_named(column_name))

    def exec(
        self, launcher: Callable[[Any], None], *, batched: bool | None = None, sync: bool = False
    ) -> None:
        """Measure ``launcher``; ``sync`` when it synchronises the device itself."""
        self._raw.exec(launcher, batched=bool(batched), sync=sync)

    def __getattr__(self, name: str) -> Any:
        # Everything else of nvbench's State (set_blocking_kernel_timeout, ...) is nvbench's own.
        return getattr(self._raw, name)


def _named(column_name: str | None) -> tuple[str, ...]:
    return (column_name,) if column_name else ()


def load() -> Any:
    """Return the module with ``register`` and ``run_all_benchmarks``; loads the CUDA driver.

    cuda-bench offers them on ``cuda.bench`` itself, mxbench on ``cuda.bench._nvbench``.
    """
    try:
        package = importlib.import_module("cuda.bench")
        if hasattr(package, "run_all_benchmarks"):
            return package
        return importlib.import_module("cuda.bench._nvbench")
    except ImportError as error:
        raise UnusableError(f"nvbench cannot be loaded in {sys.executable}: {error}") from None


def flags(settings: Settings, dev_id: int) -> list[str]:
    """nvbench's command line for one measurement, outputs left out."""
    given = {flag.partition("=")[0] for flag in settings.nvbench_flags if flag.startswith("-")}
    words = ["--device", str(dev_id), "--timeout", f"{settings.timeout:g}"]
    if settings.min_time is not None:
        words += ["--min-time", f"{settings.min_time:g}"]
    elif "--stopping-criterion" not in given:
        # Other criteria have no minimum time and refuse the flag.
        words += ["--min-time", f"{DEFAULT_MIN_TIME:g}"]
    if "--throttle-threshold" not in given:
        words += ["--throttle-threshold", "0"]
    if "--min-samples" not in given:
        words += ["--min-samples", str(max(1, settings.samples - SPARE_SAMPLES))]
    return [*words, *settings.nvbench_flags]


class NvbenchEngine:
    """Measures on a GPU, once."""

    name = "nvbench"
    device_type = "cuda"

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def measure(self, op: str, dev_id: int, body: Callable[[CaseState], None]) -> Measurement:
        """Run ``body`` under nvbench and read the result from its JSON, else from its CSV."""
        bench = load()
        states: list[NvbenchState] = []
        failures: list[BaseException] = []

        def case(raw: Any) -> None:
            states.append(NvbenchState(raw, dev_id))
            try:
                body(states[-1])
            except BaseException as error:  # noqa: BLE001 - raised again outside nvbench's frames
                failures.append(error)
                raw.skip(f"{type(error).__name__}: {error}")

        case.__name__ = op
        bench.register(case)
        with tempfile.TemporaryDirectory(prefix="nvbench-") as folder:
            outputs = Path(folder)
            words = flags(self._settings, dev_id)
            as_json = ["--jsonbin", str(outputs / "result.json")]
            as_csv = ["--csv", str(outputs / "result.csv")]
            problem = _run(bench, [op, *words, *as_json, *as_csv])
            if not states:
                markers.warn("nvbench did not start; trying without its JSON output")
                again = _run(bench, [op, *words, *as_csv])
                # A refusal of the JSON is no problem any more once the second try has run.
                problem = again if again is not None or states else problem
            if failures:
                raise failures[0]
            if not states:
                raise self._not_started(problem)
            if problem is not None:
                raise problem
            return nvbench_results.collect(states[-1], outputs)

    def _not_started(self, problem: Exception | None) -> Exception:
        why = f": {problem}" if problem is not None else ", see its message above"
        if self._settings.nvbench_flags:
            given = " ".join(self._settings.nvbench_flags)
            return TreeError(f"nvbench did not start with {given}{why}")
        return UnusableError(f"nvbench did not start{why}")


def _run(bench: Any, argv: Sequence[str]) -> Exception | None:
    """Run nvbench; returns what it raised."""
    sys.stdout.flush()
    try:
        bench.run_all_benchmarks(list(argv))
    except Exception as error:  # noqa: BLE001 - the caller knows which of the reasons it has
        return error
    return None
