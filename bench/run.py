"""What does `mxfleet run` add? The same command through plain ssh and docker; docs/measured/run.md.

``python bench/run.py`` as root, on the loopback fleet (brought up and ended when it is not up). A
trivial operator runs from a pushed tree, where it imports torch as all do, and from an established
checkout whose script does next to nothing. Exit code 1 when a promise is broken; what the machine
lacks is named and the table skipped.
"""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from common.command import table_command
from common.errors import Failed
from common.loopback import CONTAINER, HOST, Loopback, loopback_fleet
from common.table import Promise, Report, median
from common.tools import compiled, machine, need, version

from orchestrator.suites import mcoplib, whitelist

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "docs" / "measured" / "run.md"
TRIVIAL = ROOT / "bench" / "trivial"
OPERATOR = "bench_trivial"
ENV_SCRIPT = "../env/env.sh"  # seen from benchmark/, in the tree and in the checkout
TIMES, ALLOWED = 1.3, 0.5  # over plain ssh, the latter in seconds
MXFLEET = Path(sys.executable).with_name("mxfleet")

HOW = f"""A trivial operator on one host of the loopback fleet, in its container: as `mxfleet run`,
and as the command that one would type, `ssh {HOST} docker exec {CONTAINER} bash -c "cd … && source
{ENV_SCRIPT} && python -u {mcoplib.SCRIPT} --op {OPERATOR} --csv … --generate"`. Both log in anew
every time, both are timed from start to end as whole processes. From a tree: pushed before, the
harness and its runner import torch. From a checkout: an established one, whose script imports
nothing heavy. `mxfleet run` also checks the tree or checkout, brings records and CSV back and
merges them; its modules are compiled, as after an installation. All rows take turns in every round,
after one round that does not count."""


@dataclass(frozen=True)
class Case:
    """One place where the operator runs: mxfleet's inventory, and the folder in the container."""

    name: str
    inventory: Path
    folder: str

    @property
    def ours(self) -> str:
        """The row of mxfleet."""
        return f"mxfleet run, {self.name}"

    @property
    def plain(self) -> str:
        """The row of plain ssh."""
        return f"ssh and docker exec, {self.name}"


def measure(rounds: int) -> Report:
    """Lay out both cases, run the rounds, make the table. Raises Skip."""
    need(("ssh", "docker"), root=True)
    foot = machine()
    seconds: dict[str, list[float]] = {}
    with ExitStack() as stack:
        fleet = stack.enter_context(loopback_fleet())
        base = Path(tempfile.mkdtemp(prefix="mxfleet-bench-"))
        stack.callback(shutil.rmtree, base, ignore_errors=True)
        cases = _lay_out(fleet, base, stack)
        environment = compiled(base / "compiled")
        for number in range(rounds + 1):
            print(f"round {number} of {rounds}", file=sys.stderr, flush=True)
            for case in cases:
                table = f"{base}/plain-{case.inventory.stem}-{number}.csv"
                plain = _plain_command(fleet, case, table)
                ours = [str(MXFLEET), "run", "--op", OPERATOR, "--inventory", str(case.inventory)]
                for row, command in ((case.plain, plain), (case.ours, ours)):
                    taken = _timed(command, environment)
                    print(f"  {row}: {taken:.3f} s", file=sys.stderr, flush=True)
                    if number:
                        seconds.setdefault(row, []).append(taken)
    foot.append(
        f"peers: {version('ssh', '-V')}; {version('docker', '--version')}; "
        f"{version(str(MXFLEET), '--version')}"
    )
    return Report(
        title="Run",
        how=HOW,
        command="python bench/run.py",
        seconds=seconds,
        reference={case.ours: case.plain for case in cases},
        promises=[
            Promise(
                f"{case.ours}: {TIMES} × plain + {ALLOWED} s",
                median(seconds[case.ours]),
                TIMES * median(seconds[case.plain]) + ALLOWED,
            )
            for case in cases
        ],
        foot=foot,
    )


