"""What does not belong into a finished runner: debugging, endless timeouts, strange imports."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator

from orchestrator.author.check.benchmark import Benchmark
from orchestrator.author.check.finding import Edit, Hit
from orchestrator.author.check.flow.torch_model import FRAMEWORKS
from orchestrator.author.check.flow.trace import traces
from orchestrator.author.check.flow.values import Const, Setting, options
from orchestrator.author.check.registry import rule
from orchestrator.author.check.runner import Runner
from orchestrator.author.check.source import dotted

_DEBUGGING = frozenset(
    {
        *("print", "breakpoint", "pprint.pprint", "pprint.pp", "rich.print", "icecream.ic"),
        *("torch.set_printoptions", "torch.autograd.set_detect_anomaly", "traceback.print_exc"),
        *("sys.stdout.write", "sys.stderr.write", "logging.debug", "logging.basicConfig"),
        *("numpy.set_printoptions", "faulthandler.enable"),
    }
)
_DEBUGGERS = frozenset({"pdb", "ipdb", "pudb", "icecream", "web_pdb", "debugpy", "pydevd"})
# Never an operator's library, however they are imported.
_TOOLS = frozenset(
    {
        *("numpy", "pandas", "scipy", "sklearn", "matplotlib", "seaborn", "plotly", "PIL", "cv2"),
        *("requests", "httpx", "tqdm", "einops", "tabulate", "rich", "yaml", "psutil", "pytest"),
    }
)
_WRAPPER = "mcoplib_mxbenchmark_op_wrapper"


@rule(
    "debug-left",
    "error",
    why="Output of a runner mixes with the markers that scripts read, and costs time where it is "
    "measured.",
    fix="remove it",
    fixable=True,
)
def debug_left(benchmark: Benchmark) -> Iterator[Hit]:
    """``print``, a debugger or another help of debugging is left in the runner."""
    runner = benchmark.runner
    if runner is None:
        return
    source = runner.source
    for call in runner.calls():
        name = _full_name(runner, call.func)
        if name in _DEBUGGING or (name or "").split(".")[0] in _DEBUGGERS or _debug_log(call):
            statement = source.parent(call)
            edit = source.removing(statement) if isinstance(statement, ast.Expr) else None
            shown = ast.unparse(call.func)
            yield Hit(source.at(call), f"{shown}() is left in the runner", edit=edit)
    for statement, module in _imports(runner):
        if module.split(".")[0] in _DEBUGGERS:
            edit = source.removing(statement) if len(statement.names) == 1 else None
            yield Hit(source.at(statement), f"{module} is imported for debugging", edit=edit)


def _full_name(runner: Runner, node: ast.expr) -> str | None:
    """The dotted name of what is called, through imports; None for a name of the runner's own."""
    name = dotted(node)
    if name is None:
        return None
    first, _, rest = name.partition(".")
    if first in runner.source.functions:
        return None
    found = runner.source.imports.get(first, first)
    if isinstance(node, ast.Name) and first not in runner.source.imports:
        # Another name for it: p = print.
        behind = runner.source.value_of(node)
        return dotted(behind) if isinstance(behind, ast.Name) else first
    return f"{found}.{rest}" if rest else found


def _debug_log(call: ast.Call) -> bool:
    name = dotted(call.func) or ""
    return name.split(".")[0] in ("logger", "log", "_logger", "LOG") and name.endswith(".debug")


@rule(
    "blocking-timeout",
    "error",
    why="With -1 nvbench waits for ever: an operator that blocks hangs testall until its timeout.",
    fix="remove the line, the default is 15 s",
    fixable=True,
)
def blocking_timeout(benchmark: Benchmark) -> Iterator[Hit]:
    """``set_blocking_kernel_timeout`` is given a negative number."""
    runner = benchmark.runner
    if runner is None or "set_blocking_kernel_timeout" not in runner.source.text:
        return
    told: set[ast.AST] = set()
    for event in traces(runner).setup.events:
        if not event.name.endswith(".set_blocking_kernel_timeout"):
            continue
        given = [*event.args[-1:], *event.kwargs.values()]
        found = [n for v in given for o in options(v) for n in _values(benchmark, o)]
        if any(number < 0 for number in found) and event.node not in told:
            told.add(event.node)
            yield _endless(runner, event.node)
    for call in runner.calls():
        if (
            call not in told
            and isinstance(call.func, ast.Attribute)
            and call.func.attr == "set_blocking_kernel_timeout"
        ):
            given_nodes = [*call.args, *(word.value for word in call.keywords)]
            literal = [v for node in given_nodes for v in benchmark.values(node)]
            if any(isinstance(v, int | float) and v < 0 for v in literal):
                yield _endless(runner, call)


