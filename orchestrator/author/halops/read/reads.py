"""What the code does with the config: fields read, looked for and written."""

from __future__ import annotations

import ast
from typing import Any

from orchestrator.author.halops.facts import Place
from orchestrator.author.halops.read.base import Base
from orchestrator.author.halops.read.values import Config, Unknown, fields_of, known
from orchestrator.author.halops.read.watch import Read


class Reads(Base):
    """Access to the config; every one is noted."""

    def read(
        self, config: Config, name: Any, how: str, node: ast.AST, default: ast.expr | None = None
    ) -> Any:
        """The value of a field, noted as read."""
        given = None if default is None else self.evaluate(default)
        if not isinstance(name, str):
            return Unknown(fields_of(name))
        if name in config.written:
            return config.written[name]
        source = "None" if default is None else ast.unparse(default)
        place = self.place(node)
        sure = not self.unsure
        usable = given if known(given) else None
        code = source if how == "get" else None
        self.watch.reads.append(Read(name, place, how, sure, usable, code))
        if config.values is None:
            return Unknown(frozenset((name,)), direct=name)
        if name in config.values:
            return config.values[name]
        return given if how == "get" else Unknown(frozenset((name,)))

    def contains(self, config: Config, name: str, node: ast.AST) -> bool | None:
        """Whether a config has a field; None while only reads are looked for."""
        if name in config.written:
            return True
        self.watch.reads.append(Read(name, self.place(node), "in", not self.unsure))
        return None if config.values is None else name in config.values

    def write(self, config: Config, name: Any, value: Any, place: Place) -> None:
        """Set a field, as the entry layer does with ``batch_size``."""
        if not isinstance(name, str):
            return
        config.written[name] = value
        if isinstance(value, Unknown) and value.element and value.element != name:
            self.watch.expands.setdefault(value.element, (name, place))
