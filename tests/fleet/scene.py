"""A run with a job that is hard to get rid of, on a host of its own: where faults are injected.

The host is a fleet of one with its own Docker engine, reached through an sshd of the scene's own,
if wanted at the far end of a wire. So every part of it can be broken without harm to others. What
is seen of a job is seen by root: in the host's ``/proc``, zombies included, and in the container.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import random
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from common.network import Network, delayed_network
from common.sshd import running_sshd

from orchestrator.execute.folder import RunFolder
from orchestrator.transport.agent.proc import COOKIE

from .conftest import DEFAULT_STATE, LoopbackFleet, bring_up, fleet_command
from .sshd import Sshd
from .workbench import Bench, Running

HOST = "loop1"  # the fleet's name for it
NAME = "far"  # the inventory's
OP = "probe_linger"
SIZES = (1024, 2048)  # what OP measures before it lingers
PATIENCE = 60.0
# In the container, as root: a cookie's beginning, a sleep's seconds, PID:START of known processes.
_LEFT_INSIDE = """
import os, sys
cookie, nap, known = sys.argv[1].encode(), sys.argv[2].encode(), sys.argv[3].split(",")
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        stat = open("/proc/%s/stat" % pid).read().rpartition(")")[2].split()
        words = open("/proc/%s/cmdline" % pid, "rb").read().split(b"\\0")
        environ = open("/proc/%s/environ" % pid, "rb").read() if stat[0] != "Z" else b""
    except OSError:
        continue
    if cookie in environ or words[:2] == [b"sleep", nap] or pid + ":" + stat[19] in known:
        print(pid, stat[0])
"""


class Seen(NamedTuple):
    """A process as the host sees it; ``inside`` is its number in its own container."""

    pid: int
    start: str
    parent: int
    state: str
    inside: int


def seen(pid: int) -> Seen | None:
    """A process, None when it is gone; a zombie is not."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return None
    inside = next(line for line in status.splitlines() if line.startswith("NSpid:")).split()[-1]
    return Seen(pid, fields[19].decode(), int(fields[1]), fields[0].decode(), int(inside))


def remains(known: Sequence[Seen]) -> list[Seen]:
    """Those of the processes that are still there."""
    now = [(one, seen(one.pid)) for one in known]
    return [there for one, there in now if there is not None and there.start == one.start]


def carrying(cookie: str, nap: int | None = None) -> list[int]:
    """Processes of this machine whose cookie begins like that, or that sleep ``nap`` seconds."""
    needle = f"{COOKIE}={cookie}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                words = (entry / "cmdline").read_bytes().split(b"\0")
                naps = nap is not None and words[:2] == [b"sleep", str(nap).encode()]
                if naps or needle in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
    return found