def _endless(runner: Runner, call: ast.AST) -> Hit:
    statement = runner.source.parent(call)
    edit: Edit | None = None
    if isinstance(statement, ast.Expr):
        edit = runner.source.removing(statement)
    return Hit(runner.source.at(call), "waits for a blocked kernel without end", edit=edit)


def _values(benchmark: Benchmark, value: object) -> list[float]:
    values: list[object] = []
    if isinstance(value, Const):
        values = [value.value]
    elif isinstance(value, Setting):
        values = list(benchmark.config.values(value.key))
        if not values and isinstance(value.default, Const):
            values = [value.default.value]
    return [float(v) for v in values if isinstance(v, int | float) and not isinstance(v, bool)]


# Imports.


def _modules(statement: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(statement, ast.Import):
        return [name.name for name in statement.names]
    return ["." * statement.level + (statement.module or "")]


def _imports(runner: Runner) -> Iterator[tuple[ast.Import | ast.ImportFrom, str]]:
    plain, parts = runner.source.walk(ast.Import), runner.source.walk(ast.ImportFrom)
    statements: list[ast.Import | ast.ImportFrom] = [*plain, *parts]
    for statement in statements:
        for module in _modules(statement):
            yield statement, module


def _local(benchmark: Benchmark, module: str) -> bool:
    """Whether a module of the tree itself is meant."""
    if module.startswith("."):
        return True
    first = module.split(".")[0]
    folders = (benchmark.tree.folder, benchmark.runner_path.parent)
    return any(
        (folder / f"{first}.py").is_file() or (folder / first).is_dir() for folder in folders
    )


@rule(
    "foreign-import",
    "error",
    why="Hosts have torch and the operator's framework; what else is imported is missing on some.",
    fix="do it with torch, or with Python's own modules",
)
def foreign_import(benchmark: Benchmark) -> Iterator[Hit]:
    """Something is imported beyond torch, the operator's framework and Python's own modules."""
    runner = benchmark.runner
    if runner is None:
        return
    known = (
        sys.stdlib_module_names
        | FRAMEWORKS
        | _DEBUGGERS
        | {"torch", "cuda", _WRAPPER, "harness", *_operators(benchmark)}
    )
    for statement, module in _imports(runner):
        first = module.split(".")[0]
        # In try, it may be the library that registers the operator.
        registers = first not in _TOOLS and _guarded(runner, statement)
        if first and first not in known and not registers and not _local(benchmark, module):
            yield Hit(runner.source.at(statement), f"imports {first}")


def _guarded(runner: Runner, statement: ast.stmt) -> bool:
    return any(
        isinstance(found, ast.Try) and statement in found.body
        for found in runner.source.ancestors(statement)
    )


def _operators(benchmark: Benchmark) -> set[str]:
    """The packages that hold what is launched."""
    runner = benchmark.runner
    if runner is None:
        return set()
    # Also what a method of the runner's calls that is launched.
    launched = [e.name for e in traces(runner).setup.of("launch")]
    launched += [name for name in traces(runner).operators if isinstance(name, str)]
    # A namespace is usually called like the package that registers it.
    return {name.removeprefix("torch.ops.").split(".")[0] for name in launched}


@rule(
    "local-import",
    "warning",
    why="An established checkout is sent config/ and runners/ alone; a runner stands alone.",
    fix="write what is needed into the runner",
)
def local_import(benchmark: Benchmark) -> Iterator[Hit]:
    """A module of the tree is imported."""
    runner = benchmark.runner
    if runner is None:
        return
    for statement, module in _imports(runner):
        first = module.split(".")[0]
        if (
            first not in (_WRAPPER, "harness")
            and first not in sys.stdlib_module_names
            and _local(benchmark, module)
        ):
            yield Hit(runner.source.at(statement), f"imports {module} of the tree")


@rule(
    "unguarded-import",
    "warning",
    why="Without the library the module cannot be loaded: ERROR, where it should be UNAVAILABLE.",
    fix="put it into try, with `except ImportError: pass`",
)
def unguarded_import(benchmark: Benchmark) -> Iterator[Hit]:
    """An operator library is imported outside ``try``."""
    runner = benchmark.runner
    if runner is None:
        return
    for statement, module in _imports(runner):
        guarded = any(
            isinstance(a, ast.Try | ast.FunctionDef | ast.If)
            for a in runner.source.ancestors(statement)
        )
        if module.split(".")[0] in FRAMEWORKS - {"triton"} and not guarded:
            yield Hit(runner.source.at(statement), f"imports {module} outside try")
