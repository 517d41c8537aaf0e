"""Attributes of modules, objects, classes, dtypes and unknown values; what loops go through."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from typing import Any

from orchestrator.author.halops.read import library
from orchestrator.author.halops.read.expressions import Expressions
from orchestrator.author.halops.read.values import (
    NOTHING,
    Class,
    Config,
    Dtype,
    Function,
    Method,
    Object,
    Outside,
    Source,
    Unknown,
    fields_of,
    united,
)

# Names of torch's dtypes: what getattr(torch, ...) may be asked for.
TORCH_DTYPES = frozenset(
    re.findall(
        r"\w+",
        "float16 half bfloat16 float32 float float64 double float8_e4m3fn float8_e5m2"
        " float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu float4_e2m1fn_x2 uint8 int8 int16 short"
        " int32 int int64 long uint16 uint32 uint64 bool complex64 complex128",
    )
)
CONFIG_NAME = re.compile(r"^_?(?:(?:\w+_)?c(?:on)?fi?g|conf|settings|spec|options|case)$")


class Attributes(Expressions):
    """``attribute`` and ``iterate``."""

    def enter(self, target: Function, args: list[Any], named: dict[str, Any]) -> Any:
        """Go through a function of the checkout with these arguments."""
        raise NotImplementedError

    @staticmethod
    def _bind(function: Function, to: Any) -> Function:
        return replace(function, bound=to)

    def attribute(self, value: Any, name: str, node: ast.AST) -> Any:
        """``value.name``."""
        if isinstance(value, Source):
            try:
                return self.module(value.name).names[name]
            except KeyError:
                inner = self.module(f"{value.name}.{name}")
                return inner if isinstance(inner, Source) else NOTHING
        if isinstance(value, Outside):
            if value.name == "torch" and name in TORCH_DTYPES:
                return Dtype(name)
            return Outside(f"{value.name}.{name}")
        if isinstance(value, Object):
            return self._of_object(value, name)
        if isinstance(value, Class):
            try:
                return value.find(name)
            except KeyError:
                return NOTHING
        if isinstance(value, Dtype):
            return {"itemsize": value.itemsize, "is_floating_point": value.floating}.get(
                name, NOTHING
            )
        if isinstance(value, Unknown):
            if name == "dtype":
                return value.dtype if value.dtype is not None else Unknown(value.fields)
            if CONFIG_NAME.match(name) and not value.fields:
                return self.config
            if name in library.KEEPING_METHODS:
                return replace(value, name=name)
            return Unknown(value.fields, dtype=value.dtype, name=name)
        if isinstance(value, (str, int)) and name in ("value", "name"):
            return value  # of an Enum's member
        return Method(value, name)

    def _of_object(self, value: Object, name: str) -> Any:
        if name in value.attributes:
            return value.attributes[name]
        try:
            found = value.of.find(name)
        except KeyError:
            return NOTHING
        if not isinstance(found, Function) or isinstance(found.node, ast.Lambda):
            return found
        wrapped = {getattr(each, "id", None) for each in found.node.decorator_list}
        if "staticmethod" in wrapped:
            return found
        bound = self._bind(found, value.of if "classmethod" in wrapped else value)
        if wrapped & {"property", "cached_property"}:
            return self.enter(bound, [], {})
        return bound

    def _getattr(self, args: list[Any], node: ast.AST) -> Any:
        value, name = args[0], args[1]
        if isinstance(value, Outside) and value.name == "torch":
            for field in fields_of(name):
                self.watch.torch_names.setdefault(field, self.place(node))
            if isinstance(name, str) and name in TORCH_DTYPES:
                return Dtype(name)
            if self.config.names(name):
                if len(args) < 3:
                    self.told("dtype", node, name, False, within=node)
                return (args[2:] or [NOTHING])[0]
            if isinstance(name, str):
                return NOTHING  # what this torch has, only a run shows
            return Unknown(fields_of(name), direct=getattr(name, "direct", None))
        if isinstance(name, str):
            if isinstance(value, Config):
                return self.read(value, name, "get" if len(args) > 2 else "[]", node)
            return self.attribute(value, name, node)
        return Unknown(united((value, name)))

    def iterate(self, value: Any, node: ast.AST) -> list[Any]:
        """What a loop over a value goes through."""
        if isinstance(value, (list, tuple, set, frozenset, range)):
            return list(value)[:4096]
        if isinstance(value, (dict, str)):
            return list(value)
        if isinstance(value, Unknown) and value.direct:
            self.watch.sweeps.setdefault(value.direct, self.place(node))
            return [Unknown(value.fields, element=value.direct)]
        return [Unknown(fields_of(value), dtype=getattr(value, "dtype", None))]
