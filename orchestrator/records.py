"""What was measured: the ``mxfleet-result/1`` record, one JSON line a case.

The harness on the target writes records, the controller adds where they came from and keeps them.
Unknown keys survive a read-write round trip, so that a newer harness loses nothing on its way
through an older controller. Times are seconds, sizes bytes. Nothing here imports anything of ours.
"""

from __future__ import annotations

import json
from enum import Enum
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

SCHEMA = "mxfleet-result/1"


class Status(str, Enum):
    """What became of a case. Different things stay different: none but PASSED is a success."""

    PASSED = "PASSED"
    FAILED = "FAILED"  # verification
    ERROR = "ERROR"  # exception, crash, no record
    TIMEOUT = "TIMEOUT"
    UNAVAILABLE = "UNAVAILABLE"  # library or backend absent
    UNVERIFIED = "UNVERIFIED"  # no reference
    NOT_RUN = "NOT_RUN"


class _Part(BaseModel):
    model_config = ConfigDict(extra="allow", frozen=True)


class Timer(_Part):
    """One timer's distribution over samples, in seconds; ``noise`` is the relative deviation."""

    mean: float | None = None
    median: float | None = None
    min: float | None = None
    max: float | None = None
    q25: float | None = None
    q75: float | None = None
    noise: float | None = None
    samples: int | None = None


class Timers(_Part):
    """The timers of a case; a comparison never mixes them."""

    cold_gpu: Timer | None = None
    cpu: Timer | None = None
    batch_gpu: Timer | None = None


class Verification(_Part):
    """The accuracy step: its verdict and its metrics by name (``one_minus_cosine``, ...)."""

    passed: bool
    metrics: dict[str, float | None] = Field(default_factory=dict)
    poisoned: bool = False


class Rates(_Part):
    """Rates that follow from the declared work; ``bandwidth_utilisation`` is a fraction of peak."""

    elements_per_second: float | None = None
    bytes_per_second: float | None = None
    bandwidth_utilisation: float | None = None


class Device(_Part):
    """The device that ran the case."""

    kind: Literal["cuda", "maca", "cpu"]
    name: str
    index: int = 0
    uuid: str | None = None


class Failure(_Part):
    """Why a case has no measurement."""

    type: str
    message: str
    traceback: str | None = None


class Record(_Part):
    """One case on one target, as ``mxfleet-result/1`` has it."""

    schema_: Literal["mxfleet-result/1"] = Field(alias="schema")
    record_id: str
    suite: str
    op: str
    case_id: str | None = None
    parameters: dict[str, Any] = Field(default_factory=dict)
    status: Status
    flags: list[str] = Field(default_factory=list)
    definition: str | None = None
    library: dict[str, Any] | None = None
    verification: Verification | None = None
    summaries: dict[str, Any] = Field(default_factory=dict)
    timers: Timers = Field(default_factory=Timers)
    repeats: int = 1
    repeat_spread: float | None = None
    bytes_read: int | None = None
    bytes_written: int | None = None
    elements: int | None = None
    flops: int | None = None
    rates: Rates = Field(default_factory=Rates)
    device: Device | None = None
    environment: dict[str, Any] = Field(default_factory=dict)
    engine: str | None = None
    error: Failure | None = None
    started: str | None = None
    duration: float | None = None
    # Added by the controller on arrival.
    run: str | None = None
    host: str | None = None
    target: str | None = None
    attempt: int | None = None
    tree: str | None = None
    job: str | None = None

    @property
    def headline(self) -> tuple[str, Timer] | None:
        """The timer that stands for the case and its name: cold GPU time, on a CPU the CPU time."""
        if self.timers.cold_gpu is not None:
            return "cold_gpu", self.timers.cold_gpu
        if self.device is not None and self.device.kind == "cpu" and self.timers.cpu is not None:
            return "cpu", self.timers.cpu
        return None

    def to_line(self) -> str:
        """The record as one JSON line without the line end."""
        return json.dumps(
            self.model_dump(mode="json", by_alias=True), ensure_ascii=False, separators=(",", ":")
        )


def parse_line(line: str | bytes) -> Record:
    """Read one JSON line; raises ``ValueError`` with a short reason when it is not a record."""
    try:
        return Record.model_validate_json(line)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "line"
        raise ValueError(f"not a {SCHEMA} record: {place}: {first['msg']}") from None
