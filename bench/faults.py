"""What is left when a job is ended early, and how soon is it gone? Makes docs/measured/faults.md.

``python bench/faults.py`` as root: a loopback fleet of its own, in which every fault of
``tests/fleet/faults.py`` is injected for real. Exit code 1 when a promise is broken; what the
machine lacks is named in the table.
"""

from __future__ import annotations

import argparse
import os
import sys
import textwrap
from pathlib import Path

from common.errors import Skip
from common.signals import ends_as_interrupt
from common.table import grid
from common.tools import machine, need, version

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from fleet.faults import FAULTS, Fault, asleep  # noqa: E402
from fleet.observed import DEAD_LINK, GONE, Seen, broken, intact, observe  # noqa: E402
from fleet.scene import SIZES, ground  # noqa: E402

TABLE = ROOT / "docs" / "measured" / "faults.md"
HEAD = (
    "fault",
    "injected",
    "how mxfleet named it",
    "detected",
    "gone",
    "lock free",
    "left",
    "rows lost",
    "lines missed",
    "kept",
)
HOW = f"""A job that measures {len(SIZES)} cases and then talks on, ignores SIGTERM and has children
that started sessions of their own, forked twice and threw their environment away, runs as `mxfleet
run` in a container of a host that is made for this. Then comes the fault. Detected: seconds until
mxfleet says so, 0 where it is known at once (at the latest {DEAD_LINK:g} + 1 s for a dead link).
Gone: seconds from there until no process of the job is left (at most {GONE:g} s). Lock free:
seconds from there until nobody holds the device's lock, from the run's end where the run goes on
(at most {GONE:g} s). Left: processes of the job and of mxfleet's agents, zombies included, as root
sees them on the host and in the container. Rows lost: of the cases measured before the fault those
that are not in the run's folder at its end, after `mxfleet pull` where the row says so. Lines
missed: of the job's output those that its log here lacks. Afterwards each host ran another job."""


def row(fault: Fault, found: Seen, wrong: list[str]) -> list[str]:
    """A fault as a line of the table."""
    said = f", {fault.says}" if fault.says in found.said and fault.says not in found.outcome else ""
    outcome = f"{found.outcome}{said}{', then pull' if fault.recover else ''}"
    return [
        fault.name,
        fault.what,
        outcome,
        f"{found.detected:.1f}",
        "goes on" if found.gone is None else f"{found.gone:.1f}",
        f"{found.free:.1f}",
        str(len(found.left)),
        str(found.lost_rows),
        str(found.missed_lines),
        f"**no**: {'; '.join(wrong)}" if wrong else "yes",
    ]


def measure(names: list[str]) -> tuple[list[list[str]], bool]:
    """Inject the faults of these names, or all; the table's lines, and whether all was kept."""
    rows, kept = [], True
    with ground() as fleet:
        for fault in (*FAULTS, asleep(300.0)):
            reason = fault.unfit()
            if names and fault.name not in names:
                continue
            if reason is not None:
                rows.append([fault.name, fault.what, f"not possible here: {reason}", *[""] * 7])
                continue
            with intact(fleet):
                found = observe(fault, fleet)
            wrong = broken(fault, found)
            kept = kept and not wrong
            rows.append(row(fault, found, wrong))
            print(" | ".join(rows[-1]), file=sys.stderr, flush=True)
            if wrong:
                print(found.said, file=sys.stderr, flush=True)
    return rows, kept


def main() -> int:
    """Make the table; 0 when every promise is kept or the machine cannot carry the fleet."""
    parser = argparse.ArgumentParser(prog="bench/faults.py", description=__doc__)
    parser.add_argument("names", nargs="*", help="only these faults; then no file is written")
    parser.add_argument(
        "--table", type=Path, default=TABLE, metavar="FILE", help="default %(default)s"
    )
    options = parser.parse_args()
    os.umask(0o022)
    foot = []
    try:
        need(("sshd", "dockerd", "docker", "ip", "iptables", "nsenter"), root=True)
        foot = machine()
        with ends_as_interrupt():
            rows, kept = measure(options.names)
    except Skip as reason:
        print(f"bench/faults.py: skipped: {reason}", file=sys.stderr)
        return 0
    except KeyboardInterrupt:
        print("bench/faults.py: interrupted", file=sys.stderr)
        return 130
    how = textwrap.fill(HOW, 100, break_long_words=False, break_on_hyphens=False)
    foot.append(f"peers: {version('ssh', '-V')}; {version('docker', '--version')}")
    lines = ["# Faults", "", how, "", "Made by `python bench/faults.py`.", ""]
    lines += [*grid(HEAD, rows), "", *(f"- {line}" for line in foot), ""]
    text = "\n".join(lines)
    if not options.names:
        options.table.parent.mkdir(parents=True, exist_ok=True)
        options.table.write_text(text, encoding="utf-8")
    print(text)
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
