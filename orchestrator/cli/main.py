"""Where ``mxfleet`` is entered: next to nothing, so that Ctrl-C is told from the first moment on.

Loading the subcommands takes long enough to be interrupted, on a busy machine a second.
"""

from __future__ import annotations

import sys


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit with the documented code."""
    try:
        from orchestrator.cli.app import main as run
    except KeyboardInterrupt:
        print("mxfleet: interrupted", file=sys.stderr)
        sys.exit(130)
    run(arguments)
