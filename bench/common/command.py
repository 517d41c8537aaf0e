"""What both commands do: options, the measuring, the file, the exit code."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path

from common.errors import Failed, Skip
from common.signals import ends_as_interrupt
from common.table import Report


def table_command(
    name: str, description: str, measure: Callable[[int], Report], rounds: int, table: Path
) -> int:
    """Measure, write the table, print it.

    Returns 0 when all promises are kept or the machine cannot make the table (it says why), 1 when
    a promise is broken or the measuring failed, 130 when interrupted.
    """
    parser = argparse.ArgumentParser(prog=name, description=description)
    parser.add_argument(
        "--rounds", type=_rounds, default=rounds, metavar="N", help="default %(default)s"
    )
    parser.add_argument(
        "--table", type=Path, default=table, metavar="FILE", help="default %(default)s"
    )
    options = parser.parse_args()
    os.umask(0o022)
    try:
        with ends_as_interrupt():
            report = measure(options.rounds)
    except Skip as reason:
        print(f"{name}: skipped: {reason}", file=sys.stderr)
        return 0
    except Failed as reason:
        print(f"{name}: {reason}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"{name}: interrupted", file=sys.stderr)
        return 130
    report.write(options.table)
    print(report.markdown())
    return 0 if report.kept else 1


def _rounds(text: str) -> int:
    value = int(text)
    if value < 2:
        raise argparse.ArgumentTypeError("at least 2, to see a spread")
    return value
