"""The live view on a terminal emulator: it fits, it is calm, it folds, and it goes away."""

from __future__ import annotations

import io
import itertools
import random
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from terminal_kit import Terminal

from orchestrator.errors import InterruptedRun
from orchestrator.events import (
    Event,
    JobEnded,
    JobStarted,
    Note,
    OutputLine,
    Planned,
    Pushed,
    Row,
    RunStarted,
    Summary,
    TargetFailed,
)
from orchestrator.show import make_renderer
from orchestrator.show.frame import clock, frame
from orchestrator.show.live import LiveRenderer
from orchestrator.show.plain import PlainRenderer
from orchestrator.show.progress import MOST_GROUPS, Progress, shortened
from orchestrator.show.text import display_width

OPS = tuple(f"torch_operator_{n}" for n in range(40))
FLEET = tuple(f"c500-{n:04d}" for n in range(1, 1001))


class Live:
    """The renderer on a terminal, with time in the test's hands."""

    def __init__(self, columns: int = 80, rows: int = 24, *, color: bool = False) -> None:
        self.now = 1_000_000.0
        self.terminal = Terminal(columns, rows)
        self.errors = io.StringIO()
        plain = PlainRenderer(self.terminal, color=False, width=80, errors=self.errors)
        self.renderer = LiveRenderer(
            self.terminal,
            plain,
            color=color,
            size=lambda: self.terminal.size,
            clock=lambda: self.now,
            thread=False,
        )

    def see(self, *events: Event) -> None:
        for event in events:
            object.__setattr__(event, "at", self.now)
            self.renderer(event)

    def after(self, seconds: float) -> list[str]:
        """The screen when ``seconds`` more are over."""
        self.now += seconds
        self.renderer.tick()
        return self.terminal.lines()


def a_run_of(fleet: tuple[str, ...], ops: tuple[str, ...]) -> Iterator[Event]:
    """Thousands of events: some targets are lost, some operators go wrong, all of them talk."""
    chance = random.Random(3)
    lost = set(fleet[10:40])
    yield RunStarted("testall", "r1", ops, fleet, len(fleet) * len(ops))
    for target in fleet:
        yield Pushed(target, "abc", "/store", 3, 1000)
        if target in lost:
            yield TargetFailed(target, "UNREACHABLE", f"{target}: connection refused")
    there = [target for target in fleet if target not in lost]
    number = 0
    for op in ops:
        for target in there:
            yield JobStarted(target, op, f"{op}.{target}.a1")
        for target in there:
            words = f"CUDA error at 0x{chance.randrange(1 << 40):x}" if target[-1] == "7" else "ok"
            yield OutputLine(target, op, "stdout", words)
            number += 1
            status, message = "PASSED", None
            if target[-1] == "7":
                status, message = "ERROR", "the command ended with exit code 1"
            yield JobEnded(
                target, op, "j", status, 0, 2.0, number, len(fleet) * len(ops), message=message
            )


def test_a_thousand_targets_fit_24_by_80_at_ten_redraws_a_second() -> None:
    live = Live()
    events, times = 0, []
    for event in a_run_of(FLEET, OPS[:3]):
        live.now += 0.001
        live.see(event)
        events += 1
        if live.renderer.tick():
            times.append(live.now)
    assert events > 9000
    # Nothing ever scrolled out at the top, and the cursor stood below the view each time.
    assert live.terminal.scrolled() == []
    assert all(len(lines) <= 23 for lines in live.terminal.frames)
    assert len(live.terminal.frames) == len(times)
    seconds = events * 0.001
    assert seconds * 5 < len(times) <= seconds * 10 + 1
    for earlier, later in itertools.pairwise(times):
        assert later - earlier >= 0.1 - 1e-9
    lines = live.after(1)
    assert lines[0] == "testall: 2910 of 3000 jobs done, 2619 PASSED, 291 ERROR"
    assert any("ERROR 3 operators on 97: c500-[0007," in line for line in lines)
    assert any("e.g. | CUDA error at 0x" in line for line in lines)
    assert "  UNREACHABLE on 30: c500-[0011-0040]: (target): connection refused" in lines


def test_running_jobs_are_folded_by_operator() -> None:
    live = Live()
    live.see(RunStarted("testall", "r", ("a", "b"), FLEET[:60], 120))
    live.see(*(JobStarted(target, "a", "j") for target in FLEET[:40]))
    live.now += 61
    live.see(*(JobStarted(target, "b", "j") for target in FLEET[40:60]))
    assert live.after(1) == [
        "testall: 0 of 120 jobs done",
        "[------------------------] 0%  1:02",
        "60 of 60 targets at work",
        "   for  operator  on",
        "  1:02  a         40  c500-[0001-0040]",
        "  0:01  b         20  c500-[0041-0060]",
    ]


