"""One operator's benchmark as rules see it: its config, its runner, what is known of its operator.

Each part is read when a rule first asks for it, and once.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from orchestrator.author.check.calls import Calls
from orchestrator.author.check.config_file import ConfigFile, read_config
from orchestrator.author.check.literals import UNKNOWN
from orchestrator.author.check.reading import UnreadableError
from orchestrator.author.check.reads import Reads, find_reads
from orchestrator.author.check.runner import Runner
from orchestrator.author.check.source import parse_file
from orchestrator.suites.mcoplib import files_of

if TYPE_CHECKING:
    from orchestrator.author.check.tree import CheckedTree
    from orchestrator.author.facts import Operator

_DEEPEST = 12  # names behind names


class Benchmark:
    """The benchmark ``name`` of a tree; its files may be missing or broken.

    ``config`` is always there, empty where it cannot be read. ``runner`` is None where it is
    missing or cannot be parsed: a rule on it then says nothing.
    """

    def __init__(self, tree: CheckedTree, name: str) -> None:
        self.tree = tree
        self.name = name
        config, runner = files_of(name)
        self.config_path = tree.folder / config
        self.runner_path = tree.folder / runner
        self.config_shown = tree.shown(self.config_path)
        self.runner_shown = tree.shown(self.runner_path)

    @cached_property
    def config(self) -> ConfigFile:
        """The config."""
        return read_config(self.config_path, self.config_shown)

    @cached_property
    def _parsed(self) -> Runner | UnreadableError | None:
        if not self.runner_path.is_symlink() and not self.runner_path.exists():
            return None
        try:
            return Runner(parse_file(self.runner_path, self.runner_shown))
        except UnreadableError as error:
            return error

    @property
    def runner(self) -> Runner | None:
        """The runner."""
        return self._parsed if isinstance(self._parsed, Runner) else None

    @property
    def runner_problem(self) -> UnreadableError | None:
        """Why there is a runner, but none that can be looked at."""
        return self._parsed if isinstance(self._parsed, UnreadableError) else None

    @property
    def runner_missing(self) -> bool:
        """Whether there is no such file."""
        return self._parsed is None

    @cached_property
    def reads(self) -> Reads:
        """What the runner reads of its config."""
        return find_reads(self.runner) if self.runner is not None else Reads()

    @cached_property
    def calls(self) -> Calls | None:
        """Where the runner calls its operator; None without a runner."""
        return Calls(self.runner) if self.runner is not None else None

    @cached_property
    def operators(self) -> Sequence[Operator]:
        """What sources and libraries say of the operators that the runner calls."""
        names = {call.name for call in self.calls.operators} if self.calls is not None else set()
        return [one for name in sorted(names) for one in self.tree.known(name)]

    @cached_property
    def attribute_keys(self) -> dict[str, str]:
        """The config key behind an attribute: ``self.rows = config.get("rows", 8)``."""
        runner = self.runner
        found: dict[str, str] = {}
        if runner is None:
            return found
        by_node: dict[ast.AST, str] = {read.node: read.key for read in self.reads.reads}
        for name, values in runner.attributes.items():
            value = values[0] if len(values) == 1 else None
            # int(config.get(...)) is the same key.
            if isinstance(value, ast.Call) and len(value.args) == 1 and value not in by_node:
                value = value.args[0]
            if value in by_node:
                found[name] = by_node[value]
        return found

    def values(self, node: ast.expr, depth: int = 0) -> list[Any]:
        """The values that an expression may have: a literal's, or those of the config behind it.

        Empty when it cannot be told.
        """
        if self.runner is None or depth > _DEEPEST:
            return []
        value = self.runner.source.literal(node)
        if value is not UNKNOWN:
            return [value]
        attribute = self.runner.attribute(node)
        if attribute in self.attribute_keys:
            return self.config.values(self.attribute_keys[attribute])
        behind = self.runner.value_of(node)
        return self.values(behind, depth + 1) if behind is not None else []

    def anchors(self, key: str | None = None) -> tuple[int, ...]:
        """Lines of the runner at which a finding in the config may be silenced.

        Where ``key`` is read, and where the class begins.
        """
        if self.runner is None:
            return ()
        lines = [getattr(read.node, "lineno", 0) for read in self.reads.of(key)] if key else []
        if self.runner.cls is not None:
            lines.append(self.runner.cls.lineno)
        return tuple(lines)
