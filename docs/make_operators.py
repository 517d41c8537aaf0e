"""Write docs/operators.md from the runners' docstrings and the configurations.

``python docs/make_operators.py``; with ``--check`` it only says whether the file is current (exit
code 1 when it is not). A runner's docstring has a first sentence, ``Call:`` and ``Libraries:``
lines, and the sections ``Arguments:``, ``Parameters:`` and ``Pitfalls:`` with indented lines.
"""

from __future__ import annotations

import ast
import inspect
import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
BENCHMARK = ROOT / "benchmark"
TARGET = ROOT / "docs" / "operators.md"
SECTIONS = ("Arguments", "Parameters", "Pitfalls")
# Keys that say where and how long is measured, not what.
_NOT_SHOWN = ("device_id", "device_name", "samples")
# The small operators of torch itself are there for a machine without an operator library.
_PLAIN = "torch_"

HEAD = """# Operators

Made by `python docs/make_operators.py` from the runners in `benchmark/runners/` and the
configurations in `benchmark/config/`. A value that is a list is swept: one case for each
combination.
"""


class MalformedError(Exception):
    """A runner's docstring is not in the form that this script reads."""


def main() -> int:
    """Write or check the file."""
    try:
        text = render()
    except MalformedError as error:
        print(f"docs/make_operators.py: {error}", file=sys.stderr)
        return 1
    if "--check" in sys.argv[1:]:
        if TARGET.exists() and TARGET.read_text(encoding="utf-8") == text:
            return 0
        print("docs/operators.md is not current: run python docs/make_operators.py")
        return 1
    TARGET.write_text(text, encoding="utf-8")
    return 0


def operators() -> list[str]:
    """The whitelist, read as a literal."""
    source = (BENCHMARK / "mcoplib_mxbenchmark_ops.py").read_text(encoding="utf-8")
    for node in ast.parse(source).body:
        if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
            continue
        if node.targets[0].id == "SUPPORTED_OPERATORS":
            names: list[str] = ast.literal_eval(node.value)
            return sorted(names)
    raise MalformedError("mcoplib_mxbenchmark_ops.py has no SUPPORTED_OPERATORS")


def render() -> str:
    """The whole file."""
    names = operators()
    libraries = [name for name in names if not name.startswith(_PLAIN)]
    plain = [name for name in names if name.startswith(_PLAIN)]
    parts = [HEAD, _index(libraries), *map(_chapter, libraries)]
    parts += ["## Operators of torch itself\n", *(f"- `{n}`: {_summary(n)}" for n in plain)]
    return "\n".join(parts) + "\n"


def _index(names: list[str]) -> str:
    rows = [f"| [{name}](#{name}) | {_summary(name)} |" for name in names]
    return "\n".join(["| operator | what it computes |", "| --- | --- |", *rows, ""])


def _docstring(name: str) -> str:
    path = BENCHMARK / "runners" / f"mcoplib_mxbenchmark_{name}_runners.py"
    found = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")), clean=False)
    if not found:
        raise MalformedError(f"{path.relative_to(ROOT)}: has no docstring")
    return inspect.cleandoc(found)


def _summary(name: str) -> str:
    return " ".join(_docstring(name).split("\n\n")[0].split())


def parse(name: str, text: str) -> dict[str, Any]:
    """The parts of a docstring: ``Call``, ``Libraries``, prose, and the sections as lines."""
    found: dict[str, Any] = {"prose": [], **{section: [] for section in SECTIONS}}
    section: str | None = None
    for line in text.split("\n")[1:]:
        word, colon, rest = line.partition(":")
        if colon and word in SECTIONS and not rest.strip():
            section = word
        elif colon and word in ("Call", "Libraries"):
            found[word] = rest.strip()
            section = word
        elif section in SECTIONS and (line.startswith("    ") or not line.strip()):
            found[section].append(line[4:])
        elif section in ("Call", "Libraries") and line.startswith("    "):
            found[section] += " " + line.strip()
        else:
            section = None
            found["prose"].append(line)
    for needed in ("Call", "Libraries", "Arguments"):
        if not found.get(needed):
            raise MalformedError(f"the runner of {name}: its docstring has no {needed}")
    return found


def _chapter(name: str) -> str:
    text = _docstring(name)
    found = parse(name, text)
    lines = [f"## {name}", "", _summary(name), ""]
    # A summary may take two lines; what is left of it is not prose.
    prose = "\n".join(found["prose"]).split("\n\n")
    lines += [part.strip() + "\n" for part in prose[1:] if part.strip()]
    lines += [f"{found['Call']}  ", f"Libraries: {found['Libraries']}", ""]
    for section in SECTIONS:
        items = _items(found[section])
        if items:
            lines += [f"**{section}**", "", *items, ""]
    config = json.loads((BENCHMARK / "config" / f"{name}.json").read_text(encoding="utf-8"))
    shown = {key: value for key, value in config.items() if key not in _NOT_SHOWN}
    told = ", ".join(f"`{key}` {json.dumps(value)}" for key, value in shown.items())
    return "\n".join([*lines, f"**Configuration**: {told}", ""])


def _items(lines: list[str]) -> list[str]:
    """Indented lines as a list; a line that is indented further goes on the one before it."""
    items: list[str] = []
    for line in lines:
        if not line.strip():
            continue
        if line.startswith(" ") and items:
            items[-1] += " " + line.strip()
        else:
            items.append(f"- {line.strip().removeprefix('- ')}")
    return items


if __name__ == "__main__":
    sys.exit(main())
