"""Calls: of the checkout's functions and classes, which are gone into, and of everything else."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import Any

from orchestrator.author.halops.read import library
from orchestrator.author.halops.read.attributes import CONFIG_NAME, Attributes
from orchestrator.author.halops.read.values import (
    NOTHING,
    Class,
    Config,
    Dtype,
    Function,
    Method,
    Object,
    Outside,
    Unknown,
    fields_of,
    joined,
    known,
    truth,
    united,
)

_LOADERS = ("safe_load", "full_load", "unsafe_load")
_TAKEN = frozenset(("functools.wraps", "functools.lru_cache", "functools.cache"))


class Calls(Attributes):
    """``call`` and what it may meet."""

    def _Call(self, node: ast.Call) -> Any:
        target = self.evaluate(node.func)
        if isinstance(target, Method) and isinstance(target.of, Config):
            return self._config_method(target.of, target.name, node)
        args: list[Any] = []
        for each in node.args:
            value = self.evaluate(each.value if isinstance(each, ast.Starred) else each)
            if not isinstance(each, ast.Starred):
                args.append(value)
            elif isinstance(value, Unknown):
                args += self._spread(value, target, len(args), node)
            else:
                args += self.iterate(value, each)
        named: dict[str, Any] = {}
        for keyword in node.keywords:
            value = self.evaluate(keyword.value)
            if keyword.arg is not None:
                named[keyword.arg] = value
            elif isinstance(value, dict):
                named.update((key, each) for key, each in value.items() if isinstance(key, str))
            elif isinstance(value, Config):
                named[""] = value
        self.calling = node
        return self.call(target, args, named, node)

    def _spread(self, value: Unknown, target: Any, given: int, node: ast.Call) -> list[Any]:
        """A value that is not known, spread over the parameters that are left: ``make(*shape)``."""
        if not isinstance(target, Function):
            return [Unknown(value.fields, dtype=value.dtype)]
        spec = target.node.args
        names = [each.arg for each in (*spec.posonlyargs, *spec.args)]
        named = {keyword.arg for keyword in node.keywords}
        left = [name for name in names[given + (target.bound is not None) :] if name not in named]
        if value.element is not None:
            self.watch.columns.setdefault(value.element, tuple(left))
        return [Unknown(value.fields, dtype=value.dtype)] * len(left)

    def _config_method(self, config: Config, name: str, node: ast.Call) -> Any:
        args = node.args
        if name in ("get", "pop", "setdefault") and args:
            default = args[1] if len(args) > 1 else None
            default = next((k.value for k in node.keywords if k.arg == "default"), default)
            return self.read(config, self.evaluate(args[0]), "get", node, default)
        values = [self.evaluate(each) for each in args]
        for keyword in node.keywords:
            value = self.evaluate(keyword.value)
            if name == "update" and keyword.arg:
                self.write(config, keyword.arg, value, self.place(node))
        if name == "update" and values and isinstance(values[0], dict):
            for key, value in values[0].items():
                self.write(config, key, value, self.place(node))
        return config.copy() if name == "copy" else NOTHING

    def call(self, target: Any, args: list[Any], named: dict[str, Any], node: ast.AST) -> Any:
        """What a call gives."""
        if isinstance(target, Function):
            return self.enter(target, args, named)
        if isinstance(target, Class):
            return self._make(target, args, named, node)
        if isinstance(target, Object):
            inner = self.attribute(target, "__call__", node)
            return self.call(inner, args, named, node) if isinstance(inner, Function) else NOTHING
        if isinstance(target, Method) and target.of is not None:
            return self._method(target, args, named, node)
        if isinstance(target, Method):
            return self._builtin(target.name, args, named, node)
        if isinstance(target, Outside):
            return self._outside(target.name, args, named, node)
        if isinstance(target, Unknown):
            return self._of_unknown(target, args, named)
        return self._unknown(target, args, named)

    def by_name(self, target: Function, given: int = 0) -> dict[str, Any]:
        """Arguments for a call that is not seen, by the names of what the caller knows."""
        named: dict[str, Any] = {}
        spec = target.node.args
        for each in [*spec.posonlyargs, *spec.args][given + (target.bound is not None) :]:
            if CONFIG_NAME.match(each.arg):
                named[each.arg] = self.config
                continue
            try:
                named[each.arg] = self.lookup(each.arg)
            except KeyError:
                continue
        return named

    def _make(self, of: Class, args: list[Any], named: dict[str, Any], node: ast.AST) -> Any:
        if any(isinstance(base, Outside) and "Enum" in base.name for base in of.bases):
            return args[0] if args else NOTHING  # its members stand for their values
        made = Object(of)
        try:
            start = of.find("__init__")
        except KeyError:
            start = None
        if isinstance(start, Function):
            self.call(self._bind(start, made), args, named, node)
            return made
        names = of.annotated()
        for name in names:
            if name in of.names:
                made.attributes[name] = of.names[name]
        made.attributes.update(zip(names, args, strict=False))
        made.attributes.update(named)
        after = of.names.get("__post_init__")
        if isinstance(after, Function):
            self.call(self._bind(after, made), [], {}, node)
        return made

    def _method(self, target: Method, args: list[Any], named: dict[str, Any], node: ast.AST) -> Any:
        of, name = target.of, target.name
        if isinstance(of, dict):
            return self._of_dict(of, name, args, named, node)
        if isinstance(of, Function):
            return NOTHING
        if name == "sort" and isinstance(of, list):
            if known(of) and not named:
                of.sort()
            return None
        found = library.method(of, name, args)
        return Unknown(united([of, *args])) if found is NotImplemented else found

    def _of_unknown(self, of: Unknown, args: list[Any], named: dict[str, Any]) -> Any:
        dtypes = [each for each in (*args, *named.values()) if isinstance(each, Dtype)]
        if of.name in library.KEEPING_METHODS:
            return replace(of, name="")
        made = self._unknown(of, args, named)
        dtype = dtypes[0] if dtypes else of.dtype
        return Unknown(made.fields | of.fields, dtype=dtype)

    def _of_dict(
        self, of: dict[Any, Any], name: str, args: list[Any], named: dict[str, Any], node: ast.AST
    ) -> Any:
        if name == "get" and args:
            self._choices(args[0], of, node)
            default = args[1] if len(args) > 1 else None
            if not known(args[0]):
                return joined([*of.values(), default]) if of else Unknown(fields_of(args[0]))
            try:
                return of.get(args[0], default)
            except TypeError:
                return NOTHING
        if name == "update":
            for each in args:
                if isinstance(each, dict):
                    self.merge(of, each, self.place(node))
            for key, value in named.items():
                self.put(of, key, value, self.place(node))
            return None
        if name == "setdefault" and args and known(args[0]):
            if args[0] not in of:
                self.put(of, args[0], args[1] if len(args) > 1 else None, self.place(node))
            return of[args[0]]
        if name == "pop" and args and known(args[0]):
            gone = self.unsure == 0
            return (of.pop if gone else of.get)(args[0], args[1] if len(args) > 1 else NOTHING)
        if name == "copy":
            made: dict[Any, Any] = {}
            self.merge(made, of, self.place(node))
            return made
        views = {"keys": list(of), "values": list(of.values()), "items": list(of.items())}
        return views.get(name, NOTHING)

    def _builtin(self, name: str, args: list[Any], named: dict[str, Any], node: ast.AST) -> Any:
        first = args[0] if args else None
        if name == "getattr" and len(args) > 1:
            return self._getattr(args, node)
        if name == "dict":
            return self._dict(args, named, node)
        if name in ("list", "tuple", "sorted", "set", "iter") and isinstance(first, dict):
            args = [list(first), *args[1:]]
        if name == "isinstance" and len(args) == 2:
            return self._isinstance(first, args[1])
        if name == "setattr" and len(args) == 3 and isinstance(first, Object):
            if isinstance(args[1], str):
                first.attributes[args[1]] = args[2]
            return None
        if name in ("map", "filter") and len(args) > 1:
            items = self.iterate(args[1], node)
            results = [self.call(first, [each], {}, node) for each in items]
            if name == "map":
                return results
            return [e for e, kept in zip(items, results, strict=True) if truth(kept) is not False]
        if name == "next" and args:
            items = self.iterate(first, node)
            return items[0] if items else (args[1] if len(args) > 1 else NOTHING)
        if name == "callable":
            return isinstance(first, (Function, Class)) or Unknown(fields_of(first))
        if "key" in named:
            known_keys = {key: value for key, value in named.items() if key != "key"}
            return self._by_key(name, args, named["key"], known_keys, node)
        if name in ("zip", "enumerate"):
            args = [self.iterate(e, node) if isinstance(e, Unknown) else e for e in args]
        if name in library.MOVING or name in library.COMPUTING:
            return library.function(name, args, named)
        return self._unknown(None, args, named)

    def _by_key(
        self, name: str, args: list[Any], key: Any, named: dict[str, Any], node: ast.AST
    ) -> Any:
        """``sorted``, ``min`` and ``max`` by what a function says of each."""
        items = self.iterate(args[0], node) if args else []
        keys = [self.call(key, [each], {}, node) for each in items]
        if name not in ("sorted", "min", "max") or not all(known(each) for each in keys):
            return items if name == "sorted" else Unknown(united(items))
        try:
            order = sorted(range(len(items)), key=lambda i: keys[i])
        except TypeError:
            return items
        if truth(named.get("reverse")) or name == "max":
            order = sorted(order, key=lambda i: keys[i], reverse=True)
        return [items[i] for i in order] if name == "sorted" else items[order[0]]

    def _isinstance(self, value: Any, kinds: Any) -> Any:
        wanted = kinds if isinstance(kinds, tuple) else (kinds,)
        types = {"int": int, "float": float, "str": str, "list": list, "tuple": tuple, "dict": dict}
        names = [each.name for each in wanted if isinstance(each, Method) and each.of is None]
        plain = (int, float, str, list, tuple, dict, type(None))
        if isinstance(value, plain) and names and all(each in types for each in names):
            return isinstance(value, tuple(types[each] for each in names))
        if isinstance(value, Config):
            return "dict" in names or NOTHING
        return Unknown(fields_of(value))

    def _dict(self, args: list[Any], named: dict[str, Any], node: ast.AST) -> Any:
        first = args[0] if args else None
        if isinstance(first, Config):
            made = first.copy()
            for key, value in named.items():
                self.write(made, key, value, self.place(node))
            return made
        found: dict[Any, Any] = {}
        if isinstance(first, dict):
            self.merge(found, first, self.place(node))
        elif isinstance(first, (list, tuple)):
            for each in first:
                if isinstance(each, (list, tuple)) and len(each) == 2 and known(each[0]):
                    self.put(found, each[0], each[1], self._origin(each[1], node))
        for key, value in named.items():
            if isinstance(value, Config) and not key:
                return value.copy()
            self.put(found, key, value, self.place(node))
        return found

    def _outside(self, name: str, args: list[Any], named: dict[str, Any], node: ast.AST) -> Any:
        first = args[0] if args else None
        last = name.rpartition(".")[2]
        if name == "functools.partial" and isinstance(first, Function):
            preset = (tuple(args[1:]), tuple(named.items()))
            return replace(first, preset=preset)
        if name in _TAKEN or "dataclass" in name:
            return first if isinstance(first, (Function, Class)) else Outside("identity")
        if name == "identity":
            return first
        if name.startswith(("copy.", "collections.")) and isinstance(first, Config):
            return first.copy()
        if last in ("OrderedDict", "MappingProxyType", "defaultdict"):
            return self._dict([each for each in args if isinstance(each, (dict, list))], {}, node)
        if last in _LOADERS or name in ("yaml.load", "json.load", "json.loads"):
            return self.config
        if name == "importlib.import_module" and isinstance(first, str):
            return self.module(first)
        if name in library.MOVING or name in library.COMPUTING:
            if name.startswith("itertools.") and "repeat" not in named:
                args = [self.iterate(e, node) if isinstance(e, Unknown) else e for e in args]
            return library.function(name, args, named)
        dtype = named.get("dtype")
        if name.startswith("torch.") and isinstance(dtype, (Dtype, Unknown)):
            fields = fields_of(dtype) | self._unknown(None, args, named).fields
            return Unknown(fields, dtype=dtype)
        return self._unknown(None, args, named)

    def _unknown(self, target: Any, args: list[Any], named: dict[str, Any]) -> Unknown:
        """A call of what is not known: functions handed to it are taken to be called."""
        self.calling = None
        for each in [*args, *named.values()]:
            if isinstance(each, Function) and not each.preset[1]:
                self.enter(each, [], self.by_name(each, len(each.preset[0])))
        tensors = [each.dtype for each in args if isinstance(each, Unknown)]
        dtype = tensors[0] if tensors else None
        return Unknown(fields_of(target) | united([*args, *named.values()]), dtype=dtype)
