"""One run of the front door: every case of an operator, decided, recorded and tabled."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from harness import (
    csvmodes,
    csvtable,
    environment,
    files,
    gate,
    markers,
    plain,
    record,
    sweep,
    worker,
)
from harness.cases import CaseConfig
from harness.engines import Engine, Settings
from harness.errors import ForeignFileError, HarnessError, TreeError, UnusableError

EXIT_CODES = {
    "PASSED": 0,
    "UNVERIFIED": 0,
    "FAILED": 1,
    "ERROR": 1,
    "NOT_RUN": 1,
    "UNAVAILABLE": 3,
    "TIMEOUT": 4,
}
DEFAULT_SAMPLES = 100


def exit_code(statuses: Iterable[str]) -> int:
    """The lowest non-zero code among ``statuses``, 0 when all are well."""
    return min((EXIT_CODES[s] for s in statuses if EXIT_CODES[s]), default=0)


class Session:
    """What all cases of one run share. Raises ``HarnessError`` before measuring can begin."""

    def __init__(
        self,
        args: argparse.Namespace,
        nvbench_flags: list[str],
        root: Path,
        config: dict[str, Any],
        source: str,
    ) -> None:
        self._args = args
        self._flags = nvbench_flags
        self._root = root
        self._source = source
        self._op: str = args.op
        self._cases = sweep.expand(config, f"config/{self._op}.json")
        # Where the named file really is, settled before a runner can put a link there.
        self._csv: Path | None = None if args.csv is None else files.real(args.csv)
        if args.csv is not None:
            csvtable.read(args.csv)
        self._records: Path | None = args.records
        if self._records is None and args.csv is not None:
            self._records = record.default_path(args.csv)
        if self._records is not None:
            record.append(self._records)
        environment.require_torch()
        self._gpus = [] if args.engine == "torch" else environment.gpu_devices()
        self._engine_name = self._choose_engine()
        self._environment = environment.facts()
        self._definition = record.definition(root, self._op)
        # What goes into the CSV when the run ends.
        self._tabled: list[csvmodes.Compared] = []

    def _choose_engine(self) -> str:
        wanted: str = self._args.engine
        if wanted == "nvbench" and not self._gpus:
            raise UnusableError("--engine nvbench needs a GPU, and torch sees none here")
        if wanted == "torch" or not self._gpus:
            if self._flags:
                markers.warn(f"the torch engine has no use for {' '.join(self._flags)}")
            return "torch"
        if environment.nvbench_package() is None:
            raise UnusableError(
                "there is a GPU but no nvbench in this Python; install cuda-bench[cu12] or [cu13] "
                "(MetaX: mxbench), or measure on the CPU with --engine torch"
            )
        return "nvbench"

    def run(self) -> int:
        """Decide all cases; returns the exit code that the worst of them calls for.

        What was measured goes into the CSV also when a later case stops the run.
        """
        statuses = []
        try:
            for number, (config, name) in enumerate(
                zip(self._cases, sweep.names(self._cases), strict=True), start=1
            ):
                if len(self._cases) > 1:
                    markers.say(f"[CASE] {self._op} {number}/{len(self._cases)} {name}".rstrip())
                statuses.append(self._case(config))
        finally:
            self._write_csv()
        return exit_code(statuses)

    def _case(self, config: dict[str, Any]) -> str:
        device = self._device(config)
        task = gate.Task(self._root, self._op, self._source, config, device["index"])
        make_engine = self._engine_for(config)
        started, clock = time.time(), time.monotonic()
        ended = worker.call(
            lambda send: gate.run(task, make_engine, send), limit=self._args.case_timeout
        )
        parameters, outcome = self._hear(ended, config)
        result = record.build(
            self._op,
            parameters,
            outcome,
            definition=self._definition,
            device=device,
            environment=self._environment,
            engine=self._engine_name,
            started=started,
            duration=time.monotonic() - clock,
        )
        # The table's row says what the record says.
        result = plain.clean(result)
        if self._records is not None:
            record.append(self._records, result)
        self._tabulate(result, outcome.get("cos_dist"))
        status: str = result["status"]
        return status

    def _hear(
        self, ended: worker.Ended, config: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Parameters and outcome from what the case's process said or failed to say."""
        said: dict[str, Any] = {}
        twice = False
        for part in ended.messages:
            twice = twice or bool(said.keys() & part.keys())
            said.update(part)
        if "fatal" in said:
            error = HarnessError(said["fatal"]["message"])
            error.code = said["fatal"]["code"]
            raise error
        parameters = said.get("parameters") or CaseConfig(config).parameters()
        broken = ended.how() or ("the process reported twice: the runner forks" if twice else None)
        if ended.timed_out:
            status, message = "TIMEOUT", f"the case was killed after {self._args.case_timeout:g} s"
        elif broken is None and "outcome" in said:
            return parameters, said["outcome"]
        else:
            status, message = "ERROR", broken or "the process ended without a result"
        # The process may have died within a line.
        markers.say("")
        markers.fatal(self._op, f"{status}: {message}")
        failure = {"type": status, "message": message, "traceback": None}
        return parameters, {"status": status, "error": failure}

    def _device(self, config: dict[str, Any]) -> dict[str, Any]:
        if self._engine_name == "torch":
            return environment.cpu_device()
        index = self._args.device if self._args.device is not None else config.get("device_id", 0)
        if isinstance(index, bool) or not isinstance(index, int):
            raise TreeError(f"config/{self._op}.json: device_id {index!r} is no index")
        if not 0 <= index < len(self._gpus):
            raise UnusableError(f"there is no GPU {index} here; torch sees {len(self._gpus)}")
        return self._gpus[index]

    def _engine_for(self, config: dict[str, Any]) -> Callable[[], Engine]:
        samples = config.get("samples", DEFAULT_SAMPLES)
        if isinstance(samples, bool) or not isinstance(samples, int) or samples < 1:
            raise TreeError(f"config/{self._op}.json: samples {samples!r} is no positive number")
        settings = Settings(samples, self._args.min_time, self._args.timeout, tuple(self._flags))

        def make() -> Engine:
            # Imported in the case's own process: nvbench must not be loaded in this one.
            if self._engine_name == "torch":
                from harness.engines.torch_cpu import TorchEngine

                return TorchEngine(settings)
            from harness.engines.nvbench import NvbenchEngine

            return NvbenchEngine(settings)

        return make

    def _tabulate(self, result: dict[str, Any], cos_dist: str | None) -> None:
        passed = result["status"] == "PASSED"
        row = csvtable.row_of(result, cos_dist or "") if passed else None
        if row is not None and self._engine_name == "torch":
            # nvbench prints a table of its own; the first eleven cells say it all on a CPU.
            shown = slice(csvtable.Col.ACC_PASS, csvtable.Col.GPU_TIME)
            markers.table(csvtable.ESTABLISHED[shown], row.cells[shown])
        acc = {"PASSED": "Pass", "FAILED": "Fail"}.get(result["status"], "None")
        self._tabled.append((acc, row))
        if row is None and self._args.mode in ("generate", "update"):
            markers.say(f"[IGNORED] {self._op} ({result['status']}: no row is written)")

    def _write_csv(self) -> None:
        if self._csv is None:
            return
        if files.real(self._csv) != self._csv:
            raise ForeignFileError(
                f"{self._csv}: a link was put there during the run; nothing is written, remove it"
            )
        rows = [row for _, row in self._tabled if row is not None]
        if self._args.mode == "generate":
            csvmodes.generate(self._csv, rows)
        elif self._args.mode == "update":
            csvmodes.update(self._csv, rows)
        elif self._args.mode == "compare":
            csvmodes.compare(self._csv, self._op, self._tabled, self._args.output)
