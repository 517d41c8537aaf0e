"""What happened: the events that workflows emit and renderers, run folders and scripts read.

A workflow knows no terminal: it calls a ``Sink`` with events, and whoever wants to show, store or
count them passes one. Every event turns into a flat JSON object (``as_dict``) for
``--output json`` and ``events.jsonl``. Nothing here imports anything of ours.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar


@dataclass(frozen=True)
class Event:
    """Base of all events; ``at`` is seconds since the epoch on the controller's clock."""

    kind: ClassVar[str] = "event"
    at: float = field(default_factory=time.time, kw_only=True)

    def as_dict(self) -> dict[str, Any]:
        """The event as a JSON object; ``event`` names its kind."""
        return {"event": self.kind, **asdict(self)}


@dataclass(frozen=True)
class Note(Event):
    """A sentence for people that is worth saying before the end; ``level`` is info or warning."""

    kind: ClassVar[str] = "note"
    message: str
    target: str | None = None
    level: str = "info"


@dataclass(frozen=True)
class TargetFailed(Event):
    """A target cannot take part; ``status`` is UNREACHABLE or UNUSABLE."""

    kind: ClassVar[str] = "target_failed"
    target: str
    status: str
    message: str


@dataclass(frozen=True)
class Pushed(Event):
    """A tree lies on a target, or a checkout there is in step; counts are files and bytes sent."""

    kind: ClassVar[str] = "pushed"
    target: str
    tree: str | None
    path: str
    files_sent: int
    bytes_sent: int
    deleted: int = 0
    dry_run: bool = False
    changes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Planned(Event):
    """A job that a real run would do; ``command`` is what a person would type in the target.

    With ``here`` it is to be pasted into a shell on this machine.
    """

    kind: ClassVar[str] = "planned"
    target: str
    op: str
    command: str
    here: bool = False


@dataclass(frozen=True)
class RunStarted(Event):
    """A run begins: ``ops`` on ``targets``, ``jobs`` in all; ``spread`` as for ``testall``.

    With ``replicate`` every operator runs on every target, with ``shard`` each on one of them.
    """

    kind: ClassVar[str] = "run_started"
    command: str
    run: str
    ops: tuple[str, ...]
    targets: tuple[str, ...]
    jobs: int
    spread: str = "replicate"


@dataclass(frozen=True)
class JobStarted(Event):
    """A command was started on a target."""

    kind: ClassVar[str] = "job_started"
    target: str
    op: str
    job: str
    attempt: int = 1


@dataclass(frozen=True)
class OutputLine(Event):
    """One line that the command printed, decoded; making escapes harmless is the renderer's."""

    kind: ClassVar[str] = "output"
    target: str
    op: str
    stream: str  # "stdout" or "stderr"
    text: str


@dataclass(frozen=True)
class LogHead(Event):
    """What follows is a job's log; ``status`` is how the attempt ended, None: that is not known."""

    kind: ClassVar[str] = "log"
    target: str
    op: str
    attempt: int
    path: str
    status: str | None = None
    message: str | None = None


@dataclass(frozen=True)
class JobEnded(Event):
    """A command has really ended. ``status`` is a case status, the worst of the job's records."""

    kind: ClassVar[str] = "job_ended"
    target: str
    op: str
    job: str
    status: str
    exit_code: int | None
    seconds: float
    number: int = 1  # of ``total`` jobs of the run, in the order of their ends
    total: int = 1
    message: str | None = None
    log: str | None = None
    csv: str | None = None
    records: str | None = None
    made: tuple[str, ...] = ()  # what a profiler wrote


@dataclass(frozen=True)
class Merged(Event):
    """A device's CSV took in this run's rows.

    Of the ``skipped`` rows, which it had already, ``differing`` ones are more than 5 % off.
    """

    kind: ClassVar[str] = "merged"
    path: str
    appended: int = 0
    skipped: int = 0
    differing: int = 0
    updated: int = 0
    kept: int = 0
    withheld: tuple[str, ...] = ()


