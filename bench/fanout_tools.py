"""The commands of ``fanout.py``: the same job on all hosts by each tool, and what they read."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from common.errors import Failed, Skip
from common.tools import compiled

from orchestrator.suites import mcoplib, whitelist

TRIVIAL = Path(__file__).resolve().parent / "trivial"
OPERATOR = "bench_trivial"
SCRIPT = mcoplib.SCRIPT
MXFLEET = Path(sys.executable).with_name("mxfleet")
OURS = "mxfleet run"
PACKAGES = ("ClusterShell", "pyinfra", "ansible-core")
PROGRAMS = ("clush", "pyinfra", "ansible")
ENV_SCRIPT = "../env/env.sh"


@dataclass(frozen=True)
class Place:
    """Where everything lies. ``rows`` takes one table a host and is emptied before a command."""

    work: Path  # mxfleet's working folder, and the current folder of all
    rows: Path
    home: Path
    compiled: Path
    config: Path  # for ssh -F
    programs: Path
    hosts: Sequence[str]
    job: str  # the line that a peer runs on each host


@dataclass(frozen=True)
class Command:
    """A command line; ``results`` counts the hosts that have a result after it."""

    name: str
    argv: Sequence[str]
    environment: Mapping[str, str]
    results: Callable[[Place], int]


def peers() -> Path:
    """The folder with the peers' programs, installed on first use. Raises Skip where pip cannot."""
    folder = Path.home() / ".cache" / "mxfleet-bench" / "peers"
    programs = folder / "bin"
    if all((programs / name).exists() for name in PROGRAMS):
        return programs
    print(f"installing {', '.join(PACKAGES)} below {folder}", file=sys.stderr, flush=True)
    for argv in (
        [sys.executable, "-m", "venv", "--clear", str(folder)],
        [str(programs / "pip"), "install", "--quiet", *PACKAGES],
    ):
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        if done.returncode:
            said = (done.stderr.strip().splitlines() or ["it says nothing"])[-1]
            raise Skip(f"the peers cannot be installed: {said}")
    return programs


def lay_out(base: Path, config: Path, hosts: Sequence[str], programs: Path) -> Place:
    """The checkout that the jobs run in, mxfleet's working folder, the peers' lists of hosts."""
    checkout = base / "checkout" / "benchmark"
    shutil.copytree(TRIVIAL, checkout)
    work = base / "work"
    done = subprocess.run([str(MXFLEET), "init", str(work)], capture_output=True, text=True)
    if done.returncode:
        raise Failed(f"mxfleet init failed: {done.stderr}")
    script = work / "benchmark" / SCRIPT
    script.write_text(whitelist.add(script.read_text(), [OPERATOR], str(script)))
    for folder in mcoplib.SYNC_FOLDERS:
        for path in (TRIVIAL / folder).glob(f"*{OPERATOR}*"):
            shutil.copy(path, work / "benchmark" / folder)
    shutil.copytree(work / "env", base / "checkout" / "env")
    defaults = {
        "ssh_config": str(config),
        "container": "none",
        "workdir": str(checkout),
        "python": sys.executable,
        "env_script": ENV_SCRIPT,
    }
    # In truth all are one machine: what a host has for itself, a store and locks, each gets.
    places = {
        host: {
            "store": str(base / "hosts" / host / "store"),
            "lock_folder": str(base / "hosts" / host / "locks"),
        }
        for host in hosts
    }
    for host in hosts:
        (base / "hosts" / host).mkdir(parents=True)
    # JSON is YAML.
    (work / "inventory.yaml").write_text(json.dumps({"defaults": defaults, "hosts": places}))
    (base / "hosts.ini").write_text("".join(f"{host}\n" for host in hosts))
    data = {"ssh_config_file": str(config), "ssh_known_hosts_file": str(base / "known_hosts")}
    (base / "hosts.py").write_text(f"hosts = {[(host, data) for host in hosts]!r}\n")
    rows = base / "rows"
    words = [sys.executable, "-u", SCRIPT, "--op", OPERATOR, "--generate", "--csv"]
    inside = f"cd {shlex.quote(str(checkout))} && source {ENV_SCRIPT} && {shlex.join(words)}"
    job = f"bash -c {shlex.quote(f'{inside} {rows}/$$')}"
    return Place(work, rows, base / "home", base / "compiled", config, programs, hosts, job)


def _clush(place: Place, forks: int) -> Command:
    first, last = place.hosts[0], place.hosts[-1].rpartition(".")[2]
    nodes = f"{first.rpartition('.')[0]}.[1-{last}]"
    argv = [str(place.programs / "clush"), "-f", str(forks), "-o", f"-F {place.config}"]
    return Command(f"clush -f {forks}", [*argv, "-w", nodes, place.job], _plain(), _tables)


def _pyinfra(place: Place, forks: int) -> Command:
    argv = [str(place.programs / "pyinfra"), "-y", "--parallel", str(forks)]
    hosts = str(place.rows.with_name("hosts.py"))
    words = [*argv, hosts, "exec", "--", place.job]
    return Command(f"pyinfra --parallel {forks}", words, _plain(), _tables)


def _ansible(place: Place, forks: int) -> Command:
    argv = [str(place.programs / "ansible"), "all", "-i", str(place.rows.with_name("hosts.ini"))]
    environment = {
        **_plain(),
        "ANSIBLE_SSH_ARGS": f"-F {place.config} -o ControlMaster=no -o ControlPath=none",
    }
    words = [*argv, "-m", "raw", "-a", place.job, "-f", str(forks)]
    return Command(f"ansible -f {forks}", words, environment, _tables)


# By the name in the table: the command for a number of hosts at a time.
PEERS: Mapping[str, Callable[[Place, int], Command]] = {
    "clush": _clush,
    "pyinfra": _pyinfra,
    "Ansible": _ansible,
}


def mxfleet(place: Place) -> Command:
    """Our command; its results are the records of its run."""
    shutil.rmtree(place.work / "runs", ignore_errors=True)
    argv = [str(MXFLEET), "run", "--op", OPERATOR]
    return Command(OURS, argv, compiled(place.compiled), _records)


def _plain() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}


def _tables(place: Place) -> int:
    """Tables with a row in them."""
    return sum(len(path.read_text().splitlines()) == 2 for path in place.rows.iterdir())


def _records(place: Place) -> int:
    """Hosts with a record that passed."""
    passed = set()
    for path in (place.work / "runs").glob("*/records/*/*.jsonl"):
        for line in path.read_text().splitlines():
            record = json.loads(line)
            if record.get("status") == "PASSED" and record.get("op") == OPERATOR:
                passed.add(record.get("host"))
    return len(passed)
