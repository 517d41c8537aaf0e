"""What a job does to its tree is seen after it, and the next job hears of it in its own word."""

from __future__ import annotations

import hashlib
import zlib
from pathlib import Path
from typing import Any

import pytest
from agent_kit import Jobs, Ran, receive

from orchestrator.errors import NoTreeError
from orchestrator.transport.agent.files import Entry
from orchestrator.transport.agent.trees import MANIFEST, tree_hash
from orchestrator.transport.session import AgentSession

CONTENT = {"benchmark/a.py": b"print('a')\n", "benchmark/config/a.json": b"{}"}


def push(session: AgentSession, jobs: Jobs) -> str:
    """Push a small tree and return its name."""
    entries = [
        Entry(path, 0o644, len(data), hashlib.sha256(data).hexdigest(), None)
        for path, data in CONTENT.items()
    ]
    name = tree_hash(entries)
    args: dict[str, Any] = {"store": str(jobs.store), "tree": name, "entries": entries}
    with session.request(
        "put_tree", sent=list(range(len(entries))), keep=9, keep_days=9.0, **args
    ) as request:
        request.send(zlib.compress(b"".join(CONTENT.values())))
        request.end()
        request.result()
    return name


def run_in(session: AgentSession, jobs: Jobs, tree: str, code: str, job: str) -> Ran:
    spec = jobs.spec("", name=job, tree=tree, subfolder="benchmark", argv=["-c", code])
    return receive(session, spec)


# What a job does in its tree (it runs in its benchmark/), and what is named as changed.
CHANGES = {
    "edited": ("open('a.py', 'a').write('#')", "benchmark/a.py"),
    "same size": ("open('config/a.json', 'w').write('[]')", "benchmark/config/a.json"),
    "removed": ("os.remove('a.py')", "benchmark/a.py"),
    "a link": ("os.rename('a.py', 'b.py'); os.symlink('b.py', 'a.py')", "benchmark/a.py"),
    "a pipe": ("os.remove('a.py'); os.mkfifo('a.py')", "benchmark/a.py"),
    "mode": ("os.chmod('a.py', 0o755)", "benchmark/a.py"),
    "manifest": (f"os.remove('../{MANIFEST}')", MANIFEST),
    "manifest is a pipe": (f"os.remove('../{MANIFEST}'); os.mkfifo('../{MANIFEST}')", MANIFEST),
    "everything": ("shutil.rmtree(os.path.dirname(os.getcwd()))", MANIFEST),
}


@pytest.mark.parametrize(("change", "path"), CHANGES.values(), ids=list(CHANGES))
def test_a_changed_tree_is_named_and_put_away(
    session: AgentSession, jobs: Jobs, change: str, path: str
) -> None:
    tree = push(session, jobs)
    code = f"import os, shutil; open('left', 'w').write('l'); {change}"
    ran = run_in(session, jobs, tree, code, "rude")
    assert (ran.error, ran.outcome["exit_code"]) == (None, 0)
    assert ran.outcome["tree_changed"] == str(jobs.store / "trees" / tree / path)
    if path != MANIFEST:
        left = jobs.store / "jobs" / "rude" / "left" / "benchmark" / "left"
        assert left.read_text() == "l"
    assert jobs.status(session, "rude")["outcome"] == ran.outcome
    refused = run_in(session, jobs, tree, "print(1)", "next")
    assert isinstance(refused.error, NoTreeError)
    assert push(session, jobs) == tree
    # The same job can be asked for again.
    assert run_in(session, jobs, tree, "print(1)", "next").text == "1\n"


def test_a_tree_that_others_damaged_has_the_same_word(session: AgentSession, jobs: Jobs) -> None:
    tree = push(session, jobs)
    Path(jobs.store / "trees" / tree / "benchmark" / "a.py").write_text("other")
    refused = run_in(session, jobs, tree, "print(1)", "j")
    assert isinstance(refused.error, NoTreeError)
    assert "a.py differs from what was pushed" in refused.error.message
    assert jobs.status(session, "j") == {"state": "absent", "type": "result"}
    push(session, jobs)
    assert run_in(session, jobs, tree, "print(1)", "j").text == "1\n"


def test_a_tree_in_use_stays_until_its_last_job(session: AgentSession, jobs: Jobs) -> None:
    tree = push(session, jobs)
    words = ["-uc", "import time; print('up'); time.sleep(600)"]
    spec = jobs.spec("", name="long", tree=tree, subfolder="benchmark", argv=words)
    with session.request("run", **spec) as running:
        while not isinstance(running.next(20), bytes):
            pass
        ran = run_in(session, jobs, tree, "open('a.py', 'a').write('#')", "rude")
        assert "tree_changed" in ran.outcome
        assert (jobs.store / "trees" / tree).is_dir()
        session.call("stop", job="long")
        assert running.result()["outcome"]["tree_changed"] == ran.outcome["tree_changed"]
    assert not (jobs.store / "trees" / tree).exists()
