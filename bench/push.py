"""How fast is a push? mxfleet beside scp and rsync, to a host 10 ms away; docs/measured/push.md.

``python bench/push.py`` as root. Two network namespaces are joined by a wire that delays every
packet by 5 ms each way, sshd runs in one, the clients in the other. Exit code 1 when a promise is
broken; what the machine lacks is named and the table skipped.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

import push_rounds as rows
from common.command import table_command
from common.errors import Failed, Skip
from common.loopback import CONTAINER, Loopback, loopback_fleet
from common.network import delayed_network
from common.sshd import running_sshd
from common.table import Promise, Report, median
from common.tools import machine, need, version

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "docs" / "measured" / "push.md"
FILES, FILE_SIZE = 300, 4096
ONE_WAY = 0.005  # seconds
ALLOWED = 0.5  # seconds, over rsync and over two round trips
FASTER = 20.0  # times, than scp
MXFLEET = Path(sys.executable).with_name("mxfleet")


def measure(rounds: int) -> Report:
    """Build the network, run the rounds, make the table. Raises Skip."""
    need(("ip", "tc", "sshd", "ssh", "ssh-keygen", "scp", "rsync"), root=True)
    foot = machine()
    with ExitStack() as stack:
        fleet, why = _container(stack)
        base = Path(tempfile.mkdtemp(prefix="mxfleet-bench-"))
        stack.callback(shutil.rmtree, base, ignore_errors=True)
        environment: dict[str, str] = {}
        if fleet is not None:
            environment["DOCKER_HOST"] = fleet.docker_host
            stack.callback(fleet.forget, base)
        _fill(base / "work" / "benchmark")
        (base / "far").mkdir()
        network = stack.enter_context(delayed_network(ONE_WAY))
        config = stack.enter_context(running_sshd(network, base, environment))
        job = rows.Job(
            folder=str(base / "work"),
            far=str(base / "far"),
            ssh_config=str(config),
            device=network.device,
            rounds=rounds,
            mxfleet=str(MXFLEET),
            python=fleet.python if fleet is not None else sys.executable,
            container=CONTAINER if fleet is not None else None,
        )
        program = [sys.executable, rows.__file__, json.dumps(asdict(job))]
        inside = network.inside(network.client, program)
        done = subprocess.run(inside, stdout=subprocess.PIPE, check=False)
        if done.returncode:
            raise Failed(f"the rounds ended with {done.returncode}, see above")
    outcome = rows.Outcome(**json.loads(done.stdout))
    _check_delay(outcome)
    foot += [f"delay by {network.delayed_by}", *_foot(outcome), *([why] if why else [])]
    return Report(
        title="Push",
        how=HOW,
        command="python bench/push.py",
        seconds=outcome.seconds,
        reference=_references(outcome.seconds),
        promises=_promises(outcome),
        foot=foot,
    )


HOW = f"""{FILES} files of {FILE_SIZE // 1024} KiB of random bytes, to a host with a round trip of
{ONE_WAY * 2000:g} ms (two network namespaces, sshd in one). The rows without a login start when the
connection is authenticated: scp and rsync run over an established ControlMaster, each as a whole
command; mxfleet has its connection and then hashes the folder, starts its agent there and pushes,
every full push into an empty store. The rows with a login are the whole commands as typed, mxfleet
with its modules compiled, as after an installation. All rows take turns in every round."""


def _container(stack: ExitStack) -> tuple[Loopback | None, str]:
    """A container behind the far host: the loopback fleet's, through its engine's socket."""
    try:
        return stack.enter_context(loopback_fleet()), ""
    except Skip as reason:
        return None, f"not measured, the push into a container: {reason}"


def _fill(benchmark: Path) -> None:
    # Random bytes: no compression helps anyone. The same every time: a seed.
    source = random.Random(FILES)
    for folder in ("config", "runners"):
        (benchmark / folder).mkdir(parents=True)
        for number in range(FILES // 2):
            path = benchmark / folder / f"file_{number:03}"
            path.write_bytes(source.randbytes(FILE_SIZE))


def _check_delay(outcome: rows.Outcome) -> None:
    """A wire that is faster or much slower than it says would make every number a lie."""
    measured = median(outcome.round_trips)
    if not 2 * ONE_WAY <= measured <= 3 * ONE_WAY:
        raise Failed(f"the round trip should be {ONE_WAY * 2000:g} ms, not {measured * 1000:.2f}")


def _references(seconds: Mapping[str, Sequence[float]]) -> dict[str, str]:
    pairs = {
        rows.SCP: rows.FULL,
        rows.RSYNC: rows.FULL,
        rows.RSYNC_AGAIN: rows.AGAIN,
        rows.IN_CONTAINER: rows.FULL,
        rows.IN_CONTAINER_AGAIN: rows.AGAIN,
        rows.RSYNC_LOGIN: rows.LOGIN,
    }
    return {name: other for name, other in pairs.items() if name in seconds}


def _promises(outcome: rows.Outcome) -> list[Promise]:
    middle = {name: median(values) for name, values in outcome.seconds.items()}
    promises = []
    for full, again in (
        (rows.FULL, rows.AGAIN),
        (rows.IN_CONTAINER, rows.IN_CONTAINER_AGAIN),
    ):
        if full not in middle:
            continue
        faster = middle[rows.SCP] / middle[full]
        promises += [
            Promise(f"{full}: times faster than scp -r", faster, FASTER, "×", at_least=True),
            Promise(f"{full}: rsync -a + {ALLOWED} s", middle[full], middle[rows.RSYNC] + ALLOWED),
            Promise(f"{again}: 2 round trips + {ALLOWED} s", middle[again], 4 * ONE_WAY + ALLOWED),
            Promise(f"{again}: files sent", max(f for f, _ in outcome.sent[again]), 0, ""),
            Promise(f"{again}: bytes of files sent", max(b for _, b in outcome.sent[again]), 0, ""),
        ]
    return promises


def _foot(outcome: rows.Outcome) -> list[str]:
    wire = ", ".join(f"{name} {median(values) / 1024:.0f}" for name, values in outcome.wire.items())
    return [
        f"round trip as a TCP handshake sees it: median {median(outcome.round_trips) * 1000:.2f}, "
        f"max {max(outcome.round_trips) * 1000:.2f} ms",
        f"KiB on the wire, both directions: {wire}",
        f"peers: {version('ssh', '-V')}; {version('rsync', '--version')}; "
        f"{version(str(MXFLEET), '--version')}",
    ]


if __name__ == "__main__":
    sys.exit(
        table_command("bench/push.py", "mxfleet push beside scp and rsync.", measure, 5, TABLE)
    )
