"""Right and damaged kernels for the runners of operator libraries, on the CPU.

A ``Subject`` is an operator with its library's schema and a kernel written independently of the
runner's reference. The schema is registered with torch under the library's own name, so the real
runner calls it as it would call the library; ``damaged`` puts faults into what the kernel wrote.

Modules named ``subjects_<topic>.py`` in this folder hold a list ``SUBJECTS``;
``test_every_operator.py`` tests them all.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from harness import loader, verification
from harness.base import OpBenchmarkBase
from harness.cases import CaseConfig
from harness.engines.state import CaseState, Launch

BENCHMARK = Path(__file__).resolve().parents[3] / "benchmark"
Kernel = Callable[..., Any]

_LIBRARIES: dict[str, torch.library.Library] = {}
_CURRENT: dict[str, Kernel] = {}


@dataclass(frozen=True)
class Subject:
    """An operator under test.

    ``namespace``: that of torch.ops (``_C``), or a Python module (``mcoplib.op``).
    ``schema``: the library's own; ``Tensor!`` marks what the kernel writes.
    ``kernel``: computes what the schema says, independently of the runner.
    ``parameters``: overlay on the operator's configuration, so that it is tiny.
    ``wrong``: whole kernels with a fault of the operator's own (wrong head, block), by name.
    ``harmless``: faults ``name:argument`` that rightly change nothing or are tolerated, with the
    reason.
    ``right``: other kernels that compute the same and round otherwise, by name.
    """

    op: str
    namespace: str
    schema: str
    kernel: Kernel
    parameters: dict[str, Any]
    wrong: dict[str, Kernel] = field(default_factory=dict)
    harmless: dict[str, str] = field(default_factory=dict)
    right: dict[str, Kernel] = field(default_factory=dict)
    label: str = ""

    def __str__(self) -> str:
        return f"{self.op}-{self.label}" if self.label else self.op

    @property
    def qualified(self) -> str:
        """``_C::rms_norm``."""
        return f"{self.namespace}::{self.schema.split('(')[0].split('.')[0]}"

    def outputs(self) -> list[str]:
        """Names of the arguments that the kernel writes; ``return`` when it returns tensors."""
        parsed = torch._C.parse_schema(f"any::{self.schema}")
        names = [a.name for a in parsed.arguments if a.alias_info and a.alias_info.is_write]
        fresh = [r for r in parsed.returns if "Tensor" in str(r.type) and r.alias_info is None]
        return names + (["return"] if fresh else [])

    def faults(self) -> list[str]:
        """Names of all faults that have to be caught: ``fault:argument`` and those of its own."""
        common = [f"{fault}:{name}" for name in self.outputs() for fault in FAULTS]
        return [name for name in common if name not in self.harmless] + list(self.wrong)

    def damaged(self, fault: str) -> Kernel:
        """The kernel with ``fault`` in it."""
        if fault in self.wrong:
            return self.wrong[fault]
        kind, _, output = fault.partition(":")
        names = [a.name for a in torch._C.parse_schema(f"any::{self.schema}").arguments]

        def kernel(*args: Any, **kwargs: Any) -> Any:
            given = {**dict(zip(names, args, strict=False)), **kwargs}
            before = [t.clone() for t in _tensors(given.get(output))]
            result = self.kernel(*args, **kwargs)
            found = _tensors(result if output == "return" else given.get(output))
            before = before or [torch.zeros_like(t) for t in found]
            for tensor, old in zip(found, before, strict=True):
                _damage(kind, tensor, old)
            return result

        return kernel

    def runner(self) -> OpBenchmarkBase:
        """The real runner with the tiny configuration, for the CPU."""
        config = json.loads((BENCHMARK / "config" / f"{self.op}.json").read_text())
        # A swept parameter that the test leaves as it is takes its first value.
        first = {
            key: value[0] if isinstance(value, list) and value else value
            for key, value in config.items()
        }
        cls = loader.load_runner(BENCHMARK, self.op)
        cls.device_type = "cpu"
        return cls(self.op, CaseConfig({**first, **self.parameters}))

    def verdict(self, kernel: Kernel | None = None) -> verification.Verdict:
        """What the harness says of ``kernel``, the right one by default."""
        with installed(self, kernel or self.kernel):
            return verification.verify(self.runner(), self.op, 0)

    def timed(self, kernel: Kernel | None = None) -> tuple[OpBenchmarkBase, State]:
        """Prepare, launch three times and declare, as an engine does."""
        with installed(self, kernel or self.kernel):
            runner, state = self.runner(), State(0)
            launcher = runner.prepare_and_get_launcher(0, None)
            with state.watch:
                for _ in range(3):
                    launcher(Launch(None))
            runner.define_metrics(state)
        return runner, state


class _Watch(torch.utils._python_dispatch.TorchDispatchMode):
    """Notes which operators torch is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.called: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.called.append(func.name().split(".")[0])
        return func(*args, **(kwargs or {}))


class State(CaseState):
    """A state without an engine; ``watch`` notes what the launcher calls."""

    def __init__(self, dev_id: int) -> None:
        super().__init__(dev_id)
        self.watch = _Watch()

    def get_stream(self) -> None:
        """There is none."""
        return


