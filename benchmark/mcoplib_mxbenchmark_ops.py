"""Front door of the operator benchmarks: measure one operator, or list all of them.

Holds the whitelist and hands over to ``harness.cli``. This file alone must parse on old Pythons
(3.6), so that they get a sentence instead of a syntax error.
"""

import os
import sys

# Alphabetical. mxfleet and other tools read and extend this literal.
SUPPORTED_OPERATORS = [
    "torch_matmul",
    "torch_rms_norm",
    "torch_sdpa",
    "torch_silu_and_mul",
    "torch_softmax",
]


def main():
    if sys.version_info < (3, 10):
        sys.stderr.write(
            "error: {} is Python {}.{}, the benchmarks need 3.10 or later; "
            "set the target's python to a newer one\n".format(
                sys.executable, sys.version_info[0], sys.version_info[1]
            )
        )
        return 3
    from harness.cli import main as run

    return run(sys.argv[1:], SUPPORTED_OPERATORS, os.path.dirname(os.path.abspath(__file__)))


if __name__ == "__main__":
    sys.exit(main())
