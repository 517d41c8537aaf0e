"""How the agent gets to the other side: one short program on a command line, the rest as bytes.

The command line finds a Python and starts a program that reads the bundle's length and the
bundle from standard input. It holds no single quote, backslash, newline or exclamation mark, so
that every login shell passes it on unharmed.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from functools import lru_cache
from importlib import resources

from orchestrator.transport.agent import MODULES

# $0 is PROGRAM, $1 this line itself, then the Pythons to try.
_FIND = (
    'f=$1; shift; while [ $# -gt 0 ]; do p=$1; shift; if command -v "$p" >/dev/null 2>&1; '
    'then exec "$p" -S -E -u -c "$0" "$0" "$f" "$@"; fi; '
    "done; echo mxfleet: no python found >&2; exit 127"
)

# A Python that is too old goes on with the search; Python 2 has to get that far as well.
PROGRAM = (
    "import os,sys,zlib;"
    'sys.version_info<(3,6) and os.execvp("sh",["sh","-c",sys.argv[2]]+sys.argv[1:]);'
    "i=sys.stdin.buffer;"
    'exec(compile(zlib.decompress(i.read(int(i.readline()))),"mxfleet-agent","exec"))'
)

# A module is compiled when it is imported: what a request does not need costs its host nothing.
_STAGE = """
import sys
from _frozen_importlib import ModuleSpec

class Bundle:
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return ModuleSpec(name, cls) if name in SOURCES else None

    @staticmethod
    def create_module(spec):
        return None

    @staticmethod
    def exec_module(module):
        name = module.__name__
        exec(compile(SOURCES[name], name.replace(".", "/") + ".py", "exec"), module.__dict__)

package = type(sys)("mxagent")
package.__path__ = []
sys.modules["mxagent"] = package
sys.meta_path.append(Bundle)
from mxagent.serve import main
main(sys.stdin.buffer)
"""

# Tried after the target's own, in this order.
FALLBACK_PYTHONS = ("python3", "python", "/usr/bin/python3", "/opt/conda/bin/python")


def command(pythons: Sequence[str]) -> list[str]:
    """The argument vector that starts the agent with the first of ``pythons`` that exists."""
    return ["sh", "-c", _FIND, PROGRAM, _FIND, *dict.fromkeys((*pythons, *FALLBACK_PYTHONS))]


@lru_cache(maxsize=1)
def bundle() -> bytes:
    """What goes first into the agent's standard input: a length line and its compressed source."""
    folder = resources.files("orchestrator.transport.agent")
    sources = {
        f"mxagent.{name}": (folder / f"{name}.py").read_text(encoding="utf-8") for name in MODULES
    }
    packed = zlib.compress(f"SOURCES = {sources!r}\n{_STAGE}".encode(), 9)
    return b"%d\n%s" % (len(packed), packed)
