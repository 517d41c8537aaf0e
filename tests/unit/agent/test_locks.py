"""Device locks of real agents: the queue, the notes, and the proof before anybody lets go."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import stat
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from agent_kit import Agents, until

from orchestrator.errors import LinkLostError, UnusableError
from orchestrator.transport.agent.lockfiles import LockFolder, read_note, write_note
from orchestrator.transport.agent.proc import COOKIE, process
from orchestrator.transport.agent.proof import here
from orchestrator.transport.session import AgentSession, Request

# Of this test run alone: whoever proves a job dead ends what carries its name anywhere.
JOB, OTHER = (f"job-{uuid.uuid4().hex[:8]}" for _ in range(2))
# A process whose first thread ends while another goes on.
HEADLESS = """
import ctypes, os, threading, time
threading.Thread(target=lambda: time.sleep(600)).start()
ctypes.CDLL(None).syscall({"x86_64": 60}.get(os.uname().machine, 93), 0)
"""
# Deaf to everything but KILL.
STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
time.sleep(600)
"""


class Site:
    """A lock folder, and stand-ins for jobs: processes that carry a job's cookie."""

    def __init__(self, agents: Agents, folder: Path) -> None:
        self.agents = agents
        self.folder = folder
        self.started: list[subprocess.Popen[bytes]] = []

    def request(self, session: AgentSession, *devices: str, **more: Any) -> Request:
        args = {
            "devices": list(devices or ("cpu",)),
            "job": f"job-{uuid.uuid4().hex[:8]}",
            "run": "run-1",
            "who": "ada@desk",
            "hold": 0.5,
            "wait_limit": 60.0,
            "folder": str(self.folder),
        }
        return session.request("lock", **{**args, **more})

    def hold(self, session: AgentSession, *devices: str, **more: Any) -> Request:
        request = self.request(session, *devices, **more)
        assert message(request)["type"] == "held"
        return request

    def process(self, job: str, code: str = "import time; time.sleep(600)") -> int:
        child = subprocess.Popen(
            [sys.executable, "-c", code],
            env={**os.environ, COOKIE: job},
            start_new_session=True,
        )
        self.started.append(child)
        until(lambda: Path(f"/proc/{child.pid}/environ").read_bytes(), "a process")
        time.sleep(0.3)  # its handlers are set
        return child.pid

    def note(self, device: str = "cpu") -> dict[str, Any] | None:
        return LockFolder(str(self.folder)).peek(device)

    def plant(self, device: str = "cpu", **note: Any) -> dict[str, Any]:
        """A note as an agent leaves it that was killed."""
        text = {"job": "job-dead", "run": "run-0", "who": "bob@lab", "hold": 0.0, **here(), **note}
        LockFolder(str(self.folder))
        (self.folder / device).write_text(json.dumps(text))
        return text

    def holders(self, session: AgentSession) -> list[dict[str, Any]]:
        locks: list[dict[str, Any]] = session.call("lock_holders", folder=str(self.folder))["locks"]
        return locks


@pytest.fixture
def site(agents: Agents, tmp_path: Path) -> Iterator[Site]:
    made = Site(agents, tmp_path / "locks")
    yield made
    for child in made.started:
        child.kill()
        child.wait()


def message(request: Request, seconds: float = 20) -> dict[str, Any]:
    item = request.next(seconds)
    assert isinstance(item, dict), item
    return item


def is_held(item: Any) -> bool:
    return isinstance(item, dict) and item["type"] == "held"


def until_held(request: Request, seconds: float = 30) -> None:
    until(lambda: is_held(request.next(1.0)), "held", seconds)


def settle(request: Request, **said: Any) -> dict[str, Any]:
    request.send(json.dumps(said).encode())
    request.end()
    return request.result()


def gone(pid: int) -> bool:
    """No thread of it is left, not even below a first one that has ended."""
    stats = Path("/proc").glob(f"{pid}/task/*/stat")
    states = [stat.read_bytes().rpartition(b")")[2].split()[0] for stat in stats]
    return all(state == b"Z" for state in states)


