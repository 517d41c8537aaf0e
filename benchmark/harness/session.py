"""One run of the front door: every case of an operator, decided, recorded and tabled."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable
from datetime import date
from pathlib import Path
from typing import Any

from harness import (
    board,
    clocks,
    csvmodes,
    csvtable,
    environment,
    files,
    gate,
    known,
    libraries,
    markers,
    plain,
    providers,
    record,
    repeats,
    specs,
    sweep,
)
from harness.engines import Settings
from harness.errors import DeadDeviceError, ForeignFileError, TreeError, UnusableError

EXIT_CODES = {
    "PASSED": 0,
    "UNVERIFIED": 0,
    "FAILED": 1,
    "ERROR": 1,
    "NOT_RUN": 1,
    "UNAVAILABLE": 3,
    "TIMEOUT": 4,
}
UNDECIDED = 6
DEFAULT_SAMPLES = 100
REPEATS = {"adaptive": 5, "established": 1}


def exit_code(results: Iterable[dict[str, Any]], *, strict: bool = False) -> int:
    """The lowest non-zero code among records, 0 when all are well.

    A known failure that has not expired does not count; ``strict``: UNVERIFIED is undecided (6).
    """
    codes = set()
    for result in results:
        excused = result.get("known_failure")
        if excused is not None and not excused["expired"]:
            continue
        unverified = strict and result["status"] == "UNVERIFIED"
        codes.add(UNDECIDED if unverified else EXIT_CODES[result["status"]])
    return min(codes - {0}, default=0)


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
        where = f"config/{self._op}.json"
        self._cases = sweep.select(sweep.expand(config, where, args.case), args.case, where)
        self._known = known.load(root)
        self._specs = specs.overrides(args.specs)
        self._declared = providers.declared(args.library)
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
        gate.import_ahead(self._engine_name)
        self._environment = environment.facts(root)
        libraries.remember(source, self._declared)
        self._definition = record.definition(root, self._op)
        self._warned: set[str] = set()
        # What goes into the CSV when the run ends.
        self._tabled: list[csvmodes.Compared] = []

    def _choose_engine(self) -> str:
        wanted: str = self._args.engine
        if wanted == "nvbench" and not self._gpus:
            raise UnusableError("--engine nvbench needs a GPU, and torch sees none here")
        on_cpu = wanted == "torch" or not self._gpus
        if self._flags and (on_cpu or self._args.verify):
            who = "--verify" if self._args.verify else "the torch engine"
            markers.warn(f"{who} has no use for {' '.join(self._flags)}")
        if on_cpu:
            return "torch"
        # Verifying takes torch alone.
        if not self._args.verify and environment.nvbench_package() is None:
            raise UnusableError(
                "there is a GPU but no nvbench in this Python; install cuda-bench[cu12] or [cu13] "
                "(MetaX: mxbench), or measure on the CPU with --engine torch"
            )
        return "nvbench"

    def run(self) -> int:
        """Decide all cases; returns the exit code that the worst of them calls for.

        What was measured goes into the CSV also when a later case stops the run.
        """
        results = []
        try:
            for number, (config, name) in enumerate(
                zip(self._cases, sweep.names(self._cases), strict=True), start=1
            ):
                if len(self._cases) > 1:
                    markers.say(f"[CASE] {self._op} {number}/{len(self._cases)} {name}".rstrip())
                results.append(self._case(config))
        finally:
            self._write_csv()
        return exit_code(results, strict=self._args.strict)

    def _case(self, config: dict[str, Any]) -> dict[str, Any]:
        device = self._device(config)
        task = gate.Task(
            self._root,
            self._op,
            self._source,
            config,
            device,
            self._engine_name,
            self._settings(config),
            verify_only=self._args.verify,
            declared=self._declared,
        )
        surroundings: dict[str, Any] = {}
        with clocks.locked(device, self._args.lock_clocks) as locked:
            if locked is not None:
                surroundings["clocks_locked"] = locked
            if self._args.cool_down is not None:
                surroundings["cooled_down"] = clocks.cool_down(device, self._args.cool_down)
            before = board.idle(device)
            started, clock = time.time(), time.monotonic()
            decided = repeats.decide(task, self._repeats(), self._args.case_timeout)
            duration = time.monotonic() - clock
            after = board.idle(device, before.used_bytes)
            problem = self._recover(device, after, broken=decided.broken)
        outcome = decided.outcome
        surroundings["board"] = {
            **(outcome.get("board") or {"before": None, "after": None}),
            "foreign": [before.foreign, after.foreign],
        }
        surroundings["device_expected"] = environment.mismatch(device, config.get("device_name"))
        result = record.build(
            self._op,
            decided.parameters,
            outcome,
            definition=self._definition,
            device=device,
            environment={**self._environment, **surroundings},
            engine=None if self._args.verify else self._engine_name,
            sampling=None if self._args.verify else self._sampling(outcome),
            measured=not self._args.verify,
            started=started,
            duration=duration,
        )
        record.judge(result, self._peaks(device), outcome.get("compute_dtype"))
        result["known_failure"] = self._known_failure(result)
        # The table's row says what the record says.
        result = plain.clean(result)
        if self._records is not None:
            record.append(self._records, result)
        if not self._args.verify:
            self._tabulate(result, outcome.get("cos_dist"))
        if problem is not None:
            raise DeadDeviceError(f"{device['name']} {device['index']} {problem}")
        return result

    def _sampling(self, outcome: dict[str, Any]) -> dict[str, Any]:
        return {
            "mode": self._args.sampling,
            "criterion": outcome.get("criterion"),
            "repeats": self._repeats(),
            "medians": outcome.get("medians", []),
        }

    def _repeats(self) -> int:
        given: int | None = 1 if self._args.verify else self._args.repeats
        return REPEATS[self._args.sampling] if given is None else given

    def _peaks(self, device: dict[str, Any]) -> specs.Peaks | None:
        if device["kind"] == "cpu":
            return None
        return specs.peaks(device["name"], self._specs)

    def _known_failure(self, result: dict[str, Any]) -> dict[str, Any] | None:
        device = result["device"]
        model = environment.device_model(device["name"], device["kind"])
        return self._known.honour(
            result["op"], result["parameters"], model, result["status"], date.today()
        )

    def _recover(self, device: dict[str, Any], after: board.Idle, *, broken: bool) -> str | None:
        """Why the device is unfit for the next case, None when it is fit."""
        if device["kind"] == "cpu":
            return None
        if not after.settled:
            markers.warn(f"memory of {device['name']} is still in use after the case has ended")
        if not broken:
            return None
        why = board.answers(device)
        return None if why is None else f"does not answer after {self._op} went wrong: {why}"

    def _device(self, config: dict[str, Any]) -> dict[str, Any]:
        device = self._chosen_device(config)
        odd = environment.mismatch(device, config.get("device_name"))
        if odd is not None:
            if self._args.strict:
                raise UnusableError(f"config/{self._op}.json: {odd}")
            if odd not in self._warned:
                self._warned.add(odd)
                markers.warn(f"config/{self._op}.json: {odd}")
        return device

    def _chosen_device(self, config: dict[str, Any]) -> dict[str, Any]:
        if self._engine_name == "torch":
            return environment.cpu_device()
        index = self._args.device if self._args.device is not None else config.get("device_id", 0)
        if isinstance(index, bool) or not isinstance(index, int):
            raise TreeError(f"config/{self._op}.json: device_id {index!r} is no index")
        if not 0 <= index < len(self._gpus):
            raise UnusableError(f"there is no GPU {index} here; torch sees {len(self._gpus)}")
        return self._gpus[index]

    def _settings(self, config: dict[str, Any]) -> Settings:
        samples = config.get("samples", DEFAULT_SAMPLES)
        if isinstance(samples, bool) or not isinstance(samples, int) or samples < 1:
            raise TreeError(f"config/{self._op}.json: samples {samples!r} is no positive number")
        return Settings(
            sampling=self._args.sampling,
            samples=samples,
            min_time=self._args.min_time,
            timeout=self._args.timeout,
            nvbench_flags=tuple(self._flags),
        )

    def _tabulate(self, result: dict[str, Any], cos_dist: str | None) -> None:
        passed = result["status"] == "PASSED"
        row = csvtable.row_of(result, cos_dist or "") if passed else None
        if result["status"] in ("PASSED", "UNVERIFIED") and self._engine_name == "torch":
            # nvbench prints a table of its own; the first eleven cells say it all on a CPU.
            shown = slice(csvtable.Col.ACC_PASS, csvtable.Col.GPU_TIME)
            cells = csvtable.row_of(result, cos_dist or "").cells[shown]
            markers.table(csvtable.ESTABLISHED[shown], cells if passed else ["-", *cells[1:]])
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
