"""What calls do: torch's makers and copies, generators, comparisons, operators, the base class."""

from __future__ import annotations

import ast
from typing import cast

from orchestrator.author.check.flow import constants, torch_model
from orchestrator.author.check.flow.expressions import spread
from orchestrator.author.check.flow.frames import CONTEXT, SELF_DTYPE, STREAM, Event
from orchestrator.author.check.flow.tensor_calls import (
    Arguments,
    TensorCalls,
    seen,
)
from orchestrator.author.check.flow.values import (
    NONE,
    UNKNOWN,
    Const,
    Cosine,
    Frame,
    Function,
    Generator,
    Mapping,
    Method,
    Name,
    Opaque,
    Partial,
    Place,
    Sequence,
    Shape,
    Storage,
    Symbol,
    Tensor,
    Text,
    Value,
    either,
    options,
    tensors,
    tokens,
)

_NOT_OPERATORS = ("torch.ops.load_library", "torch.ops.import_module")
# Keep what they are told of a cosine similarity.
_SAME_COSINE = frozenset({"item", "mean", "min", "float", "abs", "cpu", "double", "detach"})
COMPARISONS = frozenset(
    {
        *(f"self.verify.{name}" for name in ("exact", "close", "cosine", "topk", "unordered")),
        *(f"torch.{name}" for name in ("equal", "allclose", "isclose", "eq", "ne", "dist", "sub")),
        *(f"torch.testing.{name}" for name in ("assert_close", "assert_allclose")),
        *(f"torch.nn.functional.{name}" for name in ("mse_loss", "l1_loss")),
        "self.check_diff",
    }
)


