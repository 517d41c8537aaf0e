"""Renderers: live lines, whole lines, plain pipes, valid JSON, and a reader that goes away."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Literal, TextIO

import pytest

from orchestrator.errors import InterruptedRun
from orchestrator.events import (
    Event,
    JobEnded,
    JobStarted,
    Merged,
    Note,
    OutputLine,
    Planned,
    Pushed,
    Row,
    Summary,
    TargetFailed,
)
from orchestrator.show import make_renderer
from orchestrator.show.jsonlines import JsonRenderer
from orchestrator.show.plain import PlainRenderer
from orchestrator.show.stream import ReaderGone
from orchestrator.show.text import display_width

RUN: list[Event] = [
    Pushed("h1", "abc", "/store/trees/abc", 3, 12345, deleted=1),
    Pushed("h2", "abc", "/store/trees/abc", 0, 0),
    JobStarted("h1", "rms", "j1"),
    OutputLine("h1", "rms", "stdout", "[VERIFY] rms -> PASS"),
    Note("clock is 3 s off", target="h1", level="warning"),
    TargetFailed("h9", "UNREACHABLE", "connection refused"),
    JobEnded("h1", "rms", "j1", "PASSED", 0, 3.2, 3, 16, log="/runs/1/h1.log"),
    Row(
        "rms",
        "h1",
        "PASSED",
        accuracy="Yes",
        dtype="float16",
        shape="(4 4)",
        seconds=3.9e-6,
        timer="cold_gpu",
        noise=0.01,
        bandwidth_utilisation=0.5,
    ),
    Merged("/stats/x_C500.csv", appended=1, withheld=("softmax on h2: FAILED",)),
    Summary("run", 3, {"PASSED": 1}, {"h1": "OK", "h9": "UNREACHABLE"}, folder="/runs/1"),
]


def plain(events: list[Event]) -> tuple[str, str]:
    out, errors = io.StringIO(), io.StringIO()
    render = PlainRenderer(out, color=False, width=80, errors=errors)
    for event in events:
        render(event)
    return out.getvalue(), errors.getvalue()


def test_a_run_as_text() -> None:
    out, errors = plain(RUN)
    assert out == (
        "h1 | sent 3 files (12.3 kB), deleted 1: /store/trees/abc\n"
        "h2 | nothing to send: /store/trees/abc\n"
        "h1 | start rms\n"
        "h1 | [VERIFY] rms -> PASS\n"
        "h1 | end rms PASSED in 3.20 s (3 of 16)\n"
        "\n"
        "operator  host  status  Acc_Pass  dtype    shape  GPU time  noise  BWUtil\n"
        "--------  ----  ------  --------  -------  -----  --------  -----  ------\n"
        "rms       h1    PASSED  Yes       float16  (4 4)  3.90 µs   1.00%  50.0%\n"
        "GPU time: median of cold runs (established scripts: mean); noise: relative\n"
        "  standard deviation; the CSV's time columns are means\n"
        "\n"
        "merged into /stats/x_C500.csv: 1 appended\n"
        "  withheld: softmax on h2: FAILED\n"
        "\n"
        "log of rms on h1: /runs/1/h1.log\n"
        "folder of the run: /runs/1\n"
        "\n"
        "run: 1 PASSED, 1 target UNREACHABLE, exit code 3\n"
    )
    assert errors == "h1 | warning: clock is 3 s off\nh9 | UNREACHABLE: connection refused\n"


def test_every_event_is_out_when_the_call_returns() -> None:
    out = io.StringIO()
    render = PlainRenderer(out, color=False, width=80, errors=io.StringIO())
    render(OutputLine("a", "op", "stdout", "1"))
    assert out.getvalue() == "a | 1\n"
    render(OutputLine("longer", "op", "stderr", "2"))
    render(OutputLine("a", "op", "stdout", "3"))
    assert out.getvalue() == "a | 1\nlonger | 2\na      | 3\n"


@pytest.mark.parametrize(
    "text",
    ["\x1b[31mred", "\x00", "\u202e", "\ud800", "e\u0301", "a\rb", "x" * 1_000_000, "", "\x9b2J"],
)
def test_hostile_lines_stay_lines(text: str) -> None:
    events = [OutputLine("h\x1b[1m", "op", "stdout", text), Note(text), Row("op", text, "ERROR")]
    out, errors = plain([*events, Summary("run", 1, message=text)])
    assert out.startswith("h\\x1b[1m | ")
    assert all(c == "\n" or c.isprintable() for c in out + errors)
    assert len(errors.splitlines()) == 1
    if len(text) == 1_000_000:
        assert out.split("\n", 1)[0] == f"h\\x1b[1m | {text}"


def test_threads_never_share_a_line() -> None:
    out = io.StringIO()
    render = PlainRenderer(out, color=False, width=80, errors=io.StringIO())

    def emit(name: str) -> None:
        for number in range(200):
            render(OutputLine(name, "op", "stdout", f"{number} {name * 50}"))

    threads = [threading.Thread(target=emit, args=(name,)) for name in "abcdefgh"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = out.getvalue().splitlines()
    assert len(lines) == 8 * 200
    for name in "abcdefgh":
        mine = [line for line in lines if line.startswith(name)]
        assert mine == [f"{name} | {number} {name * 50}" for number in range(200)]


def test_json_is_one_valid_object_a_line_and_the_summary_last() -> None:
    binary = io.BytesIO()
    render = JsonRenderer(io.TextIOWrapper(binary, encoding="utf-8", newline=""))
    odd = OutputLine("h", "op", "stdout", "\ud800 \x1b 中 \n \u2028")
    numbers = Row("op", "h", "PASSED", seconds=float("nan"), noise=float("inf"))
    for event in [*RUN[:-1], odd, numbers, RUN[-1], Note("late")]:
        render(event)
    lines = binary.getvalue().decode("utf-8").removesuffix("\n").split("\n")
    objects = [json.loads(line, parse_constant=pytest.fail) for line in lines]
    assert len(objects) == len(RUN) + 2
    assert objects[0]["event"] == "pushed"
    assert objects[-1] == {**json.loads(json.dumps(RUN[-1].as_dict()))}
    assert objects[-3]["text"] == "\ufffd \x1b 中 \n \u2028"
    assert (objects[-2]["seconds"], objects[-2]["noise"]) == (None, None)


@pytest.mark.parametrize("output", ["text", "json"])
@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_any_locale_will_do(output: Literal["text", "json"], encoding: str) -> None:
    binary = io.BytesIO()
    out = io.TextIOWrapper(binary, encoding=encoding)
    render = make_renderer(output, out, io.StringIO())
    for event in [OutputLine("h", "op", "stdout", "µ 中 😀"), *RUN]:
        render(event)
    lines = binary.getvalue().decode(encoding).splitlines()
    if output == "json":
        assert json.loads(lines[0])["text"] == "µ 中 😀"
    else:
        assert lines[0].startswith("h | ")


class Gone(io.StringIO):
    """A stream whose reader has left."""

    def write(self, text: str) -> int:
        raise BrokenPipeError(32, "Broken pipe")


def test_a_full_disk_is_called_that() -> None:
    with Path("/dev/full").open("w") as full:
        render = make_renderer("text", full, io.StringIO())
        with pytest.raises(InterruptedRun, match="No space left on device; make room") as told:
            render(OutputLine("h", "op", "stdout", "x"))
        assert not isinstance(told.value, ReaderGone)
        render(OutputLine("h", "op", "stdout", "x"))


@pytest.mark.parametrize("output", ["text", "json"])
def test_a_reader_that_leaves_stops_the_run_once(output: Literal["text", "json"]) -> None:
    render = make_renderer(output, Gone(), Gone())
    with pytest.raises(ReaderGone, match="nobody reads"):
        render(OutputLine("h", "op", "stdout", "x"))
    for event in RUN:
        render(event)


PIPED = """
import sys
from orchestrator.errors import InterruptedRun
from orchestrator.events import OutputLine, Row, Summary
from orchestrator.show import make_renderer
render = make_renderer(sys.argv[1], sys.stdout, sys.stderr)
assert "rich" not in sys.modules and "pydantic" not in sys.modules
try:
    for number in range(int(sys.argv[2])):
        render(OutputLine("h", "op", "stdout", "x" * 1000))
    render(Row("op", "h", "PASSED", seconds=1e-6, timer="cold_gpu"))
    render(Summary("run", 0, {"PASSED": 1}))