@dataclass(frozen=True)
class Row(Event):
    """One line of the result table: a case on a target, or a job without any record.

    ``noise`` is within a process, ``repeat_spread`` over the medians of ``repeats`` processes, both
    relative. ``roofline``, ``library`` and ``known_failure`` are the record's; ``thresholds`` are
    those outside the rules, ``own_check`` and ``overruled`` what else there is to know of how it
    was verified, ``worst`` the outputs that failed, each with its worst elements. ``metric`` names
    what the verification went by, ``distance`` is its worst value, ``distance_limit`` the largest
    that passes.
    """

    kind: ClassVar[str] = "row"
    op: str
    target: str
    status: str
    case_id: str | None = None
    case: str | None = None  # what tells it from its operator's other cases: rows=8 dtype=float16
    parameters: dict[str, Any] = field(default_factory=dict)
    accuracy: str | None = None  # "Yes", "No" or None when not verified
    dtype: str | None = None
    shape: str | None = None
    seconds: float | None = None
    timer: str | None = None  # "cold_gpu" or "cpu"
    noise: float | None = None
    repeats: int | None = None
    repeat_spread: float | None = None
    bandwidth_utilisation: float | None = None
    flops_per_second: float | None = None
    roofline: dict[str, Any] | None = None
    flags: tuple[str, ...] = ()
    thresholds: tuple[dict[str, Any], ...] = ()
    own_check: bool = False
    metric: str | None = None
    distance: float | None = None
    distance_limit: float | None = None
    overruled: tuple[str, ...] = ()
    worst: tuple[dict[str, Any], ...] = ()
    device: str | None = None
    device_mismatch: str | None = None
    library: dict[str, Any] | None = None
    known_failure: dict[str, Any] | None = None
    message: str | None = None


@dataclass(frozen=True)
class MatrixLine(Event):
    """One line of the matrix operators × hosts: a case, or an operator's cases, on one model.

    ``seconds`` are the headline times by target; ``statuses`` what became of those that have none,
    or of the worst of some of their cases.
    ``case`` is None where ``cases`` > 1 are taken together by their geometric mean; a target that
    lacks some of them is held against the others in those it has. ``spread`` is the deviation to
    expect of one target, relative: 1.4826 × the median absolute deviation. ``model`` is None for
    targets of which nothing says what device they have.
    """

    kind: ClassVar[str] = "matrix"
    op: str
    model: str | None
    timer: str | None = None  # "cold_gpu" or "cpu"; None where nothing was timed
    case: str | None = None
    cases: int = 1
    median: float | None = None
    spread: float | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    statuses: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Outlier(Event):
    """A target that is not as fast, or slow, as the others of its model.

    ``deviation`` from the ``median`` of ``targets`` targets is relative, more than 0 is slower;
    ``limit`` is what it exceeds. ``case`` is None where it is the mean over an operator's cases.
    """

    kind: ClassVar[str] = "outlier"
    op: str
    case: str | None
    target: str
    model: str
    seconds: float
    median: float
    deviation: float
    limit: float
    targets: int
    flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class HostLine(Event):
    """One line of ``mxfleet hosts``: a target and, where it was asked, what it is."""

    kind: ClassVar[str] = "target"
    target: str
    host: str
    container: str | None
    workdir: str | None
    gpus: tuple[str, ...]
    transport: str
    status: str | None = None  # OK, UNREACHABLE, UNUSABLE; None when not asked
    message: str | None = None
    facts: dict[str, Any] | None = None


@dataclass(frozen=True)
class Check(Event):
    """One thing that ``mxfleet doctor`` looked at on a target.

    ``status`` is OK, WARNING (jobs run, but look), FAILED (jobs do not run) or UNKNOWN (it could
    not be told); ``hint`` is what to do about it.
    """

    kind: ClassVar[str] = "check"
    target: str
    name: str
    status: str
    message: str
    hint: str | None = None


@dataclass(frozen=True)
class RunLine(Event):
    """One line of ``mxfleet runs``: what a run was and what became of it.

    ``state`` is ``running`` while a command is at work on its folder, ``ended`` when its summary
    is there, else ``unfinished``. ``exit_code`` and ``counts`` (jobs' rows by status) are those of
    the run's summary; ``started`` is seconds since the epoch, None where the id does not say.
    """

    kind: ClassVar[str] = "run"
    run: str
    state: str
    folder: str
    ops: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    exit_code: int | None = None
    counts: dict[str, int] = field(default_factory=dict)
    seconds: float | None = None
    message: str | None = None
    command: str | None = None
    started: float | None = None