class Calls(TensorCalls):
    """Evaluates calls; ``invoke`` runs functions of the runner."""

    def call(self, node: ast.Call, frame: Frame) -> Value:
        if isinstance(node.func, ast.Name) and node.func.id == "super" and not node.args:
            return Name("super")
        callee = self.evaluate(node.func, frame)
        args, kwargs, more = self._arguments(node, frame)
        return either(self.apply(o, (args, kwargs, more), node) for o in options(callee))

    def _call(self, node: ast.Call, frame: Frame) -> Value:
        return self.call(node, frame)

    def _arguments(self, node: ast.Call, frame: Frame) -> Arguments:
        args: list[Value] = []
        kwargs: dict[str, Value] = {}
        more = False
        for argument in node.args:
            if isinstance(argument, ast.Starred):
                items, unknown = spread(self.evaluate(argument.value, frame))
                args += items
                more |= unknown
            else:
                args.append(self.evaluate(argument, frame))
        for word in node.keywords:
            value = self.evaluate(word.value, frame)
            if word.arg is not None:
                kwargs[word.arg] = value
            elif isinstance(value, Mapping):
                more |= value.more
                for name, given in value.items.items():
                    if isinstance(name, Const):
                        kwargs[str(name.value)] = given
            else:
                more = True
        return args, kwargs, more

    def apply(self, callee: Value, given: Arguments, node: ast.AST) -> Value:
        """Call ``callee``."""
        args, kwargs, more = given
        if isinstance(callee, Partial):
            # A launcher that is called at once is given nbench's launch.
            own = [] if callee.launcher else args
            return self.apply(
                callee.callee, (callee.args + own, {**callee.kwargs, **kwargs}, more), node
            )
        if isinstance(callee, Function):
            return self._own_function(callee, given, node)
        if isinstance(callee, Method):
            return self._method(callee, given, node)
        if isinstance(callee, Name):
            return self._named(callee.path, given, node)
        event = self.machine.event(node, "?", args, kwargs)
        event.open = True
        return Opaque(tokens((callee, *args, *kwargs.values())))

    # Functions of the runner.

    def _own_function(self, callee: Function, given: Arguments, node: ast.AST) -> Value:
        args, kwargs, more = given
        operator = callee.node in self.machine.operators
        event = self.machine.event(node, f"def:{callee.name}", args, kwargs)
        event.open = more
        if _is_kernel(callee.node):
            return self._operator(event, Name("kernel"))
        result = self.invoke(callee, args, node, kwargs, more)
        if operator:
            return self._operator(event, result)
        event.result = result
        return result

    def invoke(
        self,
        function: Function,
        args: list[Value],
        node: ast.AST,
        kwargs: dict[str, Value] | None = None,
        more: bool = False,
    ) -> Value:
        raise NotImplementedError

    # Things known by name.

    def _named(self, path: str, given: Arguments, node: ast.AST) -> Value:
        args, kwargs, more = given
        machine = self.machine
        if path in ("config.get", "config.pop", "config.setdefault") and args:
            default = args[1] if len(args) > 1 else kwargs.get("default")
            return self.setting(args[0], default, node)
        if path.startswith("super."):
            return self._super(path.removeprefix("super."), given, node)
        builtin = getattr(self, f"_builtin_{path}", None) if "." not in path else None
        if builtin is not None and path not in self.source.imports:
            found = cast("Value | None", builtin(args, kwargs, node))
            if found is not None:
                return found
        event = machine.event(node, path, args, kwargs)
        event.open = more
        event.result = self._known(path, event)
        return event.result

    def _known(self, path: str, event: Event) -> Value:
        machine = self.machine
        args, kwargs = event.args, event.kwargs
        if path in COMPARISONS or path.endswith(".cosine_similarity"):
            event.compared = (seen(event, 0), seen(event, 1))
            if "cosine_similarity" in path:
                return Cosine()
        if path in ("self.generator", "torch.Generator"):
            seeded = event.argument(1, "seed") if path == "self.generator" else None
            return Generator(seeded, event.node, machine.phase)
        last = path.rsplit(".", 1)[-1]
        if path in torch_model.SEEDERS or last in torch_model.SEEDING_NAMES:
            machine.global_seed = event.argument(0, "seed") or UNKNOWN
            return Opaque()
        if path in machine.operators or is_operator(path, event):
            return self._operator(event, None)
        if path == "self.make_launcher" and len(args) > 1:
            return Partial(args[1], args[2:], kwargs, launcher=True)
        if path == "functools.partial" and args:
            return Partial(args[0], args[1:], kwargs)
        if path in ("self.device", "torch.device"):
            host = args and isinstance(args[0], Const) and str(args[0].value).startswith("cpu")
            return Const("cpu") if host else Name("device")
        if path in torch_model.STREAMS:
            return STREAM
        if path in torch_model.CONTEXTS:
            return CONTEXT
        if path == "torch.cuda.set_stream" or (path == "context.enter_context" and STREAM in args):
            machine.streams += 1
            return NONE
        name = torch_model.torch_name(path)
        if name in torch_model.MAKERS:
            return self._maker(name or "", event, None)
        return self._computing(path, event)

    def _computing(self, path: str, event: Event) -> Value:
        """Any other function: what it returns depends on its tensors; ``out=`` is written."""
        machine = self.machine
        given = [*event.args, *event.kwargs.values()]
        out = event.kwargs.get("out")
        if out is not None:
            for target in tensors(out):
                machine.written(target.storage, *[v for v in given if v is not out])
            return out
        if not tensors(given):
            return Opaque(tokens(given))
        if path.startswith(("self.", "state.")) or path in ("print", "isinstance", "hasattr"):
            return Opaque()
        return machine.computed(event.node, *given)

    def _super(self, name: str, given: Arguments, node: ast.AST) -> Value:
        """A method of a base class: one of this module, else of the suite's base."""
        args, kwargs, more = given
        running = self.machine.running[-1] if self.machine.running else None
        lineage = self.runner.lineage
        owner = self.source.parent(running.node) if running is not None else None
        start = lineage.index(owner) + 1 if owner in lineage else 1
        for cls in lineage[start:]:
            for statement in cls.body:
                if isinstance(statement, ast.FunctionDef) and statement.name == name:
                    return self.invoke(Function(statement, None, True), args, node, kwargs, more)
        if name == "__init__":
            return NONE
        path = f"self.{name}" if self.runner.complete else f"super.{name}"
        event = self.machine.event(node, path, args, kwargs)
        event.open = more
        return self._known(path, event) if self.runner.complete else Opaque()

    # Operators.

    def _operator(self, event: Event, result: Value | None) -> Value:
        """An operator call: every tensor it is given may be another afterwards."""
        event.operator = True
        given = tensors([*event.args, *event.kwargs.values()])
        for tensor in given:
            tensor.storage.version += 1
        if result is None or tensors(result):
            place: Place | None = given[0].storage.place if given else None
            old = [tensor.storage for tensor in given]
            if result is not None and all(t.storage in old for t in tensors(result)):
                event.result = result  # in place, and returned
            else:
                event.result = Tensor(Storage("result", event.node, place))
        else:
            event.result = result
        return event.result

    def _method(self, callee: Method, given: Arguments, node: ast.AST) -> Value:
        args, kwargs, _more = given
        owner, name = callee.owner, callee.name
        if isinstance(owner, Tensor):
            return self._tensor_method(owner, name, given, node)
        if isinstance(owner, Generator):
            return self._generator_method(owner, name, args, kwargs, node)
        if isinstance(owner, Cosine):
            return owner if name in _SAME_COSINE else UNKNOWN
        if isinstance(owner, Const | Text) and name in torch_model.TEXT_METHODS:
            return constants.text_method(name, owner, args, node)
        if isinstance(owner, Const | Text) and name == "join" and args:
            return constants.joined(owner, args[0], node)
        if isinstance(owner, Const | Text) and name == "format":
            holds = any(constants.comma(v) for v in (owner, *args, *kwargs.values()))
            return Text(holds, node)
        if isinstance(owner, Shape) and name == "numel":
            return Symbol(("numel", id(owner.storage)), frozenset({owner.storage}), True)
        if isinstance(owner, Sequence | Mapping):
            return self._container_method(owner, name, args)
        event = self.machine.event(node, f"?.{name}", [owner, *args], kwargs)
        event.open = True
        return Opaque(tokens((owner, *args, *kwargs.values())))

    def _generator_method(
        self,
        owner: Generator,
        name: str,
        args: list[Value],
        kwargs: dict[str, Value],
        node: ast.AST,
    ) -> Value:
        if name == "manual_seed":
            owner.seed = args[0] if args else kwargs.get("seed", UNKNOWN)
            owner.node, owner.phase = node, self.machine.phase
            return owner
        return UNKNOWN

    def _container_method(self, owner: Sequence | Mapping, name: str, args: list[Value]) -> Value:
        if isinstance(owner, Sequence):
            if name in ("append", "add", "insert"):
                owner.add(args[-1:])
            elif name in ("extend", "update"):
                owner.add(*spread(args[0]) if args else ([],))
            elif name in ("index", "count"):
                return UNKNOWN
            elif name == "pop":
                owner.more = True
                return either(owner.items)
            return NONE
        if name == "get":
            if args and args[0] in owner.items:
                return owner.items[args[0]]
            if args and isinstance(args[0], Const | Name) and args[0] != SELF_DTYPE:
                return UNKNOWN if owner.more else args[1] if len(args) > 1 else NONE
            return Opaque(tokens((owner, *args)))
        pairs: list[Value] = [Sequence([k, v]) for k, v in owner.items.items()]
        if name in ("items", "values", "keys"):
            lists = {
                "items": pairs,
                "values": list(owner.items.values()),
                "keys": list(owner.items),
            }
            return Sequence(lists[name], owner.more)
        if name == "update" and args and isinstance(args[0], Mapping):
            owner.items.update(args[0].items)
            owner.more |= args[0].more
            return NONE
        owner.more = True
        return Opaque(tokens(owner))


def is_operator(path: str, event: Event) -> bool:
    """Whether a call is an operator's: torch.ops, or a library's that is given tensors."""
    if path.startswith("torch.ops."):
        return path not in _NOT_OPERATORS and "._schema" not in path
    if path.startswith("kernel:"):
        return True
    library = path.split(".")[0] in torch_model.FRAMEWORKS and not path.startswith("triton.")
    return library and bool(tensors([*event.args, *event.kwargs.values()]))


def _is_kernel(node: ast.AST) -> bool:
    decorators = getattr(node, "decorator_list", [])
    return any(ast.unparse(d).split("(")[0].startswith("triton.") for d in decorators)
