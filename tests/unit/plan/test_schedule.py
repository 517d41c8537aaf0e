"""Who gets which job next: own ones, others', those of who is lost; from many threads at once."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

from orchestrator.inventory.model import Host, Target
from orchestrator.plan.jobs import PlannedJob
from orchestrator.plan.schedule import Schedule, share_out

ALIKE = {"a": "m", "b": "m", "c": "m"}


def target(name: str) -> Target:
    return Target(name, Host(name))


def job(on: str, op: str) -> PlannedJob:
    return PlannedJob(target(on), op, f"r.{on}.{op}.a1", {})


def jobs(text: str) -> list[PlannedJob]:
    """``a:x a:y b:z``."""
    return [job(*word.split(":")) for word in text.split()]


def moved(one: PlannedJob, to: str) -> PlannedJob:
    return replace(one, target=target(to), job=f"r.{to}.{one.op}.a1")


def shared(text: str, groups: dict[str, str] | None = None, begun: str = "") -> Schedule:
    names = [f"r.{word.replace(':', '.')}.a1" for word in begun.split()]
    return Schedule(jobs(text), ALIKE if groups is None else groups, moved, names)


def told(taken: PlannedJob | None) -> str | None:
    return None if taken is None else f"{taken.target.name}:{taken.op}"


def run_out(schedule: Schedule, name: str) -> list[str | None]:
    """What a target takes, each job done at once, until there is no more."""
    found: list[str | None] = []
    while (taken := schedule.take(name)) is not None:
        found.append(told(taken))
        schedule.done(taken)
    return found


def waits(call: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    time.sleep(0.1)
    assert thread.is_alive()
    return thread


def test_replicated_jobs_stay_where_they_are() -> None:
    schedule = Schedule(jobs("a:x a:y b:x"))
    assert not schedule.shared
    assert run_out(schedule, "a") == ["a:x", "a:y"]
    assert schedule.take("a") is None
    schedule.lost("b")
    assert schedule.take("b") is None and schedule.take("a") is None
    assert not schedule.give_back(job("b", "x"), started=False)


@pytest.mark.parametrize(
    ("text", "groups", "taker", "expected"),
    [
        ("a:x a:y b:z", ALIKE, "a", ["a:x", "a:y", "a:z"]),
        # from the end of the fullest queue
        ("b:v c:x c:y c:z", ALIKE, "a", ["a:z", "a:y", "a:v", "a:x"]),
        ("b:x", {"a": "m", "b": "n"}, "a", []),
        # who has no group is one of its own
        ("b:x", {}, "a", []),
    ],
)
def test_whoever_is_free_helps_those_alike(
    text: str, groups: dict[str, str], taker: str, expected: list[str]
) -> None:
    assert run_out(shared(text, groups), taker) == expected


def test_what_others_have_begun_is_theirs_until_they_are_lost() -> None:
    schedule = shared("a:x a:y a:z b:w", begun="a:y a:z")
    assert run_out(schedule, "b") == ["b:w", "b:x"]
    first = schedule.take("a")
    assert first is not None and told(first) == "a:y"  # first, whatever the order
    schedule.done(first)
    schedule.lost("a")
    assert run_out(schedule, "c") == ["c:z"]


def test_it_is_waited_for_what_may_still_come() -> None:
    schedule = shared("a:x")
    first = schedule.take("a")
    assert first is not None
    seen: list[str | None] = []
    thread = waits(lambda: seen.append(told(schedule.take("b"))))
    assert schedule.give_back(first, started=True)
    thread.join(5)
    assert seen == ["b:x"]
    assert schedule.take("a") is None  # it is lost


def test_it_is_waited_for_who_comes_with_begun_jobs_only() -> None:
    """Those of a target that has not come yet may have to wait for us: no circle."""
    schedule = shared("a:x b:y", begun="b:y")
    assert run_out(schedule, "a") == ["a:x"]
    schedule.coming("b")
    seen: list[list[str | None]] = []
    thread = waits(lambda: seen.append(run_out(schedule, "a")))
    schedule.lost("b")
    thread.join(5)
    assert seen == [["a:y"]]


def test_nobody_alike_is_left() -> None:
    schedule = shared("a:x b:y", {"a": "m", "b": "n"})
    taken = schedule.take("a")
    assert taken is not None and not schedule.give_back(taken, started=True)
    both = shared("a:x b:y", {"a": "m", "b": "m"})
    both.lost("b")
    taken = both.take("a")
    assert taken is not None and not both.give_back(taken, started=True)


def test_a_job_under_which_two_targets_died_is_given_to_no_third() -> None:
    schedule = shared("a:x")
    for name, again in (("a", True), ("b", False)):
        taken = schedule.take(name)
        assert taken is not None and schedule.give_back(taken, started=True) is again
    assert schedule.take("c") is None


def test_targets_that_were_gone_before_a_job_began_say_nothing_of_the_job() -> None:
    schedule = shared("a:x")
    for name in ("a", "b"):
        taken = schedule.take(name)
        assert taken is not None and schedule.give_back(taken, started=False)
    assert told(schedule.take("c")) == "c:x"


def test_stopped_hands_out_nothing_and_wakes_who_waits() -> None:
    schedule = shared("a:x a:y")
    assert schedule.take("a") is not None
    assert schedule.take("a") is not None
    ended = waits(lambda: schedule.take("b"))
    schedule.stop()
    ended.join(5)
    assert not ended.is_alive()
    assert schedule.take("a") is None


def test_many_threads_do_everything_once_though_targets_are_lost() -> None:
    names = [f"t{number}" for number in range(8)]
    ops = [f"op{number}" for number in range(200)]
    parts = share_out(ops, names, {})
    planned = [job(name, op) for name, part in parts.items() for op in part]
    schedule = Schedule(planned, dict.fromkeys(names, "m"), moved)
    done: Counter[str] = Counter()
    lock = threading.Lock()

    def work(name: str, dies_after: int | None) -> None:
        number = 0
        while (taken := schedule.take(name)) is not None:
            assert taken.target.name == name
            number += 1
            time.sleep(0.0005)
            if dies_after is not None and number > dies_after:
                schedule.give_back(taken, started=False)
                schedule.done(taken)
                schedule.lost(name)
                return
            with lock:
                done[taken.op] += 1
            schedule.done(taken)

    # Two lanes each; half of the targets die in the middle, one before its first job.
    dying = {"t0": 0, "t1": 3, "t2": 5, "t3": 7}
    threads = [
        threading.Thread(target=work, args=(name, dying.get(name)), daemon=True)
        for name in names
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads)
    assert done == Counter(ops)


@pytest.mark.parametrize(
    ("ops", "targets", "seconds", "expected"),
    [
        ("a b c d", "x", {"a": 1, "b": 3, "c": 2, "d": 4}, {"x": "d b c a"}),
        ("a b c d", "x y", {"a": 1, "b": 3, "c": 2, "d": 4}, {"x": "d a", "y": "b c"}),
        # unknown ones take as long as the middle one
        ("a b c new", "x y", {"a": 9, "b": 1, "c": 2, "other": 99}, {"x": "a", "y": "c new b"}),
        ("a b c", "x y", {}, {"x": "a c", "y": "b"}),
        ("a", "x y", {}, {"x": "a", "y": ""}),
        ("", "x", {}, {"x": ""}),
    ],
)
def test_share_out(
    ops: str, targets: str, seconds: dict[str, float], expected: dict[str, str]
) -> None:
    parts = share_out(ops.split(), targets.split(), seconds)
    assert {name: " ".join(part) for name, part in parts.items()} == expected