@dataclass(frozen=True)
class NightChange(Event):
    """What a night found different from earlier nights, on one target.

    ``change`` is broken, slower, changed (the times of an operator cannot be compared, ``message``
    says what differs), repaired, faster, new or gone; still, for what went wrong as it did before,
    and failed, for what did in the first night. Without ``op`` it is the target itself, without
    ``case_id`` all of the operator. ``limit`` is the relative change of ``seconds`` that was
    exceeded, ``since`` the run that it was held against; of still the first that it failed in.
    """

    kind: ClassVar[str] = "night_change"
    change: str
    target: str
    op: str | None = None
    case_id: str | None = None
    case: str | None = None
    status: str | None = None
    former_status: str | None = None
    seconds: float | None = None
    former_seconds: float | None = None
    timer: str | None = None
    limit: float | None = None
    flags: tuple[str, ...] = ()
    since: str | None = None
    message: str | None = None


@dataclass(frozen=True)
class NightlyState(Event):
    """What ``mxfleet nightly status`` knows: what is installed, what runs, how the last night went.

    ``entry`` is the crontab line that is installed, ``next_start`` seconds since the epoch (None
    where the schedule was edited to something else than a time of day). ``running`` has ``pid``,
    ``host`` and ``since``; ``last`` has ``log``, ``run``, ``exit_code`` and ``message``.
    """

    kind: ClassVar[str] = "nightly_state"
    folder: str
    installed: bool
    entry: str | None = None
    next_start: float | None = None
    running: dict[str, Any] | None = None
    last: dict[str, Any] | None = None


@dataclass(frozen=True)
class Linted(Event):
    """What ``mxfleet check`` found at a place of the tree; ``severity`` is error or warning.

    ``rule`` is its id, ``why`` what the rule is for, ``fix`` what to do here. ``operator`` is None
    for the tree as a whole. ``fixable``: --fix does it; ``fixed``: it has.
    """

    kind: ClassVar[str] = "finding"
    path: str
    line: int
    column: int
    severity: str
    rule: str
    message: str
    why: str
    fix: str
    operator: str | None = None
    fixable: bool = False
    fixed: bool = False


@dataclass(frozen=True)
class Drafted(Event):
    """A file that ``mxfleet gen op`` wrote, or in a dry run would write.

    ``action`` is created, changed, would_create, would_change or unchanged; ``diff`` what a dry run
    would do to it, as a unified diff.
    """

    kind: ClassVar[str] = "drafted"
    op: str
    path: str
    action: str
    diff: str | None = None


@dataclass(frozen=True)
class LeftOpen(Event):
    """What of a generated benchmark a person has to look at.

    ``sort`` is todo (it could not be told, and fails ``mxfleet check``) or inferred (it was
    concluded, not read). ``place`` is where it was looked for.
    """

    kind: ClassVar[str] = "open"
    op: str
    sort: str
    what: str
    place: str | None = None


@dataclass(frozen=True)
class Summary(Event):
    """The last event of every command: counts, exit code and where things are.

    ``known`` of those counted are known failures that have not expired.
    """

    kind: ClassVar[str] = "summary"
    command: str
    exit_code: int
    counts: dict[str, int] = field(default_factory=dict)
    targets: dict[str, str] = field(default_factory=dict)
    run: str | None = None
    folder: str | None = None
    files: tuple[str, ...] = ()
    seconds: float | None = None
    message: str | None = None
    known: int = 0


Sink = Callable[[Event], None]


def event_of(told: Mapping[str, Any]) -> Event:
    """The event that ``as_dict`` made a JSON object of; what this version does not know is dropped.

    Raises ``ValueError`` where it is none.
    """
    kinds: dict[str, type[Event]] = {kind.kind: kind for kind in Event.__subclasses__()}
    kind = kinds.get(str(told.get("event")))
    if kind is None:
        raise ValueError(f"no event of ours: {str(told)[:100]}")
    values: dict[str, Any] = {
        # JSON has no tuples.
        item.name: tuple(told[item.name]) if isinstance(told[item.name], list) else told[item.name]
        for item in fields(kind)
        if item.name in told
    }
    try:
        return kind(**values)
    except TypeError as error:
        raise ValueError(f"no event of ours: {error}") from None