def _lay_out(fleet: Loopback, base: Path, stack: ExitStack) -> list[Case]:
    """A working folder with the operator in it, pushed; an established checkout beside it."""
    work = base / "work"
    _run([str(MXFLEET), "init", str(work)])
    script = work / "benchmark" / mcoplib.SCRIPT
    script.write_text(whitelist.add(script.read_text(), [OPERATOR], str(script)))
    _copy_operator(work / "benchmark")

    outside = fleet.share / base.name
    checkout = outside / "benchmark"
    stack.callback(shutil.rmtree, outside, ignore_errors=True)
    checkout.mkdir(parents=True)
    shutil.copy(TRIVIAL / mcoplib.SCRIPT, checkout)
    _copy_operator(checkout)
    shutil.copytree(work / "env", outside / "env", ignore=shutil.ignore_patterns("loopback"))

    # The folder for the container's files has the name of ours, and goes with it.
    stack.callback(fleet.forget, base)
    fleet.in_container("mkdir", str(base))
    inside = f"/share/{base.name}/benchmark"
    tree = _inventory(fleet, work / "tree.yaml", {"store": f"{base}/store"})
    established = _inventory(
        fleet, work / "checkout.yaml", {"store": f"{base}/store", "workdir": inside}
    )
    done = _run([str(MXFLEET), "push", "--inventory", str(tree), "--output", "json"])
    events = [json.loads(line) for line in done.stdout.splitlines()]
    pushed = next(event for event in events if event["event"] == "pushed")
    return [
        Case("from a tree", tree, f"{pushed['path']}/benchmark"),
        Case("from a checkout", established, inside),
    ]


def _copy_operator(benchmark: Path) -> None:
    for folder in mcoplib.SYNC_FOLDERS:
        (benchmark / folder).mkdir(exist_ok=True)
        for path in (TRIVIAL / folder).glob(f"*{OPERATOR}*"):
            shutil.copy(path, benchmark / folder)


def _inventory(fleet: Loopback, path: Path, settings: dict[str, str]) -> Path:
    values = {
        "ssh_config": str(fleet.ssh_config),
        "container": CONTAINER,
        "python": fleet.python,
        "env_script": ENV_SCRIPT,
        **settings,
    }
    # JSON is YAML.
    path.write_text(json.dumps({"defaults": values, "hosts": {HOST: {"user": "root"}}}))
    return path


def _plain_command(fleet: Loopback, case: Case, table: str) -> list[str]:
    words = ["-u", mcoplib.SCRIPT, "--op", OPERATOR, "--csv", table, "--generate"]
    # As mxfleet has it: an immutable tree gets no caches, so neither side finds any.
    script = (
        f"cd {shlex.quote(case.folder)} && source {ENV_SCRIPT} && "
        f"PYTHONDONTWRITEBYTECODE=1 {shlex.join([fleet.python, *words])}"
    )
    inside = shlex.join(["docker", "exec", CONTAINER, "bash", "-c", script])
    return ["ssh", "-T", "-F", str(fleet.ssh_config), "-o", "BatchMode=yes", HOST, inside]


def _timed(command: Sequence[str], environment: Mapping[str, str]) -> float:
    began = time.perf_counter()
    done = _run(command, environment)
    taken = time.perf_counter() - began
    # Neither side may win by not doing the work.
    if f"[APPEND] {OPERATOR}" not in done.stdout:
        raise Failed(f"`{shlex.join(command)}` measured nothing:\n{done.stdout}{done.stderr}")
    return taken


def _run(
    command: Sequence[str], environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    if done.returncode:
        said = done.stdout + done.stderr
        raise Failed(f"`{shlex.join(command)}` ended with {done.returncode}:\n{said}")
    return done


if __name__ == "__main__":
    sys.exit(
        table_command("bench/run.py", "mxfleet run beside ssh and docker exec.", measure, 7, TABLE)
    )
