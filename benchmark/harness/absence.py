"""What an error says is absent: a library, an operator in it, a kernel for the device, a GPU.

Absent is UNAVAILABLE. What is there but does not load is broken, and never told as absent.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from harness import providers
from harness.errors import BrokenLibraryError, HarnessError, LibraryError

# What torch says without a GPU, built for one or not; every other function of it in other words.
_NO_DEVICE = re.compile(
    r"not compiled with CUDA|compiled without CUDA support|requires CUDA support"
    r"|CUDA generator without ATen_cuda|'torch\._C' has no attribute '_cuda_"
    r"|instantiate dummy base class|NVTX functions not installed"
    r"|accelerator device when none is available|no pinned memory allocator"
    r"|No CUDA GPUs are available|Found no NVIDIA driver|no CUDA-capable device is detected"
)
_NO_OPERATOR = re.compile(r"'_OpNamespace' '(\w+)' object has no attribute '(\w+)'")
_NO_KERNEL = re.compile(r"Could not run '([\w:.]+)' with arguments from the '(\w+)' backend")
# Files that come with a GPU's driver, toolkit or torch: without a GPU nobody expects them.
_GPU_RUNTIME = re.compile(
    r"(lib(?:cuda|cudart|cublas|cudnn|cufft|curand|cusolver|cusparse|nccl|nvrtc|nvJitLink"
    r"|(?:torch|c10)_(?:cuda|hip)|amdhip|mcruntime|mcblas|mcdnn|mccl|mxc|hcruntime)[\w.+-]*"
    r"\.so[\w.]*): cannot open shared object file"
)


def absence(error: BaseException) -> str | None:
    """What is absent when ``error`` means that a library or backend is; else None."""
    text = str(error)
    if isinstance(error, ImportError):
        return None if broken_import(error) else text
    if isinstance(error, AttributeError):
        operator = missing_operator(error)
        if operator is not None:
            return f"no operator torch.ops.{operator[0]}.{operator[1]} is registered here"
        if isinstance(error.obj, ModuleType):
            module = error.obj.__name__
            if module.split(".")[0] in providers.PROVIDERS:
                return f"{module} has no {error.name}"
    found = _NO_KERNEL.search(text)
    if found:
        return f"{found[1]} has no kernel for the {found[2]} backend"
    if not isinstance(error, HarnessError) and _NO_DEVICE.search(text):
        return f"this runner needs a GPU, and torch sees none here ({text.splitlines()[0]})"
    return None


def missing_operator(error: BaseException) -> tuple[str, str] | None:
    """Namespace and name of the operator that torch does not know."""
    found = _NO_OPERATOR.search(str(error)) if isinstance(error, AttributeError) else None
    return (found[1], found[2]) if found else None


def missing_runtime(reason: str) -> str | None:
    """The file of a GPU's driver or toolkit that a library was looking for in vain."""
    found = _GPU_RUNTIME.search(reason)
    return found[1] if found else None


def broken_import(error: BaseException) -> bool:
    """Whether an import failed at a binary that is there: not absent, broken."""
    if isinstance(error, ModuleNotFoundError) or not isinstance(error, ImportError):
        return False
    path = error.path or ""
    return path.endswith(".so") and Path(path).is_file() and not missing_runtime(str(error))


def named(error: BaseException | None) -> LibraryError | None:
    """The ``LibraryError`` that ``error`` is or was raised from, if any."""
    while error is not None:
        if isinstance(error, LibraryError):
            return error
        error = error.__cause__ or error.__context__
    return None


def no_library(namespace: str, operator: str | None, declared: str | None) -> str:
    """That no library serves ``namespace``, with all that was looked for."""
    what = f"torch.ops.{namespace}" + (f".{operator}" if operator else "")
    packages = [p for p, serves in providers.PROVIDERS.items() if namespace in serves]
    if declared in packages:
        packages = [declared]
    if not packages:
        return (
            f"nothing registers {what}, and no library is known for it; declare one with "
            f"--library {namespace}=/path/of/x.so"
        )
    said = "the declared " if declared is not None else ""
    return f"no library here has {what}; looked for {said}{_looked_for(packages, namespace)}"


def _looked_for(packages: Sequence[str], namespace: str) -> str:
    told = []
    for package in packages:
        stems = " or ".join(f"{stem}.*so" for stem in providers.PROVIDERS[package][namespace])
        places = at(package)
        there = f"not in {places}" if places else "not installed"
        told.append(f"{package} ({stems}: {there})")
    return f"{', '.join(told)}; folders searched: {_search_path()}"


def no_module(name: str) -> str:
    """That the library module ``name`` is not here.

    Raises ``BrokenLibraryError`` when it is, and cannot be imported.
    """
    package = name.split(".")[0]
    if package in providers.PROVIDERS and not providers.folders(package):
        return (
            f"no module {name} here; looked for {package} (not installed); "
            f"folders searched: {_search_path()}"
        )
    try:
        importlib.import_module(name)
    except Exception as error:
        if not broken_import(error):
            return f"module {name} cannot be imported ({at(package) or 'not found'}): {error}"
        raise BrokenLibraryError(f"module {name} is there but does not load: {error}") from error
    return f"module {name} could not be imported when the runner tried"


def at(package: str) -> str:
    """Where ``package`` is installed, "" when it is not."""
    return ", ".join(map(str, providers.folders(package)))


def _search_path() -> str:
    return ", ".join(place for place in sys.path if Path(place).is_dir())
