"""The rounds of ``push.py``, run in the client's namespace: JSON with seconds a row on stdout.

What is timed, by row: for scp and rsync the whole command over an established ControlMaster, so
without login. For mxfleet, over an authenticated connection and before any agent runs: hashing the
folder, starting the agent, the push. The rows with a login are the whole commands as typed.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from common.sshd import round_trip
from common.tools import compiled

from orchestrator.inventory.model import Host, Target
from orchestrator.push.send import Sent, push_tree
from orchestrator.push.tree import build
from orchestrator.workflows.fleet import Fleet

SCP, RSYNC, FULL = "scp -r", "rsync -a", "mxfleet, full"
RSYNC_AGAIN, AGAIN = "rsync -a, unchanged", "mxfleet, unchanged"
IN_CONTAINER, IN_CONTAINER_AGAIN = (
    "mxfleet into a container, full",
    "mxfleet into a container, unchanged",
)
RSYNC_LOGIN, LOGIN = "rsync -a, with login", "mxfleet push, with login"


@dataclass(frozen=True)
class Job:
    """What the parent hands over."""

    folder: str  # working folder with benchmark/
    far: str  # where the copies land
    ssh_config: str
    device: str  # the client's network device
    rounds: int
    mxfleet: str  # the command
    python: str  # in the container
    container: str | None


@dataclass
class Outcome:
    """What the rounds gave. Bytes on the wire count both directions, everything included."""

    seconds: dict[str, list[float]] = field(default_factory=dict)
    sent: dict[str, list[tuple[int, int]]] = field(default_factory=dict)  # files, bytes of content
    wire: dict[str, list[int]] = field(default_factory=dict)
    round_trips: list[float] = field(default_factory=list)

    def timed(self, job: Job, name: str, action: Callable[[], object]) -> None:
        """Time ``action`` as one value of the row ``name``."""
        before, began = _wire_bytes(job.device), time.perf_counter()
        action()
        seconds = time.perf_counter() - began
        self.seconds.setdefault(name, []).append(seconds)
        self.wire.setdefault(name, []).append(_wire_bytes(job.device) - before)
        print(f"  {name}: {seconds:.3f} s", file=sys.stderr, flush=True)


def rounds(job: Job) -> Outcome:
    """All rounds, the peers one after the other in each."""
    outcome = Outcome(round_trips=round_trip())
    socket = str(Path(job.ssh_config).with_name("master"))
    ssh = ["ssh", "-F", job.ssh_config]
    _run([*ssh, "-M", "-N", "-f", "-S", socket, "far"])
    try:
        for number in range(job.rounds):
            print(f"round {number + 1} of {job.rounds}", file=sys.stderr, flush=True)
            _round(job, outcome, number, socket)
    finally:
        subprocess.run([*ssh, "-S", socket, "-O", "exit", "far"], capture_output=True, check=False)
    return outcome


def _round(job: Job, outcome: Outcome, number: int, socket: str) -> None:
    far = Path(job.far)
    source = str(Path(job.folder) / "benchmark")
    shared = f"ssh -F {job.ssh_config} -S {socket}"
    own = f"ssh -F {job.ssh_config}"
    scp = ["scp", "-q", "-r", "-F", job.ssh_config, "-o", f"ControlPath={socket}", source]
    rsync = ["rsync", "-a", "-e", shared, source, f"far:{far}/rsync-{number}/"]
    login = ["rsync", "-a", "-e", own, source, f"far:{far}/login-{number}/"]
    outcome.timed(job, SCP, lambda: _run([*scp, f"far:{far}/scp-{number}"]))
    outcome.timed(job, RSYNC, lambda: _run(rsync))
    _push(job, outcome, FULL, _host(job, number))
    outcome.timed(job, RSYNC_AGAIN, lambda: _run(rsync))
    _push(job, outcome, AGAIN, _host(job, number))
    if job.container is not None:
        _push(job, outcome, IN_CONTAINER, _host(job, number, job.container))
        _push(job, outcome, IN_CONTAINER_AGAIN, _host(job, number, job.container))
    outcome.timed(job, RSYNC_LOGIN, lambda: _run(login))
    inventory = Path(job.folder) / "inventory.yaml"
    inventory.write_text(
        f"defaults: {{ssh_config: {job.ssh_config}, store: {far}/login-store-{number}}}\n"
        "hosts: {far: {}}\n"
    )
    push = [job.mxfleet, "push", "--inventory", str(inventory)]
    environment = compiled(Path(job.folder).with_name("compiled"))
    outcome.timed(job, LOGIN, lambda: _run(push, environment))
    for copy in far.glob(f"*-{number}"):
        shutil.rmtree(copy)


def _host(job: Job, number: int, container: str | None = None) -> Target:
    # Below a folder of its own in the container: the parent removes it as a whole.
    store = f"{job.far}/store-{number}"
    host = Host(name="far", ssh_config=Path(job.ssh_config))
    return Target("far", host, container=container, store=store, python=job.python)


def _push(job: Job, outcome: Outcome, name: str, target: Target) -> None:
    with Fleet() as fleet:
        fleet.connection(target)
        sent: list[Sent] = []

        def push() -> None:
            tree = build(Path(job.folder))
            sent.append(push_tree(fleet.session(target), target, tree))

        outcome.timed(job, name, push)
    outcome.sent.setdefault(name, []).append((sent[0].files, sent[0].bytes))


def _run(argv: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
    nothing = subprocess.DEVNULL
    done = subprocess.run(argv, stdin=nothing, stdout=nothing, env=environment, check=False)
    if done.returncode:
        raise SystemExit(f"`{' '.join(argv)}` ended with {done.returncode}")


def _wire_bytes(device: str) -> int:
    folder = Path("/sys/class/net") / device / "statistics"
    return sum(int((folder / name).read_text()) for name in ("rx_bytes", "tx_bytes"))


if __name__ == "__main__":
    print(json.dumps(asdict(rounds(Job(**json.loads(sys.argv[1]))))))
