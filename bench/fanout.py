"""How long does one trivial job on 200 hosts take? Beside clush, pyinfra and Ansible.

``python bench/fanout.py`` as root; the table is docs/measured/fanout.md. An sshd behind 200
loopback addresses stands for the hosts; clients and servers share this machine. The peers are
installed by pip into a virtual environment of their own, which is kept. Exit code 1 when a promise
is broken; what the machine lacks is named and the table skipped.
"""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import fanout_tools as tools
from common.command import table_command
from common.endpoints import addresses, endpoints
from common.errors import Failed
from common.memory import Peak
from common.table import Promise, Report, median
from common.tools import machine, need, version

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "docs" / "measured" / "fanout.md"
HOSTS = 200
FORKS = (16, 64)  # how many at a time a peer is tried with; the better is measured
TIMES = 1.05  # over the fastest peer
MEMORY = 200.0  # MiB
_LOOK_SECONDS = 2.0

HOW = f"""One trivial job on each of {HOSTS} SSH endpoints ({HOSTS} loopback addresses, one sshd
that takes every login), all on this machine: its CPUs carry the client, the servers and the jobs.
The job is the same everywhere: `cd … && source {tools.ENV_SCRIPT} && python -u {tools.SCRIPT} --op
{tools.OPERATOR} --csv … --generate`, an established checkout's front door that imports nothing
heavy and adds up some numbers. clush and Ansible (module raw) log in by ssh with its connection
sharing off, pyinfra by Paramiko; each gets the better of {" or ".join(map(str, FORKS))} at a time,
found in a round that does not count. The server offers one key exchange, curve25519, that all have:
by itself ssh prefers one that Paramiko lacks and that costs it six times the CPU time here.
`mxfleet run` has its defaults and its modules compiled, as
after an installation. It does more: on every host it starts an agent, compares the checkout with
the working folder, locks the device, supervises the job by heartbeats and a process scan, spools
its output, brings records and table back, and merges them. The tools take turns in every round,
each as a whole process from start to end. Memory is the summed PSS of the tool's own processes (not
of the servers'), sampled in a round of its own."""


def measure(rounds: int) -> Report:
    """Lay everything out, find the peers' settings, run the rounds, make the table. Raises Skip."""
    need(("sshd", "ssh", "ssh-keygen", "bash"), root=True)
    foot = machine()
    with ExitStack() as stack:
        bin_folder = tools.peers()
        base = Path(tempfile.mkdtemp(prefix="mxfleet-bench-"))
        stack.callback(shutil.rmtree, base, ignore_errors=True)
        config = stack.enter_context(endpoints(HOSTS, base))
        place = tools.lay_out(base, config, addresses(HOSTS), bin_folder)
        commands = _commands(place)
        _run(place, commands[tools.OURS]())
        seconds: dict[str, list[float]] = {name: [] for name in commands}
        errors = dict.fromkeys(commands, 0)
        busy: list[float] = []
        used: dict[str, list[float]] = {name: [] for name in commands}
        for number in range(rounds):
            busy.append(_busy())
            print(f"round {number + 1} of {rounds}, {busy[-1]:.0%} busy", file=sys.stderr)
            for name, make in commands.items():
                before = _cpu_seconds()
                taken, missing = _run(place, make())
                used[name].append(_cpu_seconds() - before)
                seconds[name].append(taken)
                errors[name] += missing
        memory = {name: _peak(place, make()) for name, make in commands.items()}
        versions = [version(str(bin_folder / name), "--version") for name in tools.PROGRAMS]
    middle = {name: median(values) for name, values in seconds.items()}
    fastest = min((name for name in middle if name != tools.OURS), key=middle.__getitem__)
    sizes = ", ".join(f"{name} {mib:.0f}" for name, mib in memory.items())
    spent = ", ".join(f"{name} {median(values):.1f}" for name, values in used.items())
    lost = ", ".join(f"{name} {count}" for name, count in errors.items())
    return Report(
        title="Fan-out",
        how=" ".join(HOW.split()),
        command="python bench/fanout.py",
        seconds=seconds,
        reference={name: fastest for name in seconds if name != fastest},
        promises=[
            Promise(
                f"{tools.OURS} over {fastest}", middle[tools.OURS] / middle[fastest], TIMES, "×"
            ),
            Promise(f"{tools.OURS}: summed PSS at its peak", memory[tools.OURS], MEMORY, "MiB"),
            Promise(f"{tools.OURS}: jobs without a result", errors[tools.OURS], 0, ""),
        ],
        foot=[
            *foot,
            f"CPUs busy with other things before the rounds: {', '.join(f'{b:.0%}' for b in busy)}",
            f"MiB of PSS at the peak: {sizes}",
            f"CPU seconds of the tool's own processes, median: {spent}",
            f"jobs without a result, of {HOSTS * rounds}: {lost}",
            f"peers: {'; '.join(versions)}; {version('ssh', '-V')}; "
            f"{version(str(tools.MXFLEET), '--version')}",
        ],
    )


def _commands(place: tools.Place) -> dict[str, Callable[[], tools.Command]]:
    """By row, what makes its command; each peer with the setting that was faster once.

    That also warms what all of them read.
    """
    commands: dict[str, Callable[[], tools.Command]] = {}
    for name, make in tools.PEERS.items():
        taken = {forks: _run(place, make(place, forks))[0] for forks in FORKS}
        best = min(FORKS, key=taken.__getitem__)
        commands[f"{name}, {best} at a time"] = partial(make, place, best)
    commands[tools.OURS] = partial(tools.mxfleet, place)
    return commands


def _run(place: tools.Place, command: tools.Command) -> tuple[float, int]:
    """Seconds that a command took, and how many hosts have no result."""
    shutil.rmtree(place.rows, ignore_errors=True)
    place.rows.mkdir()
    began = time.perf_counter()
    with _started(place, command) as process:
        said = process.communicate()[0]
    taken = time.perf_counter() - began
    missing = HOSTS - command.results(place)
    print(f"  {command.name}: {taken:.3f} s, {missing} missing", file=sys.stderr, flush=True)
    if missing == HOSTS:
        raise Failed(f"`{' '.join(command.argv)}` did nothing:\n{said[-4000:]}")
    return taken, missing


def _busy() -> float:
    """How much of the CPUs other things take just now: they slow down all tools, some more."""

    def times() -> tuple[int, int]:
        line = Path("/proc/stat").read_text().splitlines()[0]
        values = [int(word) for word in line.split()[1:9]]
        return values[3] + values[4], sum(values)  # idle and waiting for a disk; all

    idle, whole = times()
    time.sleep(_LOOK_SECONDS)
    later, grown = times()
    return 1.0 - (later - idle) / max(1, grown - whole)


def _cpu_seconds() -> float:
    """What our commands have used so far, without what descends from sshd."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _peak(place: tools.Place, command: tools.Command) -> float:
    with _started(place, command) as process, Peak(process) as peak:
        process.communicate()
    return peak.mib


def _started(place: tools.Place, command: tools.Command) -> subprocess.Popen[str]:
    return subprocess.Popen(
        list(command.argv),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**command.environment, "HOME": str(place.home)},
        cwd=place.work,
    )


if __name__ == "__main__":
    sys.exit(
        table_command(
            "bench/fanout.py", "mxfleet run on many hosts beside its peers.", measure, 5, TABLE
        )
    )