@contextlib.contextmanager
def installed(subject: Subject, kernel: Kernel) -> Iterator[None]:
    """``kernel`` answers for the operator of ``subject`` within this context."""
    if "." in subject.namespace or subject.namespace == "mcoplib":
        with _module(subject.namespace, subject.qualified.split("::")[1], kernel):
            yield
        return
    _define(subject)
    _CURRENT[subject.qualified] = kernel
    try:
        yield
    finally:
        del _CURRENT[subject.qualified]


def _define(subject: Subject) -> None:
    """Register the schema once a process; later subjects of the operator share it."""
    name = subject.qualified
    if name in _LIBRARIES:
        return
    library = torch.library.Library(subject.namespace, "FRAGMENT")
    library.define(subject.schema)

    def call(*args: Any, **kwargs: Any) -> Any:
        return _CURRENT[name](*args, **kwargs)

    library.impl(name.split("::")[1], call, "CompositeExplicitAutograd")
    _LIBRARIES[name] = library


@contextlib.contextmanager
def _module(module: str, function: str, kernel: Kernel) -> Iterator[None]:
    """A Python module of that name with the one function."""
    parts = module.split(".")
    names = [".".join(parts[: i + 1]) for i in range(len(parts))]
    saved = {name: sys.modules.get(name) for name in names}
    try:
        for name in names:
            sys.modules[name] = types.ModuleType(name)
            if "." in name:
                parent, _, child = name.rpartition(".")
                setattr(sys.modules[parent], child, sys.modules[name])
            sys.modules[name].__path__ = []  # type: ignore[attr-defined]
        setattr(sys.modules[module], function, kernel)
        yield
    finally:
        for name, old in saved.items():
            if old is None:
                del sys.modules[name]
            else:
                sys.modules[name] = old


def part(kernel: Kernel, **wrong: Any) -> Kernel:
    """``kernel`` with a fault that it has as a keyword; the dispatcher's arguments go through."""
    return functools.partial(kernel, **wrong)


def all_subjects() -> list[Subject]:
    """The subjects of all ``subjects_*.py`` in this folder."""
    found: list[Subject] = []
    for path in sorted(Path(__file__).parent.glob("subjects_*.py")):
        found += importlib.import_module(path.stem).SUBJECTS
    return found


# Faults in what a kernel wrote. Each gets the tensor as rows of its last dimension.


def _untouched(rows: torch.Tensor, before: torch.Tensor) -> None:
    rows.copy_(before)


def _scaled(rows: torch.Tensor, before: torch.Tensor) -> None:
    wide = rows.to(torch.float64) * 2
    if not rows.dtype.is_floating_point:
        wide = wide.clamp(torch.iinfo(rows.dtype).min, torch.iinfo(rows.dtype).max)
    elif rows.element_size() == 1:
        wide = wide.clamp(torch.finfo(rows.dtype).min, torch.finfo(rows.dtype).max)
    rows.copy_(wide.to(rows.dtype))


def _nan(rows: torch.Tensor, before: torch.Tensor) -> None:
    if rows.dtype.is_floating_point:
        rows[rows.shape[0] // 2, rows.shape[1] // 2] = float("nan")
    else:
        info = torch.iinfo(rows.dtype)
        old = int(rows[rows.shape[0] // 2, rows.shape[1] // 2])
        rows[rows.shape[0] // 2, rows.shape[1] // 2] = info.max if old <= 0 else info.min


def _wrong_row(rows: torch.Tensor, before: torch.Tensor) -> None:
    _spoil(rows, rows.shape[0] // 2, slice(None))


def _wrong_element(rows: torch.Tensor, before: torch.Tensor) -> None:
    row = rows.shape[0] // 2
    column = int(rows[row].to(torch.float64).abs().argmax())
    _spoil(rows, row, slice(column, column + 1))


def _swapped_rows(rows: torch.Tensor, before: torch.Tensor) -> None:
    if rows.shape[0] == 1:  # one row: its first and last element
        rows = rows.view(-1, 1)
    first = rows[0].clone()
    rows[0] = rows[-1].clone()
    rows[-1] = first


def _spoil(rows: torch.Tensor, row: int, columns: slice) -> None:
    part = rows[row, columns]
    if rows.dtype.is_floating_point:
        rows[row, columns] = (-part.to(torch.float64)).to(rows.dtype)
    elif rows.dtype is torch.int8:
        rows[row, columns] = (-part.to(torch.int16)).clamp(-128, 127).to(torch.int8)
    elif rows.dtype is torch.bool:
        rows[row, columns] = ~part
    else:
        rows[row, columns] = part ^ 1


FAULTS: dict[str, Callable[[torch.Tensor, torch.Tensor], None]] = {
    "untouched": _untouched,
    "scaled": _scaled,
    "nan": _nan,
    "wrong-row": _wrong_row,
    "wrong-element": _wrong_element,
    "swapped-rows": _swapped_rows,
}


def _damage(kind: str, tensor: torch.Tensor, before: torch.Tensor) -> None:
    if tensor.numel() == 0:
        raise AssertionError(f"{kind}: an output is empty")
    right = tensor.clone().contiguous()
    last = tensor.shape[-1] if tensor.dim() else 1
    rows = right.clone().reshape(-1, last)
    FAULTS[kind](rows, before.reshape(-1, last))
    if torch.equal(_bytes(rows), _bytes(right.reshape(-1, last))):
        raise AssertionError(
            f"{kind} changes nothing in {tensor!r}; make the data differ or say why it is harmless"
        )
    tensor.copy_(rows.reshape(tensor.shape))


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().view(torch.uint8)


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [tensor for item in value for tensor in _tensors(item)]
    return []