def kill_agent(session: AgentSession, request: Request, folder: Path) -> None:
    """End an agent and its guardian so that neither can do anything about it."""
    agent = next(
        int(p.name)
        for p in Path("/proc").iterdir()
        if p.name.isdigit() and _opens(p, folder) and int(p.name) != os.getpid()
    )
    there = process(agent)
    assert there is not None
    os.kill(there.parent, signal.SIGKILL)
    os.kill(agent, signal.SIGKILL)
    with pytest.raises(LinkLostError):
        request.result()


def _opens(entry: Path, folder: Path) -> bool:
    try:
        return any(str(fd.readlink()).startswith(f"{folder}/") for fd in (entry / "fd").iterdir())
    except OSError:
        return False


def test_the_second_queues_and_hears_who_holds(site: Site) -> None:
    first, second = site.agents.start(), site.agents.start()
    held = site.hold(first, job=JOB)
    assert stat.S_IMODE(site.folder.stat().st_mode) == 0o1777
    assert stat.S_IMODE((site.folder / "cpu").stat().st_mode) == 0o666
    waiting = site.request(second, job=OTHER, who="bob@lab")
    told = message(waiting)
    assert told["type"] == "waiting" and told["device"] == "cpu" and not told["proving"]
    assert told["holder"]["who"] == "ada@desk" and told["holder"]["job"] == JOB
    assert waiting.next(1.0) is None
    assert site.holders(second)[0]["held"]
    assert settle(held, proven=True) == {"type": "result", "proven": True, "left": []}
    until_held(waiting)
    note = site.note()
    assert note is not None and note["job"] == OTHER and note["who"] == "bob@lab"
    settle(waiting, proven=True)
    assert site.note() is None and site.holders(first) == []


def test_locks_of_several_devices_do_not_wait_for_each_other(site: Site) -> None:
    sessions = [site.agents.start() for _ in range(2)]
    for _ in range(5):
        requests = [
            site.request(sessions[0], "0000:01:00.0", "0000:02:00.0"),
            site.request(sessions[1], "0000:02:00.0", "0000:01:00.0"),
        ]
        while requests:
            held = next(request for request in requests * 200 if is_held(request.next(0.1)))
            settle(held, proven=True)
            requests.remove(held)


def test_whoever_waits_too_long_hears_for_whom(site: Site) -> None:
    first, second = site.agents.start(), site.agents.start()
    held = site.hold(first, job=JOB)
    with pytest.raises(UnusableError, match=r"cpu was busy for .* job job-\w+ of ada@desk"):
        site.request(second, wait_limit=0.5).result()
    settle(held, proven=True)


def test_giving_up_waiting_leaves_the_queue(site: Site) -> None:
    first, second = site.agents.start(), site.agents.start()
    held = site.hold(first)
    waiting = site.request(second)
    message(waiting)
    waiting.end()
    with pytest.raises(UnusableError, match="no longer wanted"):
        waiting.result()
    settle(held, proven=True)
    assert site.holders(second) == []


@pytest.mark.parametrize("code", ["import time; time.sleep(600)", STUBBORN, HEADLESS])
def test_a_lost_link_keeps_the_lock_until_the_job_is_dead(site: Site, code: str) -> None:
    first, second = site.agents.start(), site.agents.start()
    site.hold(first, job=JOB, hold=1.0)
    pid = site.process(JOB, code)
    site.agents.cut(first)
    waiting = site.request(second)
    assert message(waiting)["holder"]["job"] == JOB
    assert waiting.next(3.0) is None and not gone(pid)  # it has its time
    until_held(waiting)
    assert gone(pid)
    settle(waiting, proven=True)


def test_a_job_that_ends_by_itself_frees_the_lock_of_a_lost_link(site: Site) -> None:
    first, second = site.agents.start(), site.agents.start()
    site.hold(first, job=JOB, hold=600.0)
    pid = site.process(JOB)
    site.agents.cut(first)
    waiting = site.request(second)
    message(waiting)
    os.kill(pid, signal.SIGKILL)
    site.started[-1].wait()
    until_held(waiting)
    settle(waiting, proven=True)


