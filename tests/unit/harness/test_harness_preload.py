"""A process worth forking from: what soils it is seen, and a fresh Python takes the work then."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).resolve().parents[3] / "benchmark"
HEAD = f"import os, sys; sys.path.insert(0, {str(BENCHMARK)!r}); from harness import preload\n"


def answers(script: str) -> str:
    """What a fresh Python prints."""
    done = subprocess.run(
        [sys.executable, "-c", HEAD + script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_importing_torch_leaves_a_process_fit_for_forking() -> None:
    said = answers(
        "before = dict(os.environ)\n"
        "preload.import_torch()\n"
        "print(preload.soiled(), 'torch' in sys.modules, dict(os.environ) == before)"
    )
    assert said == "None True True"


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (
            "from threading import Event, Thread; Thread(target=Event().wait, daemon=True).start()",
            "2 threads",
        ),
        ("import types; sys.modules['cuda.bench'] = types.ModuleType('cuda.bench')", "cuda.bench"),
        ("import torch; torch.cuda.is_initialized = lambda: True", "CUDA"),
        ("preload._DEVICES = ('/dev/zero',); held = open('/dev/zero')", "/dev/zero"),
    ],
)
def test_what_soils_a_process_is_named(script: str, words: str) -> None:
    said = answers(f"preload.import_torch()\n{script}\nprint(preload.soiled())")
    assert words in said


@pytest.mark.parametrize("wanted", ["1", None])
def test_a_child_has_the_threads_that_it_would_have_had(
    wanted: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if wanted is None:
        monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    else:
        monkeypatch.setenv("OMP_NUM_THREADS", wanted)
    usual = answers("import torch; print(torch.get_num_threads())")
    ours = answers(
        "preload.import_torch(); import torch\n"
        "assert torch.get_num_threads() == 1\n"
        "preload.restore_threads(); print(torch.get_num_threads())"
    )
    assert ours == usual


PROBE = """
import os

def work(argument, send):
    import threading
    send({"argument": argument, "pid": os.getpid(), "threads": threading.active_count()})

def crash(argument, send):
    os.abort()

def hang(argument, send):
    import time
    time.sleep(60)
"""

SOILED = (
    "import json, threading, time; from harness import worker\n"
    "sys.path.insert(0, {folder!r})\n"
    "threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    "ended = worker.call(worker.Named('probe', {function!r}, {{'a': [1]}}), limit={limit})\n"
    "said = ended.messages\n"
    "print(json.dumps([said, ended.how(), ended.timed_out, os.getpid()]), flush=True)\n"
    "os._exit(0)\n"
)


@pytest.mark.parametrize(
    ("function", "limit", "how", "timed_out"),
    [
        ("work", 60, None, False),
        ("crash", 60, "the process was killed by SIGABRT", False),
        ("hang", 1, "the process was killed by SIGKILL", True),
        ("absent", 60, "the process ended early with exit code 70", False),
    ],
)
def test_a_soiled_process_gives_named_work_to_a_fresh_python(
    tmp_path: Path, function: str, limit: int, how: str | None, timed_out: bool
) -> None:
    (tmp_path / "probe.py").write_text(PROBE)
    script = SOILED.format(folder=str(tmp_path), function=function, limit=limit)
    said, ended, late, pid = json.loads(answers(script).splitlines()[-1])
    assert (ended, late) == (how, timed_out)
    if function == "work":
        (message,) = said
        assert message["argument"] == {"a": [1]} and message["pid"] != pid
        # A fork would have had the thread's lock, but not the thread.
        assert message["threads"] == 1
