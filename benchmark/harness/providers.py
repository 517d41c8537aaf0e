"""The operator libraries that are known: what they serve, where they lie, what declares one.

A namespace of ``torch.ops`` has one provider a process. It is a package of which only a binary is
wanted (``mcoplib``, ``vllm``, ``sgl_kernel``: located, never imported whole), or a shared object
by its path.
"""

from __future__ import annotations

import difflib
import hashlib
import importlib.machinery
import importlib.metadata
import importlib.util
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.errors import TreeError

# Stems of the modules that register a namespace, in loading order. Newer vLLM has part of its
# operators in a binary for torch's stable interface; it loads that one first.
_C = ("_C_stable_libtorch", "_C")
_MOE = ("_moe_C_stable_libtorch", "_moe_C")
PROVIDERS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "mcoplib": {
        "_C": ("_C",),
        "_C_cache_ops": ("_C",),
        "_moe_C": ("_moe_C",),
        "sgl_kernel": ("sgl_kernel",),
    },
    "vllm": {"_C": _C, "_C_cache_ops": _C, "_moe_C": _MOE},
    "sgl_kernel": {"sgl_kernel": ("common_ops",)},
}

# Compute capability (major, minor) of the GPU, None without one; asked only where it matters.
Capability = Callable[[], "tuple[int, int] | None"]


@dataclass(frozen=True)
class Declared:
    """What ``--library`` says: providers by namespace, and files that serve what they register."""

    by_namespace: Mapping[str, str] = field(default_factory=dict)
    paths: tuple[str, ...] = ()


def declared(texts: Sequence[str]) -> Declared:
    """Read the values of ``--library``: ``NAME``, ``/path/x.so``, or ``NAMESPACE=`` either.

    A name stands for all that its package serves; a namespace given by itself goes before it.
    Raises ``TreeError`` for an unknown name and for two providers of one namespace.
    """
    exact: dict[str, str] = {}
    general: dict[str, str] = {}
    paths: list[str] = []
    for text in texts:
        namespace, equals, value = text.partition("=")
        if equals and re.fullmatch(r"[A-Za-z_]\w*", namespace):
            _check(text, value, namespace)
            for served in (namespace, *twins(value, namespace)):
                _declare(exact, served, value)
        elif is_path(text):
            paths.append(text)
        else:
            _check(text, text, None)
            for served in PROVIDERS[text]:
                _declare(general, served, text)
    return Declared({**general, **exact}, tuple(dict.fromkeys(paths)))


def is_path(text: str) -> bool:
    """Whether a declared provider is a shared object, not a package."""
    return "/" in text or text.endswith(".so")


def twins(provider: str, namespace: str) -> list[str]:
    """Other namespaces that the package's binary for ``namespace`` registers too."""
    serves = PROVIDERS.get(provider, {})
    stems = serves.get(namespace)
    return [other for other in serves if serves[other] == stems and other != namespace]


def _check(text: str, name: str, namespace: str | None) -> None:
    if is_path(name):
        return
    if name not in PROVIDERS:
        near = difflib.get_close_matches(name, list(PROVIDERS), n=1)
        guess = f"; did you mean {near[0]}?" if near else ""
        raise TreeError(
            f"--library {text}: {name!r} is no operator library; it can be "
            f"{', '.join(PROVIDERS)} or the path of a shared object{guess}"
        )
    if namespace is not None and namespace not in PROVIDERS[name]:
        raise TreeError(
            f"--library {text}: {name} does not serve {namespace}, only "
            f"{', '.join(PROVIDERS[name])}"
        )


def _declare(given: dict[str, str], namespace: str, name: str) -> None:
    other = given.setdefault(namespace, name)
    if other != name:
        raise TreeError(
            f"--library declares both {other} and {name} for {namespace}; one process has one: "
            f"say which with --library {namespace}={name}"
        )


def folders(package: str) -> list[Path]:
    """Where ``package`` is installed, found without importing it; [] when it is not."""
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):  # a module without a spec, put there by hand
        return []
    places = None if spec is None else spec.submodule_search_locations
    return [Path(place) for place in places or ()]


def locate(provider: str, namespace: str, capability: Capability) -> list[Path]:
    """The package's files that register ``namespace``, in loading order; [] when it has none.

    Shared objects, or a module in Python that registers operators.
    """
    found = []
    for stem in PROVIDERS[provider][namespace]:
        for folder in folders(provider):
            file = next((f for f in _variants(folder, stem, capability) if f.is_file()), None)
            if file is not None:
                found.append(file)
                break
    return found


def _variants(folder: Path, stem: str, capability: Capability) -> list[Path]:
    if stem != "common_ops":
        return [*_binaries(folder, stem), folder / f"{stem}.py"]
    # sgl_kernel keeps one build for Hopper and one for everything else, and chooses so itself.
    if not any((folder / name).is_dir() for name in ("sm90", "sm100")):
        return _binaries(folder, stem)
    major, _ = capability() or (0, 0)
    chosen = folder / ("sm90" if major == 9 else "sm100")
    return [*_binaries(chosen, stem), *_binaries(folder, stem)]


def _binaries(folder: Path, stem: str) -> list[Path]:
    """Shared objects of a module, the one that this Python would import first."""
    ours = [folder / f"{stem}{suffix}" for suffix in importlib.machinery.EXTENSION_SUFFIXES]
    return [*ours, *sorted(folder.glob(f"{stem}.*so"))]


def module_of(provider: str, file: Path) -> str:
    """The name under which Python imports a package's ``file``."""
    return f"{provider}.{file.name.split('.')[0]}"


def registers(module: str) -> tuple[str, ...]:
    """The namespaces for which a known library's ``module`` is imported; () for all others."""
    package, _, stem = module.partition(".")
    serves = PROVIDERS.get(package, {})
    return tuple(namespace for namespace, stems in serves.items() if stem in stems)


def version(package: str) -> str | None:
    """Version of the distribution, None when it says none."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


_fingerprints: dict[tuple[str, int, int, int], str] = {}


def fingerprint(path: Path) -> str | None:
    """SHA-256 of a file, None when it cannot be read; a file that has not changed is read once.

    Nothing is loaded: a process that forks cases calls it once, and its children know the answer.
    """
    try:
        facts = path.stat()
        key = (str(path), facts.st_size, facts.st_mtime_ns, facts.st_ino)
        if key not in _fingerprints:
            sha = hashlib.sha256()
            with path.open("rb") as file:
                while chunk := file.read(1 << 20):
                    sha.update(chunk)
            _fingerprints[key] = sha.hexdigest()
        return _fingerprints[key]
    except OSError:
        return None
