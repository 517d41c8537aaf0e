"""How a runner holds outputs against the reference, by the working description's rules.

Exact where the unit test is exact, in any order where it sorts, else every row by what its dtype
can hold and the cosine of the whole: at least 0.999999, for quantised operators 0.999. What is
looser gives its reason.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from orchestrator.author.check.rules.thresholds import moves_bits
from orchestrator.author.emit import code, literal
from orchestrator.author.emit.dialect import Dialect
from orchestrator.author.emit.material import Material
from orchestrator.author.facts import Operator, Output

_QUANTISED = 0.999
_QUANTISED_RULE = 0.99
_LEAST = 0.999999
_BF16 = "0.99999 if self.dtype is torch.bfloat16 else 0.999999"
_QUANTISED_WORDS = ("quant", "awq", "gptq", "fp8", "int8", "int4", "marlin", "w8a8", "w4a16")
_PRODUCT = re.compile(r"gemm|mm|matmul|linear|moe")
# Two steps of bfloat16 are nothing to mention, a tenth of a row's magnitude is too much.
_USUAL_LIMIT, _MOST_LIMIT = 2.0**-6, 0.1
_KEEPS_DTYPE = frozenset(
    {"gather", "view", "reshape", "flatten", "squeeze", "unsqueeze", "transpose", "permute", "t"}
)
_WHOLE = ("int", "long", "short", "uint8", "bool")


@dataclass(frozen=True)
class Checks:
    """Statements that compare, the last one returning; ``reason``: why a threshold is loose."""

    lines: tuple[str, ...]
    reason: str | None = None


def quantised(operator: Operator) -> bool:
    """Whether the operator quantises, or works on quantised numbers."""
    return any(word in operator.name.lower() for word in _QUANTISED_WORDS)


def checks(
    material: Material,
    operator: Operator,
    dialect: Dialect,
    into: Callable[[str], str],
) -> Checks:
    """The comparisons of a trial; ``into`` spells the test's code for the method they stand in."""
    writer = _Rich(operator, material, into) if dialect.rich else _Plain(operator, material, into)
    for output in material.compared:
        writer.add(output)
    return writer.done()


class _Writer:
    def __init__(self, operator: Operator, material: Material, into: Callable[[str], str]) -> None:
        self._operator = operator
        self._material = material
        self._into = into
        self._lines: list[str] = []
        self._reason: str | None = None
        self._quantised = quantised(operator)
        # Whatever the test allows: of what is only moved every bit is right or wrong.
        self._moves_bits = moves_bits(operator.name) and not any(
            word in one.code for one in material.given for word in ("fp8", "float8", "int8")
        )
        self._least_named = False

    def add(self, output: Output) -> None:
        """Write the statements for one comparison."""
        lines = self._statements(output)
        if output.when is not None:
            lines = [f"if {self._into(output.when)}:", *(f"    {line}" for line in lines)]
        self._lines += lines

    def _statements(self, output: Output) -> list[str]:
        raise NotImplementedError

    def done(self) -> Checks:
        """All statements."""
        raise NotImplementedError

    def _named(self, output: Output) -> str:
        """What the operator calls the tensor that is compared."""
        root = code.root(ast.parse(output.actual, mode="eval").body) or "out"
        for one in self._material.passed:
            if one.name == root:
                return one.argument.name
        return root

    def _name(self, output: Output) -> str:
        return f'name="{self._named(output)}"'

    def _whole(self, output: Output) -> bool:
        """Whether the output is known to hold integers."""
        dtype = self._dtype(output) or ""
        return dtype.removeprefix("torch.").startswith(_WHOLE)

    def _dtype(self, output: Output) -> str | None:
        """The dtype of what is compared, where the test says it; of a part that of the whole."""
        node: ast.expr = ast.parse(output.actual, mode="eval").body
        while not isinstance(node, ast.Name):
            if isinstance(node, ast.Subscript):
                node = node.value
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                if node.func.attr not in _KEEPS_DTYPE:
                    return None
                node = node.func.value
            else:
                return None
        made = self._material.tensors.get(node.id)
        return made.dtype if made is not None else None

    def _wide(self, output: Output) -> bool:
        """Whether the output is known not to be quantised: scales, say."""
        return self._dtype(output) in ("torch.float32", "torch.float64")

    def _own_dtype(self, output: Output) -> bool:
        """Whether the output may be bfloat16: that of the case, or not known to be another."""
        dtype = self._dtype(output)
        return dtype is None or not dtype.startswith("torch.") or dtype == "torch.bfloat16"

    def _threshold(self, output: Output) -> str:
        """The least cosine; notes why, where it is below the rules."""
        if output.how == "cosine" and output.atol is not None:
            return self._of_test(output)
        if self._quantised and not self._wide(output):
            return str(_QUANTISED)
        if not self._own_dtype(output):
            return str(_LEAST)
        self._reason = self._reason or (
            f"the unit test allows {_tolerance(output)}; kernels that round an intermediate to "
            "bfloat16 and those that do not are 4e-6 apart"
        )
        return _BF16

    def _limit(self, output: Output) -> float | None:
        """The largest error of a row where the test allows a quantised product more than usual."""
        if not self._quantised or not _PRODUCT.search(self._operator.name):
            return None
        given = [t for t in (output.atol, output.rtol) if t is not None]
        limits = [_number(text) for text in given]
        largest = max((one for one in limits if one is not None), default=0.0)
        if largest <= _USUAL_LIMIT:
            return None
        self._reason = self._reason or f"the unit test allows {_tolerance(output)}"
        return min(largest, _MOST_LIMIT)

    def _of_test(self, output: Output) -> str:
        short = _number(output.atol or "0")
        if short is None:
            return str(_LEAST)
        least = min(round(1.0 - short, 9), _LEAST)
        if least < (_QUANTISED_RULE if self._quantised else _LEAST):
            self._reason = self._reason or f"the unit test asks for a cosine of {least}"
        return str(least)


