"""The ``nvbench`` engine: GPU time with ``cuda.bench`` (NVIDIA's cuda-bench or MetaX's mxbench).

One measurement a process: nvbench resets the device when its run ends, and torch with it.

Established sampling has the established flags (minimum time 1.5 s, timeout 600 s, no throttle
check, minimum samples ``samples - 16``). Adaptive sampling stops when the entropy of the samples
no longer grows; a port of nvbench that lacks this criterion gets a short minimum time instead.
Flags of the caller come last and win.
"""

from __future__ import annotations

import dataclasses
import importlib
import itertools
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
DEFAULT_TIMEOUT = 600.0
# Samples that nvbench takes beyond its minimum before it looks at any criterion.
SPARE_SAMPLES = 16
# Several short processes tell more than a long one, so a slow operator is cut short in each.
ADAPTIVE_TIMEOUT = 5.0
ADAPTIVE_BATCH_TIME = 0.1
ADAPTIVE_MIN_TIME = 0.1


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


def flags(settings: Settings, dev_id: int) -> list[list[str]]:
    """nvbench's command lines for one measurement, outputs left out: the first that starts runs."""
    given = {flag.partition("=")[0] for flag in settings.nvbench_flags if flag.startswith("-")}
    adaptive = settings.sampling == "adaptive"
    usual = ADAPTIVE_TIMEOUT if adaptive else DEFAULT_TIMEOUT
    timeout = usual if settings.timeout is None else settings.timeout
    head = ["--device", str(dev_id), "--timeout", f"{timeout:g}"]
    if "--throttle-threshold" not in given:
        head += ["--throttle-threshold", "0"]
    if not adaptive and "--min-samples" not in given:
        head += ["--min-samples", str(max(1, settings.samples - SPARE_SAMPLES))]
    least = DEFAULT_MIN_TIME if settings.min_time is None else settings.min_time
    stop = [["--min-time", f"{least:g}"]]
    if settings.min_time is None and "--stopping-criterion" in given:
        # Other criteria have no minimum time and refuse the flag.
        stop = [[]]
    elif settings.min_time is None and adaptive:
        entropy = ["--stopping-criterion", "entropy"]
        if "--batch-target-time" not in given:
            entropy += ["--batch-target-time", f"{ADAPTIVE_BATCH_TIME:g}"]
        stop = [entropy, ["--min-time", f"{ADAPTIVE_MIN_TIME:g}"]]
    return [[*head, *words, *settings.nvbench_flags] for words in stop]


def _criterion(words: Sequence[str]) -> str:
    """The stopping criterion that a command line asks for; the last flag wins, as in nvbench."""
    named = [
        follower if word == "--stopping-criterion" else word.partition("=")[2]
        for word, follower in itertools.pairwise([*words, ""])
        if word.partition("=")[0] == "--stopping-criterion"
    ]
    return named[-1] if named else "stdrel"


class NvbenchEngine:
    """Measures on a GPU, once."""

    name = "nvbench"

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
            problem, words = self._start(bench, op, dev_id, outputs, states)
            if failures:
                raise failures[0]
            if not states:
                raise self._not_started(problem)
            if problem is not None:
                raise problem
            measured = nvbench_results.collect(states[-1], outputs)
        return dataclasses.replace(measured, criterion=_criterion(words))

    def _start(
        self, bench: Any, op: str, dev_id: int, outputs: Path, states: Sequence[NvbenchState]
    ) -> tuple[Exception | None, list[str]]:
        """Run the first command line that this nvbench takes; returns what it raised, and it."""
        as_csv = ["--csv", str(outputs / "result.csv")]
        as_json = ["--jsonbin", str(outputs / "result.json"), *as_csv]
        lines = flags(self._settings, dev_id)
        tries = [(words, out) for out in (as_json, as_csv) for words in lines]
        first: Exception | None = None
        for words, out in tries:
            problem = _run(bench, [op, *words, *out])
            if states:
                return problem, words
            # What is told is why the line that was meant did not start.
            first = first or problem
            markers.warn(f"nvbench did not start with {' '.join(words)} {out[0]}")
        return first, tries[-1][0]

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
