"""The cookie that a forked process shows in /proc."""

from __future__ import annotations

import subprocess
import sys

import pytest
from harness_tree import BENCHMARK

SHOW = """
import os, subprocess, sys
from harness import cookie

def shown(pid):
    words = open(f"/proc/{pid}/environ", "rb").read().split(b"\\0")
    return [word.decode() for word in words if word.startswith((b"COOKIE=", b"AFTER="))]

for name, value in (("COOKIE", "job-1"), ("COOKIE", "x" * 31), ("ABSENT", "x"), ("EMPTY", "x")):
    print(cookie.obstacle(name, value))
os.environ["LATER"] = "set by this very process"
print(cookie.obstacle("LATER", "x"), flush=True)
if os.fork() == 0:
    cookie.change("COOKIE", "job-1")
    print(shown(os.getpid()), flush=True)
    if os.fork() == 0:
        print(shown(os.getpid()), flush=True)
        subprocess.run(["sh", "-c", "echo $COOKIE"])
        os._exit(0)
    os.wait()
    os._exit(0)
os.wait()
print(shown(os.getpid()))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_a_fork_shows_its_own_cookie() -> None:
    env = {"COOKIE": "w" * 30, "AFTER": "here", "EMPTY": "", "PYTHONPATH": str(BENCHMARK)}
    done = subprocess.run(
        [sys.executable, "-c", SHOW], env=env, capture_output=True, text=True, check=True
    )
    ours = "['COOKIE=job-1', 'AFTER=here']"
    assert done.stdout.splitlines() == [
        "None",
        f"there is no room for COOKIE={'x' * 31}",
        "its own ABSENT cannot be found in memory",
        "there is no room for EMPTY=x",
        "its own LATER cannot be found in memory",
        ours,
        ours,
        "job-1",
        f"['COOKIE={'w' * 30}', 'AFTER=here']",
    ], done