def test_what_went_wrong_alike_is_said_once() -> None:
    live = Live()
    live.see(*(JobStarted(target, "rms", "j") for target in FLEET[:5]))
    live.see(*(OutputLine(target, "rms", "stderr", "out of memory") for target in FLEET[:3]))
    live.see(
        OutputLine(FLEET[0], "rms", "stdout", " \t "), OutputLine(FLEET[0], "rms", "stdout", "")
    )
    for number, target in enumerate(FLEET[:3]):
        live.see(JobEnded(target, "rms", "j", "ERROR", 1, 1.0, number + 1, 5, "died"))
    live.see(JobEnded(FLEET[3], "rms", "j", "FAILED", 1, 1.0, 4, 5, "cosine 0.1"))
    live.see(JobEnded(FLEET[4], "rms", "j", "UNAVAILABLE", 1, 1.0, 5, 5, "no library"))
    lines = live.after(1)
    assert lines[lines.index("went wrong") :] == [
        "went wrong",
        "  FAILED rms on c500-0004: cosine 0.1",
        "  ERROR rms on c500-[0001-0003]: died",
        "    | out of memory",
    ]


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        (["[FATAL] rms: off", "[SUMMARY] Appended: 0"], "[FATAL] rms: off"),
        (["  >> [WORST] out (4,): off", "[VERIFY] rms -> FAIL"], ">> [WORST] out (4,): off"),
        (["RuntimeError: no room", "cleaning up", "[SUMMARY] x"], "RuntimeError: no room"),
        (["ValueError: a", "KeyError: b"], "KeyError: b"),
        (["error: no such file", "bye"], "error: no such file"),
        (["relative errors are fine", "Segmentation fault", "[SUMMARY] x"], "Segmentation fault"),
    ],
)
def test_the_words_of_what_went_wrong_say_why(printed: list[str], shown: str) -> None:
    live = Live()
    live.see(JobStarted("h", "rms", "j"), *(OutputLine("h", "rms", "stdout", p) for p in printed))
    live.see(JobEnded("h", "rms", "j", "ERROR", 1, 1.0, 1, 2, "died"))
    assert f"    | {shown}" in live.after(1)


def test_what_differs_in_numbers_only_is_alike_and_says_so() -> None:
    live = Live()
    for number, target in enumerate(FLEET[:9]):
        live.see(
            JobEnded(target, "rms", "j", "FAILED", 1, 1.0, number, 9, f"off by {number * 1e-3}")
        )
    assert "  FAILED rms on c500-[0001-0009]: e.g. off by 0.008" in live.after(1)


def test_the_time_left_follows_what_jobs_took() -> None:
    live = Live()
    live.see(RunStarted("testall", "r", ("slow", "fast"), ("a", "b"), 4))
    live.see(JobStarted("a", "slow", "j"), JobStarted("b", "fast", "j"))
    assert live.after(10)[1].endswith("0%  0:10"), "nothing has ended: nothing is known"
    live.see(JobEnded("b", "fast", "j", "PASSED", 0, 10.0, 1, 4), JobStarted("b", "slow", "j"))
    live.after(90)
    live.see(JobEnded("a", "slow", "j", "PASSED", 0, 100.0, 2, 4), JobStarted("a", "fast", "j"))
    # b's slow one has 10 of its 100 s left, a's fast one its 10 s.
    assert live.after(0.1)[1].endswith("50%  1:40, about 0:09 left")


def test_lost_targets_take_their_jobs_out_of_the_time_left() -> None:
    progress = Progress()
    fleet = tuple("abcd")
    progress.see(RunStarted("testall", "r", ("x", "y"), fleet, 8, at=0))
    for target in "ab":
        progress.see(JobStarted(target, "x", "j", at=0))
        progress.see(JobEnded(target, "x", "j", "PASSED", 0, 10.0, at=10, number=1, total=8))
        progress.see(JobStarted(target, "y", "j", at=10))
    before = progress.seconds_left(10)
    for target in "cd":
        progress.see(TargetFailed(target, "UNREACHABLE", "gone", at=10))
    assert before == 30.0  # x and y of c and d after y of a and b, two at a time
    assert progress.seconds_left(10) == 10.0


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 8, 24, 60])
@pytest.mark.parametrize("columns", [1, 2, 5, 20, 79, 80, 200])
def test_any_size_fits(columns: int, rows: int) -> None:
    live = Live(columns, rows, color=True)
    for event in a_run_of(FLEET[:60], OPS[:25]):
        live.now += 0.003
        live.see(event)
        live.renderer.tick()
    live.see(*(Note(f"warning number {'x' * n}", level="warning") for n in range(30)))
    live.after(1)
    assert live.terminal.scrolled() == []
    assert live.terminal.frames


