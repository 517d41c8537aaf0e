"""Statements of a test that a runner has no use for: printing, seeding, skipping, timing."""

from __future__ import annotations

import ast
import copy

from orchestrator.author.trial.scopes import dotted, last_name

_NOISE = frozenset(
    [
        "print",
        "seed_everything",
        "manual_seed",
        "manual_seed_all",
        "set_random_seed",
        "seed_all",
        "set_seed",
        "setup_seed",
        "fix_seed",
        "synchronize",
        "empty_cache",
        "collect",
        "opcheck",
        "check_numerics",
        "reset_peak_memory_stats",
        "set_printoptions",
        "set_device",
        "setup_logger",
        "info",
        "debug",
        "warning",
        "cleanup",
        "init_logger",
        "enable_tf32",
        "simplefilter",
        "filterwarnings",
    ]
)
_SKIPS = frozenset(
    ["skip", "skipTest", "xfail", "importorskip", "exit", "fail", "SkipTest", "_exit"]
)
_DEFAULTS = frozenset(("set_default_device", "set_default_tensor_type", "set_default_dtype"))
_TIMERS = ("time.", "torch.cuda.Event", "timeit.", "triton.testing.")


def _called(node: ast.stmt) -> tuple[str, str]:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        function = node.value.func
        path = dotted(function) or last_name(function)
        return path, path.rpartition(".")[2]
    return "", ""


def is_noise(node: ast.stmt) -> bool:
    """Whether a statement does nothing for the operator's arguments or the reference."""
    if isinstance(node, (ast.Assert, ast.Pass, ast.Raise, ast.Delete, ast.Global)):
        return True
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return True
    path, name = _called(node)
    if name in ("seed", "manual_seed") and path not in (
        "torch.manual_seed",
        "torch.cuda.manual_seed",
        "torch.random.manual_seed",
    ):
        # Of Python, of numpy, of a generator: what it seeds may be used below.
        return False
    if name in _NOISE | _DEFAULTS | _SKIPS or path.startswith(_TIMERS):
        return True
    if path.startswith(
        ("warnings.", "gc.", "logging.", "logger.", "os.environ", "torch.backends.")
    ):
        return True
    if isinstance(node, ast.Assign):
        value = node.value
        if isinstance(value, ast.Call) and (dotted(value.func) or "").startswith(_TIMERS):
            return True
        target = dotted(node.targets[0]) or ""
        return target.startswith("torch.backends.")
    return False


def default_device(node: ast.stmt) -> ast.expr | None:
    """The device that a statement makes the default one."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        call = node.value
        if (dotted(call.func) or "").endswith("set_default_device") and call.args:
            return call.args[0]
    return None


def default_dtype(node: ast.stmt) -> ast.expr | None:
    """The dtype that a statement makes the default one."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        call = node.value
        if (dotted(call.func) or "").endswith("set_default_dtype") and call.args:
            return call.args[0]
    return None


def skip_guard(node: ast.stmt) -> ast.expr | None:
    """The condition under which a statement ends the test without testing anything."""
    if isinstance(node, ast.If) and _gives_up(node.body) and not node.orelse:
        return node.test
    return None


def _gives_up(body: list[ast.stmt]) -> bool:
    for node in body:
        if isinstance(node, (ast.Return, ast.Raise, ast.Continue)):
            if isinstance(node, ast.Return) and node.value is not None:
                return isinstance(node.value, ast.Constant)
            return True
        if _called(node)[1] in _SKIPS:
            return True
        if not is_noise(node):
            return False
    return False


def cleaned(node: ast.stmt) -> ast.stmt | None:
    """``node`` without noise in any of its blocks; None when nothing is left."""
    if is_noise(node):
        return None
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return node
    if not any(hasattr(node, field) for field in ("body", "handlers", "cases")):
        return node
    made = copy.deepcopy(node)
    for field in ("body", "orelse", "finalbody"):
        block = getattr(made, field, None)
        if isinstance(block, list):
            setattr(made, field, _block(block))
    for part in [*getattr(made, "handlers", []), *getattr(made, "cases", [])]:
        part.body = _block(part.body) or [ast.Pass()]
    if not made.body and not getattr(made, "orelse", None):  # type: ignore[attr-defined]
        return None
    if not made.body:  # type: ignore[attr-defined]
        made.body = [ast.copy_location(ast.Pass(), made)]  # type: ignore[attr-defined]
    return made


def _only_fails(node: ast.stmt) -> bool:
    """Whether a statement inside a block skips or fails the test, and does nothing else."""
    ends = (ast.Return, ast.Continue)
    return skip_guard(node) is not None and not any(isinstance(n, ends) for n in ast.walk(node))


def _block(statements: list[ast.stmt]) -> list[ast.stmt]:
    kept = [cleaned(statement) for statement in statements if not _only_fails(statement)]
    return [statement for statement in kept if statement is not None]
