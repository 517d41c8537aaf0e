"""What a person does by hand: runs listed, logs read, a job repeated, a terminal in the container.

On the real fleet: the pasted line goes through the ssh program, a login shell and docker exec.
"""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from .workbench import MXFLEET, Bench

if TYPE_CHECKING:
    from .conftest import LoopbackFleet

OP = "probe_digest"


@pytest.fixture
def ran(bench: Bench) -> Iterator[Bench]:
    """A working folder in which an operator has run on both hosts."""
    bench.mxfleet("run", "--op", OP)
    yield bench


def test_a_run_is_listed_and_its_logs_are_read(ran: Bench) -> None:
    (folder,) = ran.runs()
    listed = ran.mxfleet("runs").stdout
    assert folder.name in listed and "ended" in listed and "2 PASSED" in listed
    printed = ran.mxfleet("logs", "--hosts", "loop2", "--op", OP).stdout
    assert f"loop2 | [SUMMARY] {OP} done" in printed and "loop1 |" not in printed


@pytest.mark.parametrize("host", ["loop1", "loop2"])
def test_a_jobs_line_repeats_it(ran: Bench, fleet: LoopbackFleet, host: str) -> None:
    told = ran.mxfleet("repro", "--op", OP, "--hosts", host, "--output", "json").stdout
    planned, _ = map(json.loads, told.splitlines())
    done = subprocess.run(
        ["bash", "-c", planned["command"]],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done
    assert f"[SUMMARY] {OP} done" in done.stdout and "records.jsonl" in done.stdout


def sit(bench: Bench, target: str, text: bytes) -> tuple[int, str]:
    """Type `text` into `mxfleet shell`; its exit code and what the terminal showed."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(bench.folder)
        os.execv(MXFLEET, [str(MXFLEET), "shell", target])
    heard = b""
    try:
        os.write(terminal, text)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if not select.select([terminal], [], [], 1)[0]:
                continue
            try:
                heard += os.read(terminal, 4096)
            except OSError:  # the other side of a terminal has gone
                break
        _, status = os.waitpid(pid, 0)
    finally:
        os.close(terminal)
    return os.waitstatus_to_exitcode(status), heard.decode(errors="replace")


def test_a_terminal_in_the_container_is_in_the_tree(bench: Bench, fleet: LoopbackFleet) -> None:
    # The words are put together there, so that the terminal's echo is not taken for them.
    typed = (
        b'echo "here:$PWD:"; tty | tr a-z A-Z; '
        b"python -c 'import sys; print(sys.version_info[0] * \"so\")'; exit 7\n"
    )
    code, text = sit(bench, "loop1", typed)
    assert "is not there yet, pushing it" in text  # nothing was run before
    assert f"here:{bench.store}/trees/" in text and "/DEV/PTS/" in text, text
    assert "sososo" in text and "mxfleet: python is " in text, text
    assert code == 7, text


def test_half_a_shell_is_refused(bench: Bench) -> None:
    bench.inventory(env_script="../env/absent.sh")
    code, text = sit(bench, "loop2", b"exit 7\n")
    assert code == 3 and "there is no env script ../env/absent.sh; set env_script" in text, text


def test_a_shell_wants_a_terminal(bench: Bench) -> None:
    result = bench.mxfleet("shell", "loop1", code=2)
    assert "a shell needs a terminal" in result.stderr


def test_a_shell_wants_one_target(bench: Bench) -> None:
    code, text = sit(bench, "loop1,loop2", b"")
    assert code == 2 and "needs one target" in text, text
