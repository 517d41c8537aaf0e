"""What torch's makers and the methods of tensors do to memory, places and random numbers."""

from __future__ import annotations

import ast

from orchestrator.author.check.flow import torch_model
from orchestrator.author.check.flow.builtin_calls import Builtins
from orchestrator.author.check.flow.frames import SELF_DTYPE, Event, Seen
from orchestrator.author.check.flow.values import (
    NONE,
    UNKNOWN,
    Const,
    Generator,
    Kind,
    Name,
    Opaque,
    Place,
    Sequence,
    Shape,
    Storage,
    Symbol,
    Tensor,
    Text,
    Value,
    key,
    tensors,
    tokens,
)

Arguments = tuple[list[Value], dict[str, Value], bool]


class TensorCalls(Builtins):
    """Makes, copies and fills tensors."""

    def _maker(self, name: str, event: Event, owner: Tensor | None) -> Value:
        kind: Kind = "filled"
        if name in torch_model.RANDOM:
            kind = "random"
        elif name in torch_model.EMPTY:
            kind = "empty"
        elif name in torch_model.FROM_HOST:
            kind = "host"
        made = Storage(kind, event.node)
        like = owner
        if like is None and name in torch_model.LIKE and event.args:
            first = event.args[0]
            like = first if isinstance(first, Tensor) else None
        dtype = event.kwargs.get("dtype")
        made.dtype = dtype if dtype is not None else like.storage.dtype if like else None
        made.place = self._place(event, like, name)
        made.tiny = _tiny(name, event.args, event.kwargs)
        given = tensors([*event.args, *event.kwargs.values()])
        if kind == "host" and given:
            made.kind, made.content = "computed", tokens([*event.args])
        event.made = made
        if kind == "random":
            self._drawn(event)
        out = event.kwargs.get("out")
        return out if out is not None else Tensor(made)

    def _place(self, event: Event, like: Tensor | None, name: str) -> Place | None:
        device = event.kwargs.get("device")
        if device is None or device == NONE:
            if event.open:
                return None
            return like.storage.place if like else "host" if name not in torch_model.LIKE else None
        return place_of(device)

    def _drawn(self, event: Event) -> None:
        event.random = True
        generator = event.kwargs.get("generator")
        if generator is None and event.open:
            event.seed = UNKNOWN
        elif generator is None or generator == NONE:
            event.seed = self.machine.global_seed
        elif isinstance(generator, Generator):
            event.generator, event.seed = generator, generator.seed
        else:
            event.seed = UNKNOWN

    def _tensor_method(self, owner: Tensor, name: str, given: Arguments, node: ast.AST) -> Value:
        args, kwargs, more = given
        machine, storage = self.machine, owner.storage
        if name in torch_model.SIZES:
            return self._size(owner, name, args, node)
        event = machine.event(node, f"tensor.{name}", [owner, *args], kwargs)
        event.open = more
        if name in torch_model.VIEWS:
            return Tensor(storage, owner.part)
        if name in torch_model.COPIES:
            event.result = self._copied(owner, name, args, kwargs, event)
            return event.result
        if name in torch_model.RANDOM_IN_PLACE:
            storage.kind = "random" if storage.version == 0 else storage.kind
            event.made = storage
            self._drawn(event)
            return owner
        if name in torch_model.MAKERS:
            return self._maker(name, event, owner)
        if name in ("equal", "allclose", "isclose", "eq", "ne", "sub", "dist"):
            event.compared = (seen(event, 0), seen(event, 1))
        if name.endswith("_") and not name.startswith("_"):
            whole = name == "copy_"
            machine.written(storage, *args, *kwargs.values(), whole=whole and owner.part is None)
            return owner
        if name in ("item", "tolist"):
            return Opaque()
        event.result = machine.computed(node, owner, *args, *kwargs.values())
        return event.result

    def _size(self, owner: Tensor, name: str, args: list[Value], node: ast.AST) -> Value:
        storage = owner.storage
        of = frozenset({storage})
        if name == "size" and not args:
            return Shape(storage)
        if name == "element_size":
            dtype = storage.dtype
            told = ("itemsize", dtype.path) if isinstance(dtype, Name) else (name, id(storage))
            return Symbol(told, of, True)
        if name in ("numel", "nelement", "nbytes"):
            return Symbol(("numel", id(storage), owner.part), of, owner.part is None)
        return Symbol((name, id(storage), *(key(a) for a in args)), of)

    def _copied(
        self,
        owner: Tensor,
        name: str,
        args: list[Value],
        kwargs: dict[str, Value],
        event: Event,
    ) -> Value:
        made = self.machine.computed(event.node, owner, copy=owner.part is None)
        event.made = made.storage
        if name in torch_model.COPY_DTYPES:
            made.storage.dtype = Name(torch_model.COPY_DTYPES[name])
        if name in ("cpu", "numpy", "pin_memory"):
            made.storage.place = "host"
        elif name in ("cuda", "npu", "musa"):
            made.storage.place = "device"
        for word in (*args, *kwargs.values()) if name in ("to", "type") else ():
            if is_dtype(word):
                made.storage.dtype = word
            elif isinstance(word, Tensor):
                made.storage.dtype, made.storage.place = word.storage.dtype, word.storage.place
            elif isinstance(word, Const) and isinstance(word.value, bool):
                continue
            elif is_device(word):
                made.storage.place = place_of(word)
            else:
                made.storage.place, made.storage.dtype = None, None
        return made


def seen(event: Event, position: int) -> Seen | None:
    """The tensor that a comparison is given first (0) or second (1)."""
    words = (
        ("out", "input", "actual", "indices", "x1"),
        ("ref", "other", "expected", "scores", "x2"),
    )
    for word in words[position]:
        if word in event.kwargs:
            return Seen.of(event.kwargs[word])
    return Seen.of(event.args[position]) if position < len(event.args) else None


def is_dtype(value: Value) -> bool:
    """Whether ``value`` is certainly a dtype."""
    if isinstance(value, Name):
        path = torch_model.DTYPE_ALIASES.get(value.path, value.path)
        return path in torch_model.SIZE_OF or value == SELF_DTYPE or path.startswith("torch.[")
    return False


def is_device(value: Value) -> bool:
    """Whether ``value`` is certainly a device: a text such as ``cuda:0``, or made as one."""
    if isinstance(value, Const):
        return isinstance(value.value, str | int)
    # A number is its index: dev_id.
    return isinstance(value, Text | Symbol) or value == Name("device")


def place_of(device: Value) -> Place | None:
    """Host or device; None where it cannot be told."""
    if isinstance(device, Const):
        return "host" if str(device.value).startswith("cpu") else "device"
    return "device" if is_device(device) else None


def _tiny(name: str, args: list[Value], kwargs: dict[str, Value]) -> bool:
    """Whether a maker's size is certainly 0 or 1."""
    if name in ("tensor", "as_tensor", "scalar_tensor"):
        items = args[0].items if args and isinstance(args[0], Sequence) else None
        return (items is None and bool(args)) or (items is not None and len(items) <= 1)
    sizes: list[Value] = []
    if name in ("full", "new_full"):
        args = args[:1]
    for argument in [*args, *([kwargs["size"]] if "size" in kwargs else [])]:
        sizes += argument.items if isinstance(argument, Sequence) else [argument]
    if name in torch_model.LIKE and not name.startswith("new_"):
        return False
    return bool(sizes) and all(isinstance(size, Const) and size.value in (0, 1) for size in sizes)
