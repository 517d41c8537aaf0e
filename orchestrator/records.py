"""What was measured: the ``mxfleet-result/1`` record, one JSON line a case.

The harness on the target writes records, the controller adds where they came from and keeps them.
Unknown keys survive a read-write round trip, so that a newer harness loses nothing on its way
through an older controller. Times are seconds, sizes bytes. Nothing here imports anything of ours.

A target is not believed: ``judged`` gives a record the status that its own content allows, and
the table, the store, the exit code and the merge all go by that one.
"""

from __future__ import annotations

import json
import math
from enum import Enum
from typing import Annotated, Any, Literal

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


# What a list of known failures may excuse.
_EXCUSABLE = frozenset({Status.FAILED, Status.ERROR, Status.TIMEOUT, Status.UNAVAILABLE})


# What a float can be made of, and what other readers of JSON can hold; a host may say anything.
_Whole = Annotated[int, Field(ge=-(2**63), lt=2**63)]


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
    samples: _Whole | None = None


class Timers(_Part):
    """The timers of a case; a comparison never mixes them."""

    cold_gpu: Timer | None = None
    cpu: Timer | None = None
    batch_gpu: Timer | None = None


class Threshold(_Part):
    """A limit that an output was held against; one outside the rules should have a reason."""

    check: str | None = None
    threshold: float | None = None
    reason: str | None = None
    outside_rules: bool = False


class WorstElement(_Part):
    """An element that is off; what is no JSON number (nan, a complex one) is text."""

    index: list[int]
    got: bool | int | float | str
    expected: bool | int | float | str
    abs_error: float | None = None
    rel_error: float | None = None


class WorstOutput(_Part):
    """An output that a check refused: its elements that are off the most, the worst first."""

    output: str | None = None
    reason: str | None = None
    shape: list[int] | None = None
    expected_shape: list[int] | None = None
    dtype: str | None = None
    expected_dtype: str | None = None
    elements: list[WorstElement] = Field(default_factory=list)


class Verification(_Part):
    """The accuracy step: its verdict and its metrics by name (``one_minus_cosine``, ...).

    ``own_check`` says that the runner compared by means of its own, ``overruled`` why ours refused
    what the runner passes, ``worst`` the outputs that failed with their worst elements.
    """

    passed: bool
    metrics: dict[str, float | None] = Field(default_factory=dict)
    poisoned: bool = False
    thresholds: list[Threshold] | None = None
    own_check: bool | None = None
    overruled: list[str] | None = None
    worst: list[WorstOutput] | None = None


class Sampling(_Part):
    """How often a case was measured; ``medians`` has one a process, in seconds."""

    mode: str | None = None
    criterion: str | None = None
    repeats: _Whole | None = None
    medians: list[float] = Field(default_factory=list)


class Roofline(_Part):
    """What was reached of the device's peaks, as fractions; ``bound`` is memory or compute."""

    bandwidth_fraction: float | None = None
    flops_fraction: float | None = None
    bound: str | None = None
    fraction: float | None = None
    peak_bandwidth: float | None = None
    peak_flops: float | None = None
    source: str | None = None


class KnownFailure(_Part):
    """Why a case that did not pass was expected to, and until when (``YYYY-MM-DD``)."""

    reason: str
    expires: str
    expired: bool = False


class Rates(_Part):
    """Rates that follow from the declared work; ``bandwidth_utilisation`` is a fraction of peak."""

    elements_per_second: float | None = None
    bytes_per_second: float | None = None
    bandwidth_utilisation: float | None = None


