"""Which library holds the kernel, and how to tell that it is absent."""

from __future__ import annotations

import hashlib
import importlib.metadata
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.base import OpBenchmarkBase

# Modules that register operators, the binary first: its hash is the identity of the kernels.
OPERATOR_MODULES = (
    "mcoplib._C",
    "mcoplib._moe_C",
    "mcoplib.sgl_kernel",
    "mcoplib.op",
    "vllm._C",
    "vllm._moe_C",
    "sgl_kernel",
)

_NO_DEVICE = re.compile(r"not compiled with CUDA|No CUDA GPUs are available|Found no NVIDIA driver")
_NO_OPERATOR = re.compile(r"'_OpNamespace' '(\w+)' object has no attribute '(\w+)'")
_NO_KERNEL = re.compile(r"Could not run '([\w:.]+)' with arguments from the '(\w+)' backend")


def library_of(cls: type[OpBenchmarkBase]) -> dict[str, Any] | None:
    """Name, version, path and hash of the library behind a loaded runner; None when unknown."""
    if cls.library is not None:
        return _described(cls.library, None)
    for name in OPERATOR_MODULES:
        module = sys.modules.get(name)
        if module is not None:
            return _described(name.split(".")[0], getattr(module, "__file__", None))
    return None


def _described(name: str, path: str | None) -> dict[str, Any]:
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        version = None
    digest = None
    if path is not None and Path(path).is_file():
        with Path(path).open("rb") as file:
            sha = hashlib.sha256()
            while chunk := file.read(1 << 20):
                sha.update(chunk)
            digest = sha.hexdigest()
    return {"name": name, "version": version, "path": path, "sha256": digest}


def absence(error: Exception, optional: dict[str, str]) -> str | None:
    """What is absent when ``error`` means that a library or backend is; else None.

    ``optional`` maps names bound by guarded imports of the runner to their modules.
    """
    text = str(error)
    if isinstance(error, ImportError):
        return text
    if isinstance(error, NameError) and error.name in optional:
        return f"module {optional[error.name]} cannot be imported in this Python"
    if isinstance(error, AttributeError):
        found = _NO_OPERATOR.search(text)
        if found:
            return f"no operator torch.ops.{found[1]}.{found[2]} is registered here"
        if isinstance(error.obj, type(sys)) and error.obj.__name__ in OPERATOR_MODULES:
            return f"{error.obj.__name__} has no {error.name}"
    found = _NO_KERNEL.search(text)
    if found:
        return f"{found[1]} has no kernel for the {found[2]} backend"
    if isinstance(error, (AssertionError, RuntimeError)) and _NO_DEVICE.search(text):
        return f"this runner needs a GPU, and torch sees none here ({text.splitlines()[0]})"
    return None