def having_open(folder: str) -> list[int]:
    """Processes of this machine that have a file below ``folder`` open."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if any(str(fd.readlink()).startswith(folder) for fd in (entry / "fd").iterdir()):
                    found.append(int(entry.name))
    return found


@contextmanager
def ground() -> Iterator[LoopbackFleet]:
    """A fleet of one host in a state folder of its own."""
    state = Path(tempfile.mkdtemp(prefix="mxfault-", dir="/var/tmp"))
    state.chmod(0o755)
    if (DEFAULT_STATE / "cache").is_dir():
        (state / "cache").symlink_to(DEFAULT_STATE / "cache")  # the root file system takes minutes
    try:
        yield bring_up(1, state)
    finally:
        fleet_command("down", "--purge", state=state)


class Scene:
    """One run on the host, from its start to what is left of it."""

    def __init__(self, fleet: LoopbackFleet, stack: ExitStack) -> None:
        self.fleet = fleet
        self.stack = stack
        self.folder = Path(tempfile.mkdtemp(prefix="mxfault-"))
        stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
        work = self.folder / "work"
        work.mkdir()
        self.bench = Bench(fleet, work)
        stack.callback(self.bench.clean)
        self.lock = Path(f"{self.bench.locks}-{NAME}") / "cpu"
        self.nap = random.randrange(200_000, 900_000)
        self.until = fleet.share(HOST) / f"{self.folder.name}-until"
        stack.callback(self.until.unlink, missing_ok=True)
        stack.callback(self._kill_all)
        self._login: dict[str, str] = {}
        self.network: Network | None = None
        self.sshd: Sshd | None = None
        self.running: Running
        self.controller: int | None = None  # of a run in the background
        self.job = ""
        self.run = ""
        self.processes: list[Seen] = []  # of the job, when it had begun
        self.inside: list[Seen] = []  # its agent in the container and the guardian, in that order
        self.outside: list[Seen] = []  # the same of the host, which hold the lock

    def log_in_with(self, **variables: str) -> None:
        """Have ``lay`` give these to all that logs in on the host."""
        self._login.update(variables)

    def lay(self, *, far: bool = False, timeouts: Mapping[str, Any] | None = None) -> None:
        """The way to the host, the inventory, the job's config."""
        engine = f"unix://{self.fleet.state}/hosts/{HOST}/docker.sock"
        if far:
            self.network = self.stack.enter_context(delayed_network(0.05))
            self.bench.within = ("ip", "netns", "exec", self.network.client)
            (self.folder / "sshd").mkdir()
            config = self.stack.enter_context(
                running_sshd(self.network, self.folder / "sshd", {"DOCKER_HOST": engine})
            )
        else:
            pairs = {"DOCKER_HOST": engine, **self._login}
            words = " ".join(f"{name}={value}" for name, value in pairs.items())
            self.sshd = Sshd(self.folder / "sshd", {"SetEnv": words})
            self.stack.callback(self.sshd.stop)
            config = self.folder / "ssh_config"
            config.write_text(self.sshd.host_block(NAME))
        self.bench.inventory(
            hosts={NAME: {}}, ssh_config=str(config), timeouts=dict(timeouts or {})
        )
        inside = f"/share/{self.until.name}"
        self.bench.config(OP, nap=self.nap, until=inside, sizes=list(SIZES), steps=100_000)

    def begin(self, *words: str) -> None:
        """Start mxfleet; return when its job has measured and lingers.

        Of a run in the background, what it says is seen by attaching to it.
        """
        self.running = self.bench.start(*words, "--output", "json")
        if "--detach" in words:
            said = self.running.result(PATIENCE).events()[-1]
            self.controller = RunFolder(Path(said["folder"])).holder()
            self.running = self.bench.start("attach", said["run"], "--output", "json")
        self.running.wait_for('"text": "step 1"', seconds=PATIENCE)
        started = next(e for e in self.events() if e["event"] == "job_started")
        self.job = started["job"]
        self.run = next(e for e in self.events() if e["event"] == "run_started")["run"]
        self.processes = [s for s in map(seen, carrying(self.job, self.nap)) if s is not None]
        numbers = {one.pid for one in self.processes}
        first = min(
            (one for one in self.processes if one.parent not in numbers), key=lambda s: s.inside
        )
        self.inside = _with_parent(first.parent)
        holders = having_open(str(self.lock.parent))
        self.outside = _with_parent(holders[0]) if holders else []
        assert len(self.processes) >= 5 and len(self.inside) == 2, self.processes

    def events(self) -> list[dict[str, Any]]:
        """What mxfleet has said until now, in JSON lines."""
        return [json.loads(line) for _, line in list(self.running.lines)]

    def told(self, since: float) -> float | None:
        """When mxfleet first said that something is wrong, or how a job ended."""
        for at, line in list(self.running.lines):
            event = json.loads(line)
            wrong = event["event"] == "note" and event["level"] != "info"
            if at >= since and (wrong or event["event"] in ("job_ended", "target_failed")):
                return at
        return None

    def dead(self) -> bool:
        """Whether nothing is left of the attempt that the fault met."""
        return not remains(self.processes) and not carrying(f"{self.job}\0")

    def free(self) -> bool:
        """Whether nobody holds the device's lock, and what its note says is left is gone."""
        try:
            with self.lock.open("rb") as stream:
                fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
                note = json.loads(stream.read() or b"{}")
        except BlockingIOError:
            return False
        named = note.get("unkillable") or ()
        gone = [seen(one["pid"]) for one in named] == [None] * len(named)
        return not note or (bool(named) and gone)

    def let_end(self) -> None:
        """Have the job end by itself."""
        self.until.touch()

    def steps(self) -> list[int]:
        """The steps that the job's log has."""
        log = next(iter(sorted((self.path / "logs" / NAME).glob(f"{OP}*.log"))))
        words = [line.split() for line in log.read_text().splitlines()]
        return [int(word[1]) for word in words if word[:1] == ["step"]]

    @property
    def path(self) -> Path:
        """The run's folder."""
        return self.bench.folder / "runs" / self.run

    def rows(self) -> set[int]:
        """The sizes that the run's folder has as measured."""
        path = self.path / "records" / NAME / f"{OP}.jsonl"
        if not path.exists():
            return set()
        records = self.bench.records(self.path, NAME, OP)
        return {r["parameters"]["size"] for r in records if r["status"] == "PASSED"}

    def left(self) -> list[str]:
        """What runs of the whole run, its agents included, seen from the host and the container."""
        agents = remains([*self.inside, *self.outside])
        found = {one.pid: one for one in [*remains(self.processes), *agents]}
        for pid in carrying(self.run, self.nap):
            one = seen(pid)
            if one is not None:
                found[pid] = one
        told = [f"{one.pid} ({one.state}) on the host" for one in found.values()]
        known = ",".join(f"{one.inside}:{one.start}" for one in self.processes)
        words = ("-c", _LEFT_INSIDE, f"{COOKIE}={self.run}", str(self.nap), known)
        done = self.fleet.docker(
            *(HOST, "exec", "-u", "0", self.fleet.container, self.fleet.python, *words),
            check=False,
        )
        lines = done.stdout.decode().splitlines()
        return told + [f"{pid} ({state}) inside" for pid, state in map(str.split, lines)]

    def _where(self, inside: bool) -> list[str]:
        """What runs a command in the container's file system, with our rights, or here."""
        words = ("inspect", "-f", "{{.State.Pid}}", self.fleet.container)
        pid = self.fleet.docker(HOST, *words).stdout.decode().strip()
        # Its process ids as well: umount looks itself up in /proc.
        return ["nsenter", "-t", pid, "-m", "-p"] if inside else []

    def small_disk(self, folder: str, *, inside: bool, megabytes: int = 4) -> None:
        """Mount a small file system on ``folder``, in the container if so."""
        where = self._where(inside)
        options = f"size={megabytes}m,mode=0700"
        run([*where, "mkdir", "-p", folder])
        run([*where, "mount", "-t", "tmpfs", "-o", options, "tmpfs", folder])
        self.stack.callback(subprocess.run, [*where, "umount", "-l", folder], check=False)

    def fill(self, folder: str, *, inside: bool) -> None:
        """Leave no byte on the file system."""
        where = self._where(inside)
        words = ["dd", "if=/dev/zero", f"of={folder}/filler", "bs=4096"]
        done = subprocess.run([*where, *words], capture_output=True, check=False)
        assert b"No space left" in done.stderr, done.stderr

    def empty(self, folder: str, *, inside: bool) -> None:
        """The room is back."""
        where = self._where(inside)
        run([*where, "rm", f"{folder}/filler"])

    def drop(self, *condition: str) -> None:
        """Have the wire lose packets in both directions: all that meet the condition."""
        assert self.network is not None
        for namespace in (self.network.client, self.network.server):
            rule = ["iptables", "-w", "-A", "INPUT", *condition, "-j", "DROP"]
            run(Network.inside(namespace, rule))

    def pass_on(self) -> None:
        """The wire loses nothing any more."""
        assert self.network is not None
        for namespace in (self.network.client, self.network.server):
            run(Network.inside(namespace, ["iptables", "-w", "-F", "INPUT"]))

    def _kill_all(self) -> None:
        """Nothing survives a scene, not even a failed one."""
        if hasattr(self, "running"):
            with contextlib.suppress(ProcessLookupError):
                self.running.signal_group(signal.SIGKILL)
        named = [one.pid for one in remains([*self.inside, *self.outside])]
        named += [self.controller] if self.controller is not None else []
        for pid in [*named, *carrying(self.run or self.folder.name, self.nap)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _with_parent(pid: int) -> list[Seen]:
    """An agent and its guardian."""
    agent = seen(pid)
    guardian = seen(agent.parent) if agent is not None else None
    return [one for one in (agent, guardian) if one is not None]


def run(words: Sequence[str]) -> None:
    """Run a command that has to succeed."""
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stderr}"


@contextmanager
def scene(fleet: LoopbackFleet) -> Iterator[Scene]:
    """A scene that leaves nothing."""
    with ExitStack() as stack:
        yield Scene(fleet, stack)
