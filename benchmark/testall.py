"""Front door of the whole suite: every operator in a process of its own, then a summary.

Like the other front door, this file parses on old Pythons.
"""

import sys
from pathlib import Path

from mcoplib_mxbenchmark_ops import SUPPORTED_OPERATORS, too_old

# Operators that testall leaves out.
IGNORED_OPERATORS = []


def main():
    """Run all operators; returns the exit code."""
    if too_old():
        return 3
    from harness.batch import main as run

    root = str(Path(__file__).resolve().parent)
    return run(sys.argv[1:], SUPPORTED_OPERATORS, IGNORED_OPERATORS, root)


if __name__ == "__main__":
    sys.exit(main())
