"""What an adapter of a backend is, and how it says that it cannot serve.

``adapt_x(inputs, cfg)`` prepares one case for the backend ``x`` and returns a callable without
arguments that launches it once and returns the output. It first refuses, by ``cfg`` alone, what
the backend never does (``UnsupportedError``), then asks for its library (``UnavailableError``),
then reads ``inputs``. So a configuration can be refused before any data is made: ``refusal``.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

Config = Mapping[str, Any]
Launch = Callable[[], torch.Tensor]
Adapt = Callable[[Any, Config], Launch]


class UnsupportedError(ValueError):
    """The backend does not do this dtype, mode or layout; a configuration that asks is wrong."""


class UnavailableError(RuntimeError):
    """The backend's library, or a device that it runs on, is not here; ``str()`` says which."""


class _TouchedError(Exception):
    """An adapter went on to read its inputs: it refuses nothing."""


class _NoInputs:
    """Stands for inputs that are not made yet; to read anything of it ends the adapter."""

    def __getattr__(self, name: str) -> Any:
        raise _TouchedError

    def __getitem__(self, key: Any) -> Any:
        raise _TouchedError


def refusal(adapt: Adapt, cfg: Config) -> str | None:
    """Why ``adapt`` refuses ``cfg`` whatever the data, or None; makes no data, runs no kernel.

    Raises ``KeyError`` for a field that ``cfg`` lacks; what else an adapter raises without data
    is not its refusal, and seen again when it has data.
    """
    try:
        adapt(_NoInputs(), cfg)
    except UnsupportedError as error:
        return str(error)
    except KeyError:
        raise
    except Exception:  # noqa: BLE001
        return None
    return None


def require(module: str, what: str | None = None) -> Any:
    """Import ``module``; raises ``UnavailableError`` saying why it does not serve.

    ``what`` names the package to install where that is not the module's own name. A folder of the
    module's name that merely lies on the path (a namespace package) is not the library.
    """
    package = module.split(".")[0]
    named = what or package
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        raise UnavailableError(f"{named} is not installed")
    try:
        return importlib.import_module(module)
    except Exception as error:  # a broken library may raise whatever it likes
        reason = " ".join(str(error).split())
        raise UnavailableError(
            f"{named} is installed, but {module} does not import: {type(error).__name__}: {reason}"
        ) from error


def need_cuda(tensor: torch.Tensor, backend: str) -> None:
    """Raise ``UnavailableError`` unless ``tensor`` lies on a GPU."""
    if tensor.device.type != "cuda":
        raise UnavailableError(f"{backend} needs a GPU, the data is on the {tensor.device.type}")


def need_capability(backend: str, *majors: int) -> None:
    """Raise ``UnavailableError`` unless the current GPU's compute capability is one of these."""
    major, minor = torch.cuda.get_device_capability()
    if major not in majors:
        known = " or ".join(f"{one}.x" for one in majors)
        raise UnavailableError(
            f"{backend} needs compute capability {known}, this is {major}.{minor}"
        )


def torch_dtype(name: Any) -> torch.dtype:
    """The dtype that torch calls ``name``; raises ``ValueError`` for others (``bf16``)."""
    found = getattr(torch, name, None) if isinstance(name, str) else None
    if not isinstance(found, torch.dtype):
        raise ValueError(
            f"dtype {name!r} is no name of torch's; write bfloat16, float8_e4m3fn, ..."
        )
    return found


def _move_to_front(names: Sequence[str], first: str) -> list[str]:
    """``names`` in their order, but ``first``, if it is one of them, before all others."""
    return [name for name in names if name == first] + [name for name in names if name != first]
