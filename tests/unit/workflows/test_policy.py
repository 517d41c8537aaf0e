"""What is tried again and how long, and when most targets fail alike; on a clock of the test's."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
import tenacity

from orchestrator.errors import (
    LinkLostError,
    MxfleetError,
    TargetError,
    TransientError,
    UnreachableError,
    UnusableError,
)
from orchestrator.events import Event, Note
from orchestrator.inventory.model import Host, Target
from orchestrator.workflows.policy import MassFailure, persistently

TARGET = Target("t", Host("t"))


class Clock:
    """Time that passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


class Stopping(threading.Event):
    """What is slept on: it only turns the clock, and may be set by a pause of the test's choice."""

    def __init__(self, clock: Clock, set_in_pause: int | None = None) -> None:
        super().__init__()
        self.clock = clock
        self.pauses: list[float] = []
        self._when = set_in_pause

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.pauses.append(timeout)
        self.clock.now += timeout
        if len(self.pauses) == self._when:
            self.set()
        return self.is_set()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(tenacity, "time", made)
    return made


class Call:
    """Fails with the errors in turn, the last of them for ever; None is a success."""

    def __init__(self, *outcomes: MxfleetError | None) -> None:
        self._outcomes = outcomes
        self.times = 0

    def __call__(self) -> str:
        error = self._outcomes[min(self.times, len(self._outcomes) - 1)]
        self.times += 1
        if error is not None:
            raise error
        return "made"


BUSY = TransientError("it did not answer", where="t")


@pytest.mark.parametrize(
    ("outcomes", "retries", "times", "made"),
    [
        ((None,), 2, 1, True),
        ((BUSY, None), 2, 2, True),
        ((BUSY, LinkLostError("cut"), None), 2, 3, True),
        ((BUSY,), 2, 3, False),
        ((BUSY,), 0, 1, False),
        # what does not pass by itself
        ((UnreachableError("permission denied"),), 2, 1, False),
        ((UnusableError("no python"),), 2, 1, False),
        ((BUSY, UnusableError("no python"), None), 2, 2, False),
    ],
)
def test_retries(
    clock: Clock, outcomes: tuple[MxfleetError | None, ...], retries: int, times: int, made: bool
) -> None:
    call, stopping, heard = Call(*outcomes), Stopping(clock), list[Event]()
    target = replace(TARGET, retries=retries)
    try:
        assert persistently(call, target, stopping, heard.append, 0.0) == "made"
        succeeded = True
    except TargetError as error:
        succeeded = False
        assert error is outcomes[min(times, len(outcomes)) - 1]
    assert (call.times, succeeded) == (times, made)
    assert len(heard) == len(stopping.pauses) == times - 1
    for note in heard:
        assert isinstance(note, Note) and "; trying again in " in note.message
        assert (note.target, note.level) == ("t", "warning")


def test_pauses_grow_with_jitter_up_to_half_a_minute(clock: Clock) -> None:
    call, stopping = Call(BUSY), Stopping(clock)
    with pytest.raises(TransientError):
        persistently(call, replace(TARGET, retries=12), stopping, lambda _: None, 0.0)
    assert len(stopping.pauses) == 12
    for number, pause in enumerate(stopping.pauses):
        assert min(2.0**number, 30.0) <= pause <= min(2.0**number + 1.0, 30.0)
    assert stopping.pauses[0] != stopping.pauses[1] - 1.0  # jitter


@pytest.mark.parametrize(("limit", "retries"), [(20.0, 0), (43200.0, 2)])
def test_a_time_limit_keeps_on_for_longer_than_the_retries(
    clock: Clock, limit: float, retries: int
) -> None:
    call, stopping = Call(BUSY), Stopping(clock)
    began = clock.now
    with pytest.raises(TransientError):
        persistently(call, replace(TARGET, retries=retries), stopping, lambda _: None, limit)
    assert limit <= clock.now - began <= limit + 31.0
    assert call.times == len(stopping.pauses) + 1 > retries + 1


def test_stopping_ends_it_at_once(clock: Clock) -> None:
    call, stopping = Call(BUSY), Stopping(clock, set_in_pause=2)
    with pytest.raises(TransientError):
        persistently(call, replace(TARGET, retries=20), stopping, lambda _: None, 1e6)
    # Somebody may have set it while the last try was on its way.
    assert len(stopping.pauses) == 2 and call.times <= 3


def failure(number: int, text: str, kind: type[MxfleetError] = UnusableError) -> MxfleetError:
    return kind(text.replace("#", str(number)), where=f"h{number}")


@pytest.mark.parametrize(
    ("total", "texts", "said_after"),
    [
        # at least three, and more than half
        (4, ["no docker on h#"] * 4, 3),
        (3, ["x"] * 3, 3),
        (2, ["x"] * 2, None),
        (1, ["x"], None),
        (200, ["10.0.0.#: connection refused by port 2#"] * 150, 101),
        (6, ["a", "b", "a", "b", "a", "b"], None),
        (5, ["a", "b", "a", "a"], 4),
        (5, ["it is h#, on h#"] * 4, 3),
    ],
)
def test_most_targets_failing_alike_is_said_once(
    total: int, texts: list[str], said_after: int | None
) -> None:
    heard: list[Event] = []
    targets = [Target(f"h{n}", Host(f"h{n}", address=f"10.0.0.{n}")) for n in range(1, total + 1)]
    mass = MassFailure(targets, heard.append)
    alike = texts[:said_after].count(texts[0])
    for number, (text, target) in enumerate(zip(texts, targets, strict=False), 1):
        over = said_after is not None and number > said_after
        if not over:
            mass.check(target)
        assert mass.count(target, failure(number, text)) is over
        assert len(heard) == int(said_after is not None and number >= said_after)
    late = Target("late", Host("late"))
    if said_after is None:
        mass.check(late)
        return
    (note,) = heard
    assert isinstance(note, Note) and note.level == "error"
    assert f"{alike} of {total} targets fail the same way, stopping" in note.message
    with pytest.raises(TargetError, match="not tried, since most targets fail the same way"):
        mass.check(late)


def test_a_target_counts_once_and_kinds_of_errors_apart() -> None:
    heard: list[Event] = []
    same, second, third = targets = [Target(name, Host(name)) for name in ("h1", "h2", "h3")]
    mass = MassFailure(targets, heard.append)
    for _ in range(5):
        mass.count(same, failure(1, "x"))
    mass.count(second, failure(2, "x", UnreachableError))
    mass.count(third, failure(3, "x", UnusableError))
    assert heard == []


@pytest.mark.parametrize("names", ["a b c", "no ok host", "1 2 3", "h h-1 h-1:box"])
def test_short_names_do_not_tear_messages_apart(names: str) -> None:
    heard: list[Event] = []
    targets = [Target(name, Host(name.partition(":")[0])) for name in names.split()]
    mass = MassFailure(targets, heard.append)
    for target in targets:
        mass.count(target, UnusableError(f"{target.name}: no host has a docker of its own"))
    assert len(heard) == 1


def test_another_failure_after_it_is_told() -> None:
    targets = [Target(name, Host(name)) for name in "abcd"]
    mass = MassFailure(targets, lambda _: None)
    for target in targets[:3]:
        mass.count(target, UnusableError("x"))
    assert mass.count(targets[3], UnusableError("x"))
    assert not mass.count(targets[3], UnusableError("y"))
