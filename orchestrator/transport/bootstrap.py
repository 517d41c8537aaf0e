"""How the agent gets to the other side: one short program on a command line, the rest as bytes.

The command line finds a Python and starts a program that says which Python it is, then reads the
bundle's length and the bundle from standard input: compiled where that Python has our bytecode,
else as source. It holds no single quote, backslash, newline or exclamation mark, so that every
login shell passes it on unharmed.
"""

from __future__ import annotations

import marshal
import threading
import zlib
from collections.abc import Sequence
from functools import lru_cache
from importlib import resources
from importlib.util import MAGIC_NUMBER

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
    "import marshal;from _frozen_importlib_external import MAGIC_NUMBER as m;"
    'os.write(1,bytes(1)+b"mxfleet-python:"+m.hex().encode()+bytes(1));'
    "i=sys.stdin.buffer;"
    "MODULES=marshal.loads(zlib.decompress(i.read(int(i.readline()))));"
    'exec(MODULES["mxagent"])'
)
# What the program says first: PYTHON_MARK, the magic number of its bytecode, PYTHON_END. A shell
# that prints the commands it runs does not print this.
PYTHON_MARK, PYTHON_END = b"\0mxfleet-python:", b"\0"

# A module is compiled when it is imported: what a request does not need costs its host nothing.
_STAGE = """
import gc, sys
from _frozen_importlib import ModuleSpec
gc.disable()  # all that is made here stays

class Bundle:
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return ModuleSpec(name, cls) if name in MODULES else None

    @staticmethod
    def create_module(spec):
        return None

    @staticmethod
    def exec_module(module):
        code = MODULES[module.__name__]
        if isinstance(code, str):
            code = compile(code, module.__name__.replace(".", "/") + ".py", "exec")
        exec(code, module.__dict__)

package = type(sys)("mxagent")
package.__path__ = []
sys.modules["mxagent"] = package
sys.meta_path.append(Bundle)
from mxagent.serve import main
gc.enable()
main(sys.stdin.buffer)
"""

_PACKING = threading.Lock()
_FOR_ALL = 2  # the version of marshal that every Python 3 reads

# Tried after the target's own, in this order.
FALLBACK_PYTHONS = ("python3", "python", "/usr/bin/python3", "/opt/conda/bin/python")


def command(pythons: Sequence[str]) -> list[str]:
    """The argument vector that starts the agent with the first of ``pythons`` that exists."""
    return ["sh", "-c", _FIND, PROGRAM, _FIND, *dict.fromkeys((*pythons, *FALLBACK_PYTHONS))]


def bundle(magic: str | None = None) -> bytes:
    """What goes first into the agent's standard input: a length line and its compressed modules.

    ``magic`` is what the Python there calls its bytecode, in hexadecimal; None: not known.
    """
    with _PACKING:  # once, for all the hosts that start at the same moment
        return _packed(magic == MAGIC_NUMBER.hex())


@lru_cache(maxsize=2)
def _packed(compiled: bool) -> bytes:
    folder = resources.files("orchestrator.transport.agent")
    sources = {
        f"mxagent.{name}": (folder / f"{name}.py").read_text(encoding="utf-8") for name in MODULES
    }
    sources["mxagent"] = _STAGE
    if compiled:
        codes = {
            name: compile(source, name.replace(".", "/") + ".py", "exec", dont_inherit=True)
            for name, source in sources.items()
        }
        packed = zlib.compress(marshal.dumps(codes), 9)
    else:
        packed = zlib.compress(marshal.dumps(sources, _FOR_ALL), 9)
    return b"%d\n%s" % (len(packed), packed)