def test_a_goodbye_waits_for_nobody(site: Site) -> None:
    first, second = site.agents.start(), site.agents.start()
    site.hold(first, job=JOB, hold=600.0)
    pid = site.process(JOB)
    first.close()
    waiting = site.request(second)
    assert message(waiting)["type"] == "waiting"
    until_held(waiting)
    assert gone(pid)
    settle(waiting, proven=True)


def test_attached_again_the_job_keeps_its_lock(site: Site) -> None:
    first, second, third = (site.agents.start() for _ in range(3))
    site.hold(first, job=JOB, hold=1.0)
    pid = site.process(JOB)
    site.agents.cut(first)
    again = site.hold(second, job=JOB, hold=1.0)
    waiting = site.request(third)
    assert message(waiting)["holder"]["job"] == JOB
    assert again.next(10.0) is None and not gone(pid)  # longer than it would have been held
    os.kill(pid, signal.SIGKILL)
    site.started[-1].wait()
    settle(again, proven=True)
    until_held(waiting)
    settle(waiting, proven=True)


def test_of_an_agent_killed_outright_the_job_is_ended_first(site: Site) -> None:
    first, second = site.agents.start(), site.agents.start()
    held = site.hold(first, job=JOB)
    pid = site.process(JOB, STUBBORN)
    kill_agent(first, held, site.folder)
    assert site.note() is not None
    assert [lock["held"] for lock in site.holders(second)] == [False]
    taking = site.request(second)
    told = message(taking)
    assert told["proving"] and told["holder"]["job"] == JOB
    until_held(taking)
    assert gone(pid)
    settle(taking, proven=True)


def test_its_controller_comes_back_to_the_same_job(site: Site) -> None:
    first, second = site.agents.start(), site.agents.start()
    held = site.hold(first, job=JOB)
    pid = site.process(JOB)
    kill_agent(first, held, site.folder)
    again = site.hold(second, job=JOB)
    assert not gone(pid)
    again.send(b'{"proven": false}')
    again.end()
    assert again.result()["proven"] and gone(pid)


@pytest.mark.parametrize(
    "changes",
    [
        {"boot": "another"},
        {"container": "gone", "init": [1 << 22, 5]},
        {"container": "renewed", "init": [os.getpid(), 1]},
        {},
    ],
    ids=["booted", "container stopped", "container restarted", "ended"],
)
def test_what_is_dead_is_not_waited_for(site: Site, changes: dict[str, Any]) -> None:
    site.plant(**changes)
    session = site.agents.start()
    held = site.request(session)
    until_held(held, 10)
    settle(held, proven=True)
    assert site.note() is None


def test_what_cannot_be_looked_at_is_not_taken_for_dead(site: Site) -> None:
    site.plant(pids="pid:[1]")
    with pytest.raises(UnusableError, match=r"busy for .* job job-dead of bob@lab"):
        site.request(site.agents.start(), wait_limit=2.0).result()
    assert site.note() is not None


def test_an_unkillable_process_keeps_its_device(site: Site) -> None:
    """Told by the controller, and believed for as long as that process is there."""
    first = site.agents.start()
    held = site.hold(first, job=JOB)
    pid = site.process("another-job")
    os.kill(pid, signal.SIGSTOP)  # it stands for one that hangs in a driver: it carries no cookie
    until(lambda: (process(pid) or [""] * 4)[3] in "Tt", "stopped")
    result = settle(held, proven=False, unkillable=[{"pid": pid, "state": "D"}])
    assert not result["proven"] and [p["pid"] for p in result["left"]] == [pid]
    note = site.note()
    assert note is not None and note["unkillable"][0]["pid"] == pid
    (lock,) = site.holders(first)
    assert not lock["held"] and lock["holder"]["unkillable"][0]["pid"] == pid
    with pytest.raises(UnusableError, match=f"process {pid} .*job job-.* .*cpu is left alone"):
        site.request(first).result()
    other = site.hold(first, "0000:01:00.0")  # the other devices are free
    settle(other, proven=True)
    os.kill(pid, signal.SIGKILL)
    site.started[-1].wait()
    request = site.request(first)
    until_held(request)
    settle(request, proven=True)


def link(path: Path, victim: Path) -> None:
    path.symlink_to(victim)


def hard(path: Path, victim: Path) -> None:
    os.link(victim, path)


