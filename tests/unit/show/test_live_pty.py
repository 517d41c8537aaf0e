"""The live view in a process of its own on a real terminal (pty), as a person has it."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable

import pytest
from terminal_kit import Terminal

# Eight threads emit what a fleet of a thousand targets says; then what argv names happens.
CHILD = """
import os, sys, threading, time, warnings
from orchestrator.events import *
from orchestrator.show import make_renderer
end = sys.argv[1]
render = make_renderer("text", sys.stdout, sys.stderr, live=True)
assert "ClusterShell" not in sys.modules
fleet = tuple(f"c500-{n:04d}" for n in range(1000))
ops = tuple(f"op{n}" for n in range(5))
began = time.monotonic()
render(RunStarted("testall", "r", ops, fleet, 5000))
number = 0
lock = threading.Lock()

def work(part):
    global number
    for op in ops:
        for target in part:
            render(JobStarted(target, op, "j"))
            render(OutputLine(target, op, "stdout", "x" * 200))
            with lock:
                number += 1
                mine = number
            odd = target.endswith("3")
            render(JobEnded(target, op, "j", "ERROR" if odd else "PASSED", 0, 1.0, mine, 5000,
                            "boom" if odd else None))

threads = [threading.Thread(target=work, args=(fleet[n::8],)) for n in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
if end == "rows":
    for target in fleet[:2]:
        render(Row("op0", target, "PASSED", seconds=1e-6, timer="cold_gpu"))
    render(Summary("testall", 1, {"PASSED": 2}, message=f"{time.monotonic() - began:.3f}"))
elif end == "stderr":
    time.sleep(0.3)
    for n in range(40):
        print("foreign", n, file=sys.stderr)
    print("half a line", end="", file=sys.stderr)
    sys.stderr.flush()
    time.sleep(0.3)
    print(", its end", file=sys.stderr)
    render(Summary("testall", 0))
else:
    try:
        print("ready", file=sys.stderr)
        while True:
            render(OutputLine("c500-0001", "op0", "stdout", "y"))
            time.sleep(0.001)
    except KeyboardInterrupt:
        print("mxfleet: interrupted", file=sys.stderr)
        sys.exit(130)
"""


def on_a_terminal(
    end: str,
    size: tuple[int, int] = (24, 80),
    term: str = "xterm",
    then: Callable[[subprocess.Popen[bytes]], None] | None = None,
) -> tuple[str, int]:
    """All that the terminal gets, and the exit code; ``then`` is called once it says ready."""
    controller, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
    environment = {**os.environ, "TERM": term}
    environment.pop("NO_COLOR", None)
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD, end],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        env=environment,
    )
    os.close(terminal)
    got = b""
    try:
        while chunk := os.read(controller, 65536):
            got += chunk
            if then is not None and b"ready" in got:
                then(process)
                then = None
    except OSError:  # how Linux says that nobody holds the terminal any more
        pass
    os.close(controller)
    return got.decode(), process.wait(timeout=60)


def emulate(text: str) -> Terminal:
    """``text`` on the emulator, looked at after each redraw."""
    terminal = Terminal()
    frames = text.replace("\r\n", "\n").split("\x1b[?25h")
    for part in frames[:-1]:
        terminal.write(f"{part}\x1b[?25h")
    terminal.write(frames[-1])
    return terminal


def test_a_thousand_targets_on_24_by_80() -> None:
    text, code = on_a_terminal("rows")
    assert code == 0
    terminal = emulate(text)
    assert terminal.scrolled() == []
    drawn = [lines for lines in terminal.frames if lines]
    assert drawn and all(len(lines) <= 23 for lines in drawn)
    assert all(any("jobs done" in line for line in lines) for lines in drawn)
    assert not any("xxxx" in line for lines in drawn for line in lines if "|" not in line)
    lines = terminal.lines()
    assert lines[0].startswith("operator"), "the view is gone and the table in its place"
    seconds = float(lines[-1].split("; ")[1].split(",")[0])
    assert len(drawn) <= seconds * 10 + 1


def test_a_terminal_that_says_0_by_0() -> None:
    text, code = on_a_terminal("rows", size=(0, 0))
    assert code == 0
    assert emulate(text).scrolled() == []


def test_a_dumb_terminal_gets_lines() -> None:
    text, code = on_a_terminal("rows", term="dumb")
    assert code == 0
    assert "\x1b" not in text
    assert text.count(" | start op") == 5000


def test_what_others_write_to_stderr_stays_above() -> None:
    text, code = on_a_terminal("stderr")
    assert code == 0
    terminal = emulate(text)
    kept = [*terminal.scrolled(), *terminal.lines()]
    foreign = [line for line in kept if line.startswith(("foreign", "half"))]
    assert foreign == [*(f"foreign {n}" for n in range(40)), "half a line, its end"]
    assert kept[-1] == "testall: done"
    assert not any("jobs done" in line for line in kept[-3:])


def test_ctrl_c_leaves_the_screen_sane() -> None:
    text, code = on_a_terminal("wait", then=lambda process: process.send_signal(signal.SIGINT))
    assert code == 130
    terminal = emulate(text)
    assert terminal.lines() == ["ready", "mxfleet: interrupted"]
    assert not terminal.screen.cursor.hidden
    assert (terminal.screen.cursor.x, terminal.screen.cursor.y) == (0, 2)


@pytest.mark.parametrize("number", [signal.SIGKILL])
def test_a_kill_leaves_the_cursor_and_the_wrapping(number: signal.Signals) -> None:
    text, code = on_a_terminal("wait", then=lambda process: process.send_signal(number))
    assert code == -number
    terminal = emulate(text)
    assert not terminal.screen.cursor.hidden
    assert terminal.screen.cursor.x == 0
    assert terminal.screen.cursor.y == len(terminal.lines()), "a prompt comes below the view"