def test_of_much_the_most_is_shown_and_the_rest_counted() -> None:
    live = Live()
    live.see(*(JobStarted(target, OPS[n % 40], "j") for n, target in enumerate(FLEET)))
    for number in range(50):
        live.see(
            JobEnded(FLEET[number], OPS[number % 40], "j", "ERROR", 1, 1.0, 1, 9, "x" * number)
        )
    lines = live.after(1)
    assert len(lines) == 23
    assert any(line.startswith("  and ") and "operators more on " in line for line in lines)
    assert lines[-1].startswith("  and ") and lines[-1].endswith(" more")


def test_resizing_leaves_nothing_of_the_former_view() -> None:
    live = Live(120, 40)
    for event in a_run_of(FLEET[:50], OPS[:4]):
        live.see(event)
    live.after(1)
    for columns, rows in [(60, 20), (200, 50), (31, 7), (80, 24)]:
        live.terminal.resize(columns, rows)
        lines = live.after(1)
        assert sum("jobs done" in line for line in lines) == 1
        assert lines[0].startswith("testall: 80 of 200 jobs"[:columns])
    live.terminal.resize(100, 30)
    live.see(Summary("testall", 1))
    assert live.terminal.lines() == ["testall: done, exit code 1"]


HOSTILE = [
    "\x1b[2J\x1b[1;1H",
    "\x9b2J",
    "\x1b]0;title\x07",
    "a\r\nb",
    "\t\t\t",
    "\u202eleft",
    "e\u0301" * 90,
    "中" * 60,
    "👩‍👩‍👧‍👦" * 20,
    "\ud800",
    "\x00" * 200,
    "x" * 1_000_000,
    "[1-3],@all!c[",
    "c500-[1-9999999999]",
    "",
    " ",
    "{0!r} %s [bold]",
]


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("columns", [3, 80])
def test_hostile_names_and_messages_are_text(text: str, columns: int) -> None:
    live = Live(columns, color=True)
    other = text + "2"
    live.see(
        RunStarted(text, text, (text,), (text, other), 3),
        Note(text),
        Note(text, target=text, level="error"),
        Pushed(text, text, text, 1, 1),
        TargetFailed(other, text, text),
        JobStarted(text, text, "j"),
        JobStarted(other, text, "j"),
        OutputLine(text, text, "stdout", text),
        JobEnded(text, text, "j", "ERROR", 1, 1.0, 1, 3, text),
    )
    live.after(1)
    assert live.terminal.scrolled() == []
    raw = "".join(live.terminal.raw)
    for escape in ("\x1b[?25l", "\x1b[?7l", "\x1b[?7h", "\x1b[?25h", "\x1b[K", "\x1b[J", "\x1b[0m"):
        raw = raw.replace(escape, "")
    raw = raw.replace("\x1b[31m", "").replace("\x1b[33m", "")
    assert all(c in "\n\r" or c.isprintable() or c == "\u200d" for c in raw)
    assert live.terminal.screen.title == ""
    live.see(Row(text, text, "ERROR", message=text), Summary(text[:999], 1, message=text[:999]))
    assert all(c == "\n" or c.isprintable() or c in "\t\u200d" for c in live.errors.getvalue())


def test_the_view_goes_away_and_plain_text_comes() -> None:
    live = Live()
    live.see(RunStarted("testall", "r", ("rms",), FLEET[:3], 3))
    live.see(*(Note("clock is 3 s off", target=name, level="warning") for name in FLEET[:2]))
    live.see(Note("running x on y, 8 s so far"))
    live.see(TargetFailed(FLEET[2], "UNREACHABLE", "connection refused"))
    live.see(JobEnded(FLEET[0], "rms", "j", "ERROR", 1, 1.0, 1, 3, "boom", log="/r/a.log"))
    assert live.after(1)
    live.see(
        Row("rms", FLEET[0], "PASSED", seconds=1e-6, timer="cold_gpu"),
        Row("rms", FLEET[1], "PASSED", seconds=1e-6, timer="cold_gpu"),
        Summary("testall", 3, {"PASSED": 2}, folder="/r"),
    )
    assert live.terminal.lines() == [
        "operator  host       status  Acc_Pass  dtype  shape  GPU time  noise  BWUtil",
        "--------  ---------  ------  --------  -----  -----  --------  -----  ------",
        "rms       c500-0001  PASSED  -         -      -      1.00 µs   -      -",
        "rms       c500-0002  PASSED  -         -      -      1.00 µs   -      -",
        "GPU time: median of cold runs (established scripts: mean); noise: relative",
        "  standard deviation; the CSV's time columns are means",
        "",
        "log of rms on c500-0001: /r/a.log",
        "folder of the run: /r",
        "",
        "testall: 2 PASSED, exit code 3",
    ]
    assert live.errors.getvalue() == (
        "UNREACHABLE on c500-0003: connection refused\n"
        "warning on c500-[0001-0002]: clock is 3 s off\n"
    )
    frames = len(live.terminal.frames)
    live.after(5)
    assert len(live.terminal.frames) == frames, "nothing is drawn over the results"