def pipe(path: Path, victim: Path) -> None:
    os.mkfifo(path)


def folder(path: Path, victim: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize("plant", [link, hard, pipe, folder])
def test_what_is_planted_in_the_folder_is_refused(
    site: Site, tmp_path: Path, plant: Callable[[Path, Path], None]
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    LockFolder(str(site.folder))
    plant(site.folder / "cpu", victim)
    with pytest.raises(UnusableError, match="cpu is no ordinary file"):
        site.request(site.agents.start()).result()
    assert victim.read_text() == "precious"
    (lock,) = site.holders(site.agents.start())
    assert "no ordinary file" in lock["problem"]


def test_a_folder_that_is_a_link_or_open_to_all_is_refused(site: Site, tmp_path: Path) -> None:
    session = site.agents.start()
    real = tmp_path / "real"
    real.mkdir()
    site.folder.symlink_to(real)
    with pytest.raises(UnusableError, match="is a link"):
        site.request(session).result()
    site.folder.unlink()
    site.folder.mkdir()
    site.folder.chmod(0o777)
    with pytest.raises(UnusableError, match="everybody may delete"):
        site.request(session).result()


def test_a_folder_that_is_swapped_for_a_link_is_not_left(site: Site, tmp_path: Path) -> None:
    """Its owner can do that; what we do goes on in the folder that we looked at."""
    folder = LockFolder(str(site.folder))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    site.folder.rename(tmp_path / "moved")
    site.folder.symlink_to(elsewhere)
    os.close(folder.open("cpu"))
    assert list(elsewhere.iterdir()) == [] and (tmp_path / "moved" / "cpu").exists()


@pytest.mark.parametrize("text", ["{", "[]", '{"job": "../x"}', '{"job": "a", "container": "-v"}'])
def test_what_is_no_note_is_none(site: Site, text: str) -> None:
    LockFolder(str(site.folder))
    (site.folder / "cpu").write_text(text)
    handle = os.open(site.folder / "cpu", os.O_RDONLY)
    assert read_note(handle) is None
    os.close(handle)
    settle(site.hold(site.agents.start()), proven=True)


def test_a_lock_file_that_a_cleaner_removed_is_made_again(site: Site) -> None:
    first, second = site.agents.start(), site.agents.start()
    held = site.hold(first)
    waiting = site.request(second)
    message(waiting)
    (site.folder / "cpu").unlink()
    settle(held, proven=True)
    until_held(waiting)
    handle = os.open(site.folder / "cpu", os.O_RDWR)
    with pytest.raises(BlockingIOError):
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(handle)
    settle(waiting, proven=True)


def test_in_a_container_only_a_mounted_folder_locks(site: Site) -> None:
    session = site.agents.start()
    with pytest.raises(UnusableError, match="No such file"):
        site.request(session, mounted=True).result()
    LockFolder(str(site.folder))
    if site.folder.stat().st_dev == Path("/").stat().st_dev:
        with pytest.raises(UnusableError, match="container's own"):
            site.request(session, mounted=True).result()


def test_a_planted_note_ends_no_job_of_somebody_who_lives(site: Site) -> None:
    holder, other = site.agents.start(), site.agents.start()
    job = f"job-{uuid.uuid4().hex[:8]}"
    held = site.hold(holder, "b", job=job)
    pid = site.process(job)
    site.plant("a", job=job, hold=0.0)
    with pytest.raises(UnusableError, match=f"a was busy for 9 s: job {job}"):
        site.request(other, "a", wait_limit=9.0).result()
    assert not gone(pid)
    os.kill(pid, signal.SIGKILL)
    settle(held, proven=True)
    freed = site.request(other, "a")
    until_held(freed)
    settle(freed, proven=True)


@pytest.mark.parametrize("words", [1, 100, 2000])
def test_a_note_is_written_over_a_longer_or_shorter_one(site: Site, words: int) -> None:
    handle = LockFolder(str(site.folder)).open("cpu")
    for who in ("x" * 1000, "y" * words):
        write_note(handle, {"job": "a", "who": who})
        assert read_note(handle) == {"job": "a", "who": who}
    assert json.loads((site.folder / "cpu").read_bytes())["who"] == "y" * words
    os.close(handle)