except InterruptedRun as error:
    sys.exit(error.code)
"""


@pytest.mark.parametrize("output", ["text", "json"])
def test_piped_into_head(output: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PIPED, output, "10000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout and process.stderr
    assert process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(timeout=60) == 130
    process.stderr.close()


def on_terminal(environment: dict[str, str]) -> str:
    """What a terminal of 80 columns gets."""
    controller, terminal = pty.openpty()
    command = [sys.executable, "-c", PIPED, "text", "1"]
    inherited = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "TERM")}
    process = subprocess.Popen(command, stdout=terminal, env=inherited | environment)
    os.close(terminal)
    chunks = []
    try:
        while chunk := os.read(controller, 65536):
            chunks.append(chunk)
    except OSError:  # how Linux says that nobody holds the terminal any more
        pass
    os.close(controller)
    assert process.wait(timeout=60) == 0
    return b"".join(chunks).decode()


@pytest.mark.parametrize(
    ("environment", "coloured"),
    [
        ({"TERM": "xterm"}, True),
        ({"TERM": "xterm", "NO_COLOR": "1"}, False),
        ({"TERM": "xterm", "NO_COLOR": ""}, True),
        ({"TERM": "dumb"}, False),
    ],
)
def test_colours_only_on_a_terminal_that_wants_them(
    environment: dict[str, str], coloured: bool
) -> None:
    text = on_terminal(environment)
    assert ("\x1b[32mPASSED" in text) is coloured
    assert ("\x1b" in text) is coloured
    assert text.count("\x1b[0m") == len(re.findall(r"\x1b\[[1-9]\d*m", text))


def test_our_own_lines_fit_into_a_pipe() -> None:
    out, _ = plain([event for event in RUN if not isinstance(event, OutputLine)])
    assert max(display_width(line) for line in out.splitlines()) <= 80
    assert "\x1b" not in out


def ended(*counts: tuple[str, int]) -> list[Event]:
    """So many jobs of each status, in this order, each with a log of its own."""
    return [
        JobEnded("h", f"{status}{n}", "j", status, 0, 1.0, log=f"/r/{status}{n}.log")
        for status, count in counts
        for n in range(count)
    ]


@pytest.mark.parametrize(
    ("jobs", "logs"),
    [
        (ended(("PASSED", 2), ("UNAVAILABLE", 3), ("ERROR", 1)), "ERROR0 PASSED0 PASSED1"),
        (ended(("UNAVAILABLE", 40), ("PASSED", 40)), ""),
        (
            ended(("PASSED", 9), ("UNAVAILABLE", 9), ("NOT_RUN", 1), ("TIMEOUT", 1), ("FAILED", 2)),
            "FAILED0 FAILED1 TIMEOUT0 NOT_RUN0",
        ),
        (
            ended(("UNAVAILABLE", 9), ("ERROR", 10), ("FAILED", 3)),
            "FAILED0 FAILED1 FAILED2 " + " ".join(f"ERROR{n}" for n in range(9)),
        ),
    ],
)
def test_logs_of_what_went_wrong_come_first(jobs: list[Event], logs: str) -> None:
    out, _ = plain([*jobs, Summary("run", 1, folder="/r")])
    found = [line.split()[2] for line in out.splitlines() if line.startswith("log of")]
    assert found == logs.split()
    more = "and 1 log more of what did not pass"
    assert (more in out) == (len(found) == 12)
    assert "folder of the run: /r" in out


def test_a_line_to_paste_stands_alone() -> None:
    events: list[Event] = [
        Planned("loop1", "gelu", "ssh loop1 'x'", here=True),
        Planned("loop2", "gelu", "ssh loop2 'x'", here=True),
        Summary("repro", 0, run="r1"),
    ]
    out, errors = plain(events)
    assert out == "# loop1 gelu\nssh loop1 'x'\n# loop2 gelu\nssh loop2 'x'\n"
    assert errors == "repro: done\n"


FEW = ("send env/a.sh", "send benchmark/x.py")
MANY = (*(f"send benchmark/config/{n}.json" for n in range(30)), "list a in x.py", *FEW)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (((FEW, FEW, FEW)), [f"h[1-3] | {text}" for text in FEW]),
        ((FEW, (), FEW), [f"h[1,3] | {text}" for text in FEW]),
        (
            (MANY, MANY),
            [
                "h[1-2] | send 30 files in benchmark/config/",
                "h[1-2] | send 1 file in env/",
                "h[1-2] | send 1 file in benchmark/",
                "h[1-2] | list a in x.py",
            ],
        ),
    ],
)
def test_what_would_be_pushed_is_told_once(changes: Any, said: list[str]) -> None:
    events: list[Event] = [
        Pushed(f"h{n}", "abc", "/s", len(some), 9, dry_run=True, changes=some)
        for n, some in enumerate(changes, 1)
    ]
    out, _ = plain([*events, Summary("push", 0)])
    lines = out.splitlines()
    assert lines[: len(said)] == said
    assert lines[len(said)].startswith(f"{said[0].split(' |')[0]} | would send ")
    assert (" | nothing to send: /s" in out) is (() in changes)


@pytest.mark.parametrize(
    ("merged", "said"),
    [
        (Merged("/s"), "no row"),
        (Merged("/s", appended=2, skipped=1), "2 appended, 1 was there already"),
        (
            Merged("/s", skipped=5, differing=2),
            "5 were there already (more than 5 % off: 2; --update takes in what is faster)",
        ),
        (Merged("/s", updated=1, kept=3), "1 updated, 3 kept"),
    ],
)
def test_what_a_table_took_in(merged: Merged, said: str) -> None:
    out, _ = plain([merged, Summary("run", 0)])
    assert out.startswith(f"merged into /s: {said}\n")


@pytest.mark.parametrize(
    ("summary", "line"),
    [
        (Summary("push", 0, seconds=0.0004), "push: done in < 0.01 s"),
        (Summary("push", 0, seconds=0.0312), "push: done in 0.03 s"),
        (
            Summary("push", 0, {"files sent": 1, "bytes sent": 131_148, "files deleted": 0}),
            "push: 1 file sent, 131 kB sent",
        ),
        (
            Summary("push", 0, {"files to send": 0, "bytes to send": 0, "files to delete": 2}),
            "push: 2 files to delete",
        ),
        (
            Summary("run", 3, {"PASSED": 1}, {"a": "UNUSABLE", "b": "OK", "c": "UNUSABLE"}),
            "run: 1 PASSED, 2 targets UNUSABLE, exit code 3",
        ),
        (Summary("run", 0, {"FAILED": 3}, known=2), "run: 3 FAILED, of these known 2"),
        (Summary("run", 130, message="interrupted"), "run: interrupted, exit code 130"),
        (Summary("nightly", 1, {"FAILED": 1}, run="r1"), "nightly: 1 FAILED, exit code 1"),
        (Summary("run", 3, {"UNAVAILABLE": 1}, run="r1"), "run: 1 UNAVAILABLE, exit code 3"),
        (Summary("run", 0, {"FAILED": 1}, run="r1", known=1), "run: 1 FAILED, of these known 1"),
        (
            Summary("testall", 1, {"NOT_RUN": 3, "x": 1, "FAILED": 1, "PASSED": 2}),
            "testall: 2 PASSED, 1 FAILED, 3 NOT_RUN, 1 x, exit code 1",
        ),
    ],
)
def test_a_summary_alone_is_one_line(summary: Summary, line: str) -> None:
    assert plain([summary])[0] == line + "\n"


@pytest.mark.parametrize(
    ("summary", "way"),
    [
        (Summary("testall", 130, {"PASSED": 1}, run="r1"), "go on: mxfleet testall --resume r1"),
        (Summary("run", 130, run="r1"), "go on: mxfleet testall --resume r1"),
        (Summary("verify", 130, run="r1"), "go on: mxfleet testall --resume r1"),
        (Summary("testall", 1, {"FAILED": 1}, run="r1"), "again: mxfleet testall --failed r1"),
        (Summary("run", 3, {"NOT_RUN": 1}, run="r1"), "again: mxfleet testall --failed r1"),
    ],
)
def test_what_did_not_end_well_names_the_way_on(summary: Summary, way: str) -> None:
    *_, said, blank, last = plain([summary])[0].splitlines()
    assert (said, blank) == (way, "") and last.startswith(f"{summary.command}: ")


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (Note("all is well"), "all is well"),
        (Note("look", level="warning"), "warning: look"),
        (Note("look", target="loop1"), "loop1 | look"),
        (Note("look", target="loop1", level="error"), "loop1 | error: look"),
        (TargetFailed("loop1", "UNUSABLE", "no torch"), "loop1 | UNUSABLE: no torch"),
    ],
)
def test_what_targets_have_to_say_on_stderr(event: Event, line: str) -> None:
    assert plain([event])[1] == line + "\n"
    out, errors = plain([OutputLine("longest", "op", "stdout", "x"), event])
    assert out == "longest | x\n"
    assert errors.split() == line.split()
    assert ("|" in errors) == (errors.find(" | ") == len("longest")) == ("|" in line)


def test_failures_alone_leave_no_blank_line_before_the_summary() -> None:
    out, _ = plain([TargetFailed("h", "UNUSABLE", "no torch"), Summary("push", 3)])
    assert out == "push: done, exit code 3\n"


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (JobEnded("h", "rms", "j", "PASSED", 0, 0.012), "end rms PASSED in 0.01 s"),
        (JobEnded("h", "rms", "j", "PASSED", 0, 2.45, 3, 16), "end rms PASSED in 2.45 s (3 of 16)"),
        (
            JobEnded("h", "rms", "j", "ERROR", 1, 123.4, 1, 2, "boom"),
            "end rms ERROR in 123 s (1 of 2): boom",
        ),
    ],
)
def test_the_end_of_a_job(event: JobEnded, line: str) -> None:
    assert plain([event])[0] == f"h | {line}\n"


def test_stderr_that_is_gone_stops_nothing() -> None:
    errors: TextIO = Gone()
    out = io.StringIO()
    render = PlainRenderer(out, color=False, width=80, errors=errors)
    for event in RUN:
        render(event)
    assert out.getvalue().endswith("exit code 3\n")
