"""The configuration: its keys, their values, and how the runner reads each of them.

A key is a parameter of the unit test. A pair that the test unpacks is two keys, for a list in a
configuration is a sweep; a dtype is its name.
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from orchestrator.author.check import dtypes
from orchestrator.author.emit import code, values
from orchestrator.author.emit.values import Choice
from orchestrator.author.facts import Operator, Parameter, Trial
from orchestrator.errors import UsageError
from orchestrator.inventory.spelling import short, unknown

DEVICE_NAME = "MetaX C500"
SAMPLES, FEW_SAMPLES = 1000, 100
# What the base class and the harness call their own, in the configuration or on the runner.
_TAKEN = frozenset(
    {
        *("name", "config", "dtype", "device_id", "device_name", "samples", "batch_size_list"),
        *("device", "stream", "synchronize", "generator", "verify", "poison", "moves", "flops"),
        *("library", "quantised", "threshold_reason", "device_type", "compute_dtype"),
    }
)
_DTYPE_NAME = re.compile(r"bfloat16|float(16|32|64)|int(8|16|32|64)")
_PLAIN = (bool, int, float, str, type(None))
FALLBACK_DTYPE = "float32"


@dataclass(frozen=True)
class Setting:
    """One key. ``value``: as the configuration has it, a list for a sweep; ``default``: for one.

    ``is_dtype``: the runner makes a torch dtype of it. ``why``: what was concluded, not read.
    ``place``: of the unit test. ``is_set``: asked for by ``--set``.
    """

    key: str
    value: Any
    is_dtype: bool = False
    why: str | None = None
    place: str = ""
    is_set: bool = False

    @property
    def default(self) -> Any:
        """What the runner falls back on: the value, of a sweep the first."""
        return self.value[0] if isinstance(self.value, list) and self.value else self.value

    @property
    def read(self) -> str:
        """The expression that reads it from ``config``."""
        read = f"config.get({json.dumps(self.key)}, {self.default!r})"
        return f"getattr(torch, {read})" if self.is_dtype else read


@dataclass(frozen=True)
class Settings:
    """The configuration of an operator, and what the test's names are in the runner.

    ``spelled``: expressions by the test's names. ``unpacked``: statements of the test's that only
    took a pair apart and are no longer needed. ``dtype_is_literal``: the test writes the dtype of
    its floating-point data out, where the runner has the configuration's. ``dtype_is_default``: the
    test leaves it to torch. ``dtype_is_fixed``: no data of the runner's follows the configuration.
    """

    own: tuple[Setting, ...]
    dtype: Setting
    spelled: Mapping[str, str]
    unpacked: tuple[str, ...] = ()
    device_name: Any = DEVICE_NAME
    samples: int = SAMPLES
    dtype_is_literal: bool = False
    dtype_is_default: bool = False
    dtype_is_fixed: bool = False

    def config(self) -> str:
        """The configuration file."""
        pairs = [("device_id", 0), ("device_name", self.device_name)]
        pairs += [(one.key, one.value) for one in self.own]
        pairs += [("dtype", self.dtype.value), ("samples", self.samples)]
        lines = [f"    {json.dumps(k)}: {json.dumps(v, ensure_ascii=False)}" for k, v in pairs]
        return "{\n" + ",\n".join(lines) + "\n}\n"

    def only(self, used: frozenset[str]) -> Settings:
        """Those of which the runner uses the attribute; a key that nobody reads says nothing."""
        return replace(self, own=tuple(one for one in self.own if one.key in used))


def settle(
    trial: Trial,
    operator: Operator,
    given: Mapping[str, Any],
    *,
    device_name: str | None,
    samples: int | None,
    literal_dtype: str | None,
) -> Settings:
    """Choose values and name the keys; ``given`` overrides them (``--set``).

    ``literal_dtype``: the dtype that the test has for the operator's input where that is no
    parameter. Raises ``UsageError`` for a key that the test has nothing of.
    """
    choices = values.choose(trial, operator)
    main = _main_dtype(trial)
    own: dict[str, Setting] = {}
    spelled: dict[str, str] = {}
    unpacked: list[str] = []
    for name, choice in choices.items():
        if name in (*trial.device_names, *trial.seed_names):
            continue
        if name == main:
            by_name = choice.parameter.kind == "str"
            spelled[name] = 'str(self.dtype).removeprefix("torch.")' if by_name else "self.dtype"
            continue
        taken_apart = _unpacking(trial, name, choice)
        if taken_apart is not None:
            statement, names = taken_apart
            unpacked.append(statement)
            for inner, value in zip(names, choice.value, strict=True):
                own[inner] = _setting(inner, replace(choice, value=value))
                spelled[inner] = f"self.{own[inner].key}"
            spelled[name] = f"({', '.join(spelled[inner] for inner in names)})"
        elif isinstance(choice.value, tuple) and all(isinstance(v, _PLAIN) for v in choice.value):
            for number, value in enumerate(choice.value):
                own[f"{name}_{number}"] = _setting(f"{name}_{number}", replace(choice, value=value))
            words = [f"self.{own[f'{name}_{n}'].key}" for n in range(len(choice.value))]
            spelled[name] = f"({', '.join(words)}{',' if len(words) == 1 else ''})"
        elif isinstance(choice.value, _PLAIN):
            own[name] = _setting(name, choice)
            spelled[name] = f"self.{own[name].key}"
        else:  # a list of sizes, say: a configuration would take it for a sweep
            spelled[name] = choice.parameter.values[0]
    dtype = _dtype(choices.get(main) if main else None, literal_dtype)
    few = bool(operator.allocates)
    found = Settings(
        tuple(own.values()),
        dtype,
        spelled,
        tuple(unpacked),
        device_name or DEVICE_NAME,
        samples or (FEW_SAMPLES if few else SAMPLES),
        main is None and "float" in (literal_dtype or ""),
        main is None and literal_dtype is None,
    )
    return _overridden(found, given)


def with_fixed_dtype(settings: Settings, literal_dtype: str | None) -> Settings:
    """The settings of a runner whose data has one dtype, whatever the configuration says.

    That is what the test writes out, else torch's own. Raises ``UsageError`` where another one was
    set: a row would then name a dtype that nothing was measured with.
    """
    fixed = literal_dtype or FALLBACK_DTYPE
    wanted = settings.dtype.value
    others = [one for one in (wanted if isinstance(wanted, list) else [wanted]) if one != fixed]
    if others and settings.dtype.is_set:
        raise UsageError(
            f"--set: the unit test makes its data in {fixed} alone, not in {others[0]}",
            hint="leave dtype out, or give the unit test a parameter for it",
        )
    dtype = settings.dtype if not others else Setting("dtype", fixed, True)
    return replace(settings, dtype=dtype, dtype_is_fixed=True)


def _main_dtype(trial: Trial) -> str | None:
    """The parameter that is the case's dtype."""
    names = [one.name for one in trial.parameters if one.kind == "dtype" or _names_dtypes(one)]
    usual = [name for name in names if name in ("dtype", "torch_dtype", "data_type")]
    return next(iter([*usual, *names]), None)