class Device(_Part):
    """The device that ran the case."""

    kind: Literal["cuda", "maca", "cpu"]
    name: str
    index: _Whole = 0
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
    measured: bool = True  # false: it was only to be verified
    flags: list[str] = Field(default_factory=list)
    definition: str | None = None
    library: dict[str, Any] | None = None
    verification: Verification | None = None
    summaries: dict[str, Any] = Field(default_factory=dict)
    timers: Timers = Field(default_factory=Timers)
    repeats: _Whole = 1
    repeat_spread: float | None = None
    sampling: Sampling | None = None
    bytes_read: _Whole | None = None
    bytes_written: _Whole | None = None
    elements: _Whole | None = None
    flops: _Whole | None = None
    rates: Rates = Field(default_factory=Rates)
    roofline: Roofline | None = None
    device: Device | None = None
    environment: dict[str, Any] = Field(default_factory=dict)
    engine: str | None = None
    error: Failure | None = None
    known_failure: KnownFailure | None = None
    started: str | None = None
    duration: float | None = None
    # Added by the controller on arrival.
    run: str | None = None
    host: str | None = None
    target: str | None = None
    attempt: _Whole | None = None
    tree: str | None = None
    job: str | None = None

    @property
    def headline(self) -> tuple[str, Timer] | None:
        """The timer that stands for the case and its name: cold GPU time, on a CPU the CPU time.

        None without a mean or median there that can be a time: finite and above zero.
        """
        name = self._headline_name
        timer: Timer | None = getattr(self.timers, name)
        if timer is None or not (times := _times(timer)):
            return None
        return (name, timer) if all(_positive(time) for time in times) else None

    @property
    def excused(self) -> bool:
        """Whether it is a known failure that has not expired: one that no exit code counts."""
        known = self.known_failure
        return self.status in _EXCUSABLE and known is not None and not known.expired

    @property
    def profiled(self) -> bool:
        """Whether it was measured under a profiler: its times tell of that one as well."""
        return bool((self.model_extra or {}).get("profiler"))

    @property
    def _headline_name(self) -> str:
        cold = self.timers.cold_gpu
        on_cpu = self.device is not None and self.device.kind == "cpu"
        return "cpu" if on_cpu and (cold is None or not _times(cold)) else "cold_gpu"

    def to_line(self) -> str:
        """The record as one JSON line without the line end."""
        values = _representable(self.model_dump(mode="json", by_alias=True))
        return json.dumps(values, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def parse_line(line: str | bytes) -> Record:
    """Read one JSON line; raises ``ValueError`` with a short reason when it is not a record."""
    try:
        return Record.model_validate_json(line)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "line"
        raise ValueError(f"not a {SCHEMA} record: {place}: {first['msg']}") from None


def judged(record: Record) -> Record:
    """``record`` with the status that its content allows, and why when that is another one.

    PASSED needs a verification that passed with finite metrics, a device, and a time above zero
    in its headline timer. Without a verification it is UNVERIFIED, which needs the rest as well.
    What was only to be verified needs no time.
    """
    if record.status not in (Status.PASSED, Status.UNVERIFIED):
        return record
    status, reason = _allowed(record)
    if status is record.status:
        return record
    error = record.error or Failure(type=status.value, message=reason)
    return record.model_copy(update={"status": status, "error": error})


def _allowed(record: Record) -> tuple[Status, str]:
    verification = record.verification
    if verification is not None:
        if not verification.passed:
            return Status.FAILED, "its verification failed"
        for name, value in verification.metrics.items():
            if value is not None and not math.isfinite(value):
                return Status.FAILED, f"its verification calls {name} = {value} a pass"
    if record.device is None or not record.device.name.strip():
        return Status.ERROR, "it names no device"
    for name, timer in record.timers:
        for statistic, value in timer or ():
            if isinstance(value, int | float) and not (math.isfinite(value) and value >= 0):
                return Status.ERROR, f"its {name} time is unusable: {statistic} is {value}"
    if record.measured and record.headline is None:
        return Status.ERROR, f"it has no usable {record._headline_name} time"
    if verification is None or record.status is Status.UNVERIFIED:
        return Status.UNVERIFIED, "nothing verified it"
    return Status.PASSED, ""


def _times(timer: Timer) -> list[float]:
    return [time for time in (timer.mean, timer.median) if time is not None]


def _positive(time: float) -> bool:
    return math.isfinite(time) and time > 0


def _representable(value: Any) -> Any:
    """``value`` with floats that JSON has no word for as text, which reads back as the same."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: _representable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_representable(item) for item in value]
    return value