class _Rich(_Writer):
    """With our harness: each check is noted by name, the verdict is over all."""

    def _statements(self, output: Output) -> list[str]:
        actual, expected = self._into(output.actual), self._into(output.expected)
        named = f"{actual}, {expected}, {self._name(output)}"
        if output.how == "exact" or (output.how == "close" and self._moves_bits):
            return [f"self.verify.exact({named})"]
        if output.how == "unordered":
            return [f"self.verify.unordered({named})"]
        if self._whole(output):
            steps = _number(output.atol or "0") or 0.0
            if steps <= 1:
                return [f"self.verify.close({named})"]
            return [
                f"self.verify.close({actual}, {expected}, limit={steps:g}, {self._name(output)}, "
                f'reason="the unit test allows {steps:g} steps")'
            ]
        least = self._threshold(output)
        limit = self._limit(output)
        lines = []
        if output.how == "close" and limit is not None:
            lines = [
                f"self.verify.close({actual}, {expected}, limit={limit}, {self._name(output)})"
            ]
        elif output.how == "close":
            lines = [f"self.verify.close({named})"]
        if least == str(_LEAST):
            return [*lines, f"self.verify.cosine({named})"]
        if least == _BF16:
            if not self._least_named:
                lines.append(f"least = {_BF16}")
                self._least_named = output.when is None
            least = "least"
        return [*lines, f"self.verify.cosine({actual}, {expected}, {least}, {self._name(output)})"]

    def done(self) -> Checks:
        return Checks((*self._lines, "return self.verify.verdict()"), self._reason)


class _Plain(_Writer):
    """With an established base class: (passed, difference) of each, then of all."""

    def _statements(self, output: Output) -> list[str]:
        actual, expected = self._into(output.actual), self._into(output.expected)
        whole = self._whole(output) or self._moves_bits
        if output.how == "exact" or (whole and output.how == "close"):
            return [
                f"same = torch.equal({actual}, {expected})",
                _note("same, 0.0 if same else 1.0"),
            ]
        if output.how == "unordered":
            actual, expected = (f"{one}.sort(dim=-1).values" for one in (actual, expected))
            if self._whole(output) or "ind" in output.actual or "ids" in output.actual:
                same = f"same = torch.equal({actual}, {expected})"
                return [same, _note("same, 0.0 if same else 1.0")]
        least = self._threshold(output)
        lines = []
        if least == _BF16:
            if not self._least_named:
                lines.append(f"least = {_BF16}")
                self._least_named = output.when is None
            least = "least"
        same_dtype = f"{_wrapped(expected)}.to({_wrapped(actual)}.dtype)"
        call = f"self.check_diff({actual}, {same_dtype}, threshold={least})"
        return [*lines, f"results.append({call})"]

    def done(self) -> Checks:
        lines = self._lines
        if len(lines) == 1 and lines[0].startswith("results.append("):
            only = lines[0].removeprefix("results.append(")[:-1]
            return Checks((f"return {only}",), self._reason)
        if len(lines) == 2 and lines[0].startswith("least = ") and lines[1].startswith("results."):
            only = lines[1].removeprefix("results.append(")[:-1]
            return Checks((lines[0], f"return {only}"), self._reason)
        if len(lines) == 2 and lines[1] == _note("same, 0.0 if same else 1.0"):
            return Checks((lines[0], "return same, 0.0 if same else 1.0"), self._reason)
        passed = "passed = all(passed for passed, _ in results)"
        worst = "return passed, max(difference for _, difference in results)"
        return Checks(("results = []", *lines, passed, worst), self._reason)


def _note(result: str) -> str:
    return f"results.append(({result}))"


def _wrapped(text: str) -> str:
    node = ast.parse(text, mode="eval").body
    simple = (ast.Name, ast.Attribute, ast.Call, ast.Subscript)
    return text if isinstance(node, simple) else f"({text})"


def _number(text: str) -> float | None:
    try:
        return float(literal.value_of(text))
    except (literal.NotLiteral, TypeError, ValueError):
        return None


def _tolerance(output: Output) -> str:
    """The test's tolerance in words; one that depends on its parameters is not spelled out."""
    given = [(n, t) for n, t in (("atol", output.atol), ("rtol", output.rtol)) if t is not None]
    if not given:
        return "torch's own tolerance"
    words = [f"{name}={text}" for name, text in given if _number(text) is not None]
    return " ".join(words) or "a tolerance of its own"


def names_of(outputs: Sequence[Output]) -> list[str]:
    """Names that comparisons read."""
    texts = [t for one in outputs for t in (one.actual, one.expected, one.when or "0")]
    return code.reads(texts)