def _names_dtypes(one: Parameter) -> bool:
    """Whether the test's values are names of dtypes, for ``getattr(torch, name)``."""
    texts = [value.strip("'\"") for value in one.values]
    return one.kind == "str" and all(_DTYPE_NAME.fullmatch(text) for text in texts)


def _setting(name: str, choice: Choice) -> Setting:
    key = f"case_{name}" if name in _TAKEN else name
    value, is_dtype = choice.value, choice.parameter.kind == "dtype"
    if is_dtype:
        value = values.dtype_name(value)
    return Setting(key, value, is_dtype, choice.why, str(choice.parameter.place))


def _unpacking(trial: Trial, name: str, choice: Choice) -> tuple[str, list[str]] | None:
    """The statement ``a, b = name`` of the test, where the pair is used for nothing else."""
    if not isinstance(choice.value, tuple) or not all(isinstance(v, _PLAIN) for v in choice.value):
        return None
    readers = [text for text in trial.prepare if name in code.reads(text)]
    later = [*trial.reference, *trial.after, *trial.arguments.values()]
    if len(readers) != 1 or any(name in code.reads(text) for text in later):
        return None
    node = code.parsed(readers[0])[0]
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Name):
        return None
    (target, *others) = node.targets
    if others or not isinstance(target, ast.Tuple) or len(target.elts) != len(choice.value):
        return None
    names = [one.id for one in target.elts if isinstance(one, ast.Name)]
    rest = [text for text in (*trial.prepare, *trial.reference) if text != readers[0]]
    if len(names) != len(choice.value) or set(names) & code.bound_within(rest):
        return None
    return readers[0], names