def test_what_has_no_place_in_the_view_goes_above_it() -> None:
    live = Live()
    live.see(JobStarted("a", "rms", "j"))
    live.after(1)
    live.see(Planned("a", "rms", "python -u x.py"))
    assert live.after(1)[:2] == ["a | python -u x.py", "0 jobs done"]


def test_an_event_costs_little_however_much_is_unseen() -> None:
    """A terminal that stands still: what waits is bounded, and so is each line of it."""
    live = Live()
    live.see(JobStarted("a", "rms", "j"))
    for _ in range(10_000):
        live.see(OutputLine("a", "rms", "stdout", "y" * 10_000))
    waiting = live.renderer._unseen
    assert len(waiting) <= 2001
    assert all(len(e.text) <= 300 for e in waiting if isinstance(e, OutputLine))
    assert shortened(Note("n" * 10_000)).message == "n" * 10_000  # type: ignore[attr-defined]


def test_what_is_kept_is_bounded() -> None:
    progress = Progress()
    for number in range(3000):
        op = "x" * (number % 1000)
        progress.see(JobStarted("t", op, "j"))
        progress.see(JobEnded("t", op, "j", "ERROR", 1, 1.0, message="m" * (number % 700)))
    assert len(progress.failures) == MOST_GROUPS
    assert progress.failures.forgotten + sum(g.count for g in progress.failures) == 3000
    assert progress.running == {}
    shown = frame(progress, time.time(), 80, 23)
    assert shown[-1].endswith("earlier ones")


def test_a_reader_that_leaves_is_told_to_an_event() -> None:
    class Gone(Terminal):
        def write(self, text: str) -> int:
            raise BrokenPipeError(32, "Broken pipe")

    terminal = Gone()
    plain = PlainRenderer(terminal, color=False, width=80, errors=io.StringIO())
    renderer = LiveRenderer(terminal, plain, color=False, size=lambda: (80, 24))
    with pytest.raises(InterruptedRun, match="nobody reads"):
        for _ in range(200):
            renderer(JobStarted("a", "rms", "j"))
            time.sleep(0.01)
    renderer(OutputLine("a", "rms", "stdout", "x"))
    renderer.close()


def test_threads_and_the_clock_set_back() -> None:
    live = Live()

    def emit(name: str) -> None:
        for number in range(300):
            live.see(JobStarted(name, "rms", "j"))
            live.see(JobEnded(name, "rms", "j", "PASSED", 0, 1.0, number, 2400))

    threads = [threading.Thread(target=emit, args=(name,)) for name in "abcdefgh"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert live.after(1)[0] == "2400 of 2400 jobs done, 2400 PASSED"
    frames = len(live.terminal.frames)
    live.see(Note("x"))
    live.after(-5000)
    assert len(live.terminal.frames) == frames + 1


@pytest.mark.parametrize(
    ("environment", "terminal", "live"),
    [
        ({"TERM": "xterm"}, True, True),
        ({"TERM": "xterm", "NO_COLOR": "1"}, True, True),
        ({"TERM": "dumb"}, True, False),
        ({"TERM": ""}, True, False),
        ({"TERM": "xterm"}, False, False),
    ],
)
def test_only_a_terminal_that_moves_its_cursor_has_a_view(
    environment: dict[str, str], terminal: bool, live: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TERM", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    stream: Any = Terminal() if terminal else io.StringIO()
    made = make_renderer("text", stream, io.StringIO(), live=True)
    assert isinstance(made, LiveRenderer) is live
    assert not isinstance(make_renderer("text", stream, io.StringIO()), LiveRenderer)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0:00"), (62, "1:02"), (3607.9, "1:00:07"), (-5, "0:00"), (1e300, "100000:00:00")],
)
def test_spans(seconds: float, text: str) -> None:
    assert clock(seconds) == text


def test_a_locale_without_our_characters_keeps_the_width() -> None:
    live = Live()

    class Latin(Terminal):
        encoding = "ascii"

    live.terminal = Latin()
    live.renderer._screen.__init__(live.terminal, lambda: (80, 24))  # type: ignore[misc]
    live.see(JobEnded("ü" * 200, "中" * 20, "j", "ERROR", 1, 1.0, 1, 2, "µ" * 200))
    lines = live.after(1)
    assert all(line.isascii() and display_width(line) <= 80 for line in lines)