def _dtype(choice: Choice | None, literal_dtype: str | None) -> Setting:
    if choice is not None:
        name = values.dtype_name(choice.value)
        return Setting("dtype", name, True, None, str(choice.parameter.place))
    if literal_dtype is not None:
        return Setting("dtype", literal_dtype, True)
    return Setting("dtype", FALLBACK_DTYPE, True, "the unit test names no dtype")


def _overridden(settings: Settings, given: Mapping[str, Any]) -> Settings:
    own = {one.key: one for one in settings.own}
    dtype, device_name, samples = settings.dtype, settings.device_name, settings.samples
    for key, value in given.items():
        if key == "dtype":
            dtype = replace(dtype, value=_checked_dtype(value), why=None, is_set=True)
        elif key == "device_name":
            device_name = _checked_names(value)
        elif key == "samples":
            if type(value) is not int or value < 1:
                raise UsageError(f"--set: samples is {_short(value)}, no whole number above 0")
            samples = value
        elif key in own:
            own[key] = replace(own[key], value=_checked(own[key], value), why=None, is_set=True)
        else:
            message, hint = unknown("key", key, [*own, "dtype", "device_name", "samples"])
            raise UsageError(f"--set: {message}", hint=hint)
    return replace(
        settings, own=tuple(own.values()), dtype=dtype, device_name=device_name, samples=samples
    )


def _checked(one: Setting, value: Any) -> Any:
    """``value`` for a key, or each of its sweep; raises ``UsageError`` for one of another kind."""
    if one.is_dtype:
        return _checked_dtype(value, one.key)
    for item in value if isinstance(value, list) else [value]:
        if not _fits(item, one.default):
            kind = _KINDS.get(type(one.default), "a plain value")
            raise UsageError(
                f"--set: {one.key} is {_short(item)}, and the unit test has {kind} there",
                hint=f"for example: --set {one.key}={json.dumps(one.default)}",
            )
    if value == []:
        raise UsageError(f"--set: {one.key} is an empty list, which leaves nothing to measure")
    return value


_KINDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}


def _checked_names(value: Any) -> Any:
    """A device's name or a list of names; raises ``UsageError`` for anything else."""
    names = value if isinstance(value, list) else [value]
    if not names or not all(isinstance(one, str) and one.strip() for one in names):
        raise UsageError(
            f"--set: device_name is {_short(value)}, neither a name nor a list of names",
            hint=f"for example: --set 'device_name={DEVICE_NAME}'",
        )
    return value


def _fits(item: Any, model: Any) -> bool:
    if isinstance(item, float) and not math.isfinite(item):
        return False
    if model is None or item is None:
        return isinstance(item, _PLAIN)
    if type(model) is float:
        return type(item) in (int, float)
    return type(item) is type(model)


def _checked_dtype(value: Any, key: str = "dtype") -> Any:
    """A dtype's name, or a list of them; raises ``UsageError`` for what is none of torch."""
    for item in value if isinstance(value, list) else [value]:
        if not isinstance(item, str) or not dtypes.is_dtype(item):
            guess = dtypes.probably(item) if isinstance(item, str) else None
            raise UsageError(
                f"--set: {key} is {_short(item)}, which is no dtype of torch",
                hint=f"did you mean {guess}?" if guess else "for example: --set dtype=bfloat16",
            )
    if value == []:
        raise UsageError(f"--set: {key} is an empty list, which leaves nothing to measure")
    return value


def _short(value: Any) -> str:
    return short(repr(value), 40)


def parse_sets(texts: Sequence[str]) -> dict[str, Any]:
    """``KEY=VALUE`` words, the value JSON or else text; raises ``UsageError``."""
    found: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"--set {text!r} is no KEY=VALUE", hint="for example: --set topk=8")
        try:
            found[key.strip()] = json.loads(value, parse_constant=lambda word: word)
        except (ValueError, RecursionError):
            found[key.strip()] = value
    return found
