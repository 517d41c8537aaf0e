"""Load the operator libraries that a runner needs, before it is imported, and say which they are.

For each namespace of ``torch.ops`` that the runner calls: what ``--library`` declares, else what
the runner's own imports name where that is installed, else the only library there is. Several and
no declaration is an error, never a race. Of a package only the binary is loaded.

What is not there makes the case UNAVAILABLE, before any data is made. What is there and does not
load, or would be a second provider, is an ERROR with its own name.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from harness import absence, needs, providers
from harness.errors import BrokenLibraryError, UnavailableError, UnusableError
from harness.exclusive import Exclusive, stand_in

if TYPE_CHECKING:
    from harness.base import OpBenchmarkBase


@dataclass(frozen=True)
class _Binary:
    """A loaded file of ``provider``, a package or a path, and the operators that it brought."""

    provider: str
    path: Path
    operators: frozenset[str]

    def namespaces(self) -> set[str]:
        return _namespaces(self.operators)

    def described(self) -> dict[str, Any]:
        known = self.provider in providers.PROVIDERS
        return {
            "name": self.provider if known else self.path.name.split(".")[0],
            "version": providers.version(self.provider) if known else None,
            "path": str(self.path),
            "sha256": providers.fingerprint(self.path),
        }

    def __str__(self) -> str:
        told = self.described()
        name = f"{told['name']} {told['version']}" if told["version"] else told["name"]
        return f"{name} ({self.path})"


class Libraries:
    """The operator libraries of one process, which is a case's own.

    ``device`` is the case's, as the record has it; ``capability`` is asked for the GPU's, where a
    library has several builds.
    """

    def __init__(
        self,
        source: str,
        declared: providers.Declared,
        device: dict[str, Any],
        capability: providers.Capability,
    ) -> None:
        self._needs = needs.read(source)
        self._declared = declared
        self._on_cpu = device["kind"] == "cpu"
        self._capability = capability
        self._binaries: list[_Binary] = []
        self._exclusive = Exclusive()
        self._runner: ModuleType | None = None
        own = _namespaces(_registered())
        self._wanted = [name for name in self._needs.namespaces if name not in own]

    def load(self) -> None:
        """Load what the runner's namespaces need; what is not there is told by ``check``.

        Raises ``LibraryError`` for a library that does not load, ``UnusableError`` when it is not
        clear which to take, ``UnavailableError`` when it wants a GPU and there is none.
        """
        if not self._wanted:
            return
        for path in self._declared.paths:
            self._load_file(_declared_file(path), path)
        for namespace in self._wanted:
            if namespace not in self._exclusive.held:
                self._serve(namespace)
        for package in providers.PROVIDERS:
            self._spare(package)

    def _serve(self, namespace: str) -> None:
        declared = self._declared.by_namespace.get(namespace)
        if declared is not None and providers.is_path(declared):
            self._load_file(_declared_file(declared), declared)
            if namespace not in self._exclusive.held:
                raise BrokenLibraryError(
                    f"{declared} is declared for {namespace} and registers no operator in it"
                )
            return
        package = declared or self._choose(namespace)
        if package is None:
            return
        for twin in providers.twins(package, namespace):
            holder = self._exclusive.held.get(twin, package)
            if holder != package:
                raise UnusableError(
                    f"{package} would serve {namespace}, but its binary registers {twin} too, "
                    f"which is served by {holder}; declare one for both: --library {namespace}=..."
                )
        files = providers.locate(package, namespace, self._capability)
        for file in files:
            # Also those that are not loaded here: the runner may import them.
            self._exclusive.allow(file)
        for file in files:
            self._load_file(file, package)
            self._exclusive.hold(namespace, package)
            if self._all_there(namespace, package):
                # Loading a binary of a hundred megabytes takes each process a while.
                return

    def _all_there(self, namespace: str, package: str) -> bool:
        """Whether every operator of ``namespace`` that the runner can call is registered by now."""
        if namespace in self._needs.unnamed or self._needs.own or self._needs.whole(package):
            return False
        head = f"{namespace}::"
        called = {name for name in self._needs.operators if name.startswith(head)}
        return called <= {name.partition(".")[0] for name in _registered()}

    def _choose(self, namespace: str) -> str | None:
        """The package that serves ``namespace`` without a declaration, None when none is there."""
        there = [
            package
            for package, serves in providers.PROVIDERS.items()
            if namespace in serves and providers.locate(package, namespace, self._capability)
        ]
        imported = self._needs.imports
        exact = [name for name in imported if namespace in providers.registers(name)]
        for name in [*exact, *imported]:
            if name.split(".")[0] in there:
                return name.split(".")[0]
        if len(there) > 1:
            found = " and ".join(f"{package} ({absence.at(package)})" for package in there)
            choice = " or ".join(f"--library {package}" for package in there)
            raise UnusableError(
                f"torch.ops.{namespace} can be had from {found}; say which with {choice} "
                "(for a target: its `library` in the inventory)"
            )
        return there[0] if there else None

    def _load_file(self, file: Path, provider: str) -> None:
        if any(binary.path == file for binary in self._binaries):
            return
        before = _registered()
        if file.suffix == ".py":
            self._import(file, provider)
        else:
            self._load_binary(file, provider)
        binary = _Binary(provider, file, frozenset(_registered() - before))
        self._binaries.append(binary)
        self._exclusive.allow(file)
        for name in sorted(binary.namespaces()):
            self._exclusive.hold(name, provider)

    def _load_binary(self, file: Path, provider: str) -> None:
        import torch

        try:
            torch.ops.load_library(str(file))  # type: ignore[no-untyped-call]
            return
        except OSError as error:
            refused = absence.named(error)
            if refused is not None:
                raise refused from None
            reason = str(error.__cause__ or error)
        runtime = absence.missing_runtime(reason)
        if runtime and self._on_cpu:
            raise UnavailableError(f"{file} needs a GPU's {runtime}; this case runs on the CPU")
        if not self._imports(file, provider):
            raise BrokenLibraryError(f"{file} is there but does not load: {reason}")
        # Its package may prepare what the binary needs, and the runner imports it anyway.
        self._import(file, provider, f"{reason}; imported: ")

    def _imports(self, file: Path, provider: str) -> bool:
        known = provider in providers.PROVIDERS
        return known and providers.module_of(provider, file) in self._needs.imports

    def _import(self, file: Path, provider: str, before: str = "") -> None:
        name = providers.module_of(provider, file)
        try:
            importlib.import_module(name)
        except Exception as error:
            raise BrokenLibraryError(
                f"{file} is there but does not load: {before}{type(error).__name__}: {error}"
            ) from error

    def _spare(self, package: str) -> None:
        """Spare the process a package that the runner imports for its binaries only."""
        modules = [name for name in self._needs.imports if name.split(".")[0] == package]
        if not modules or self._needs.whole(package) or not providers.folders(package):
            return
        loaded = any(b.provider == package and b.path.suffix != ".py" for b in self._binaries)
        if loaded or any(self._exclusive.refusal(name) for name in modules):
            stand_in(package)

    def check(self, runner: ModuleType) -> None:
        """See that the imported runner has something to call, before it makes any data.

        Raises ``UnavailableError``, naming what was looked for, when nothing that it calls is
        here; ``LibraryError`` when a library is there and broken, or a second one came in.
        """
        self._runner = runner
        self._exclusive.check_mapped()
        certain = self._needs.certain
        optional = self._needs.optional_modules()
        missing = {bound: name for bound, name in optional.items() if not hasattr(runner, bound)}
        registered = {name.split(".")[0] for name in _registered()}
        calls = [name for name in self._needs.operators if name.split("::")[0] in self._wanted]
        unnamed = [s for s in self._wanted if not any(c.startswith(f"{s}::") for c in calls)]
        there = (
            bool(registered.intersection(calls))
            or bool(_namespaces(registered).intersection(unnamed))
            or len(missing) < len(optional)
            or bool(self._modules())
        )
        if there or self._needs.own or not certain.intersection([*self._wanted, *missing]):
            return
        told = [self._no_operator(*name.split("::")) for name in calls[:1]]
        told += [self._no_library(namespace) for namespace in unnamed]
        told += [absence.no_module(name) for name in missing.values()]
        raise UnavailableError("; ".join(told))

    def _no_operator(self, namespace: str, name: str) -> str:
        holder = self._exclusive.held.get(namespace)
        binaries = [b for b in self._binaries if namespace in b.namespaces()]
        binaries = binaries or [b for b in self._binaries if b.provider == holder]
        if not binaries:
            return self._no_library(namespace, name)
        shown = " and ".join(map(str, binaries))
        return f"no operator torch.ops.{namespace}.{name} is registered by {shown}"

    def _no_library(self, namespace: str, name: str | None = None) -> str:
        return absence.no_library(namespace, name, self._declared.by_namespace.get(namespace))

    def absence(self, error: BaseException) -> str | None:
        """What is absent when ``error``, which the runner raised, means that something is."""
        operator = absence.missing_operator(error)
        if operator is not None:
            return self._no_operator(*operator)
        optional = self._needs.optional
        if isinstance(error, NameError) and error.name in optional:
            return absence.no_module(optional[error.name])
        if isinstance(error, AttributeError) and error.obj is None:
            # ``except ImportError: op = None``
            for bound, name in optional.items():
                if getattr(self._runner, bound, error) is None:
                    return absence.no_module(name)
        return absence.absence(error)

    def describe(self, cls: type[OpBenchmarkBase] | None = None) -> dict[str, Any] | None:
        """Name, version, path and hash of the library behind a runner; None when unknown.

        That is the one which registers an operator that the runner calls. ``binaries`` lists all
        that were loaded, when they are several.
        """
        if cls is not None and cls.library is not None:
            version = providers.version(cls.library)
            return {"name": cls.library, "version": version, "path": None, "sha256": None}
        binaries = [*self._binaries, *self._modules()]
        if not binaries:
            return None
        calls = set(self._needs.operators)
        called = [b for b in binaries if calls & {name.split(".")[0] for name in b.operators}]
        main = (called or binaries)[0].described()
        if len(binaries) > 1:
            main["binaries"] = [binary.described() for binary in binaries]
        return main

    def _modules(self) -> list[_Binary]:
        """Modules of known libraries that the runner imported for their functions."""
        found = []
        for name in self._needs.imports:
            path = getattr(sys.modules.get(name), "__file__", None)
            if path is not None and not providers.registers(name):
                found.append(_Binary(name.split(".")[0], Path(path), frozenset()))
        return found


def remember(source: str, declared: providers.Declared) -> None:
    """Hash, without loading, the files that a runner's namespaces may need.

    For a process that forks several cases of it: they find the hashes done.
    """
    wanted = needs.read(source)
    for namespace in wanted.namespaces:
        given = declared.by_namespace.get(namespace)
        for package, serves in providers.PROVIDERS.items():
            if namespace in serves and given in (None, package):
                for file in providers.locate(package, namespace, lambda: None):
                    providers.fingerprint(file)
    if wanted.namespaces:
        for path in [*declared.paths, *declared.by_namespace.values()]:
            if providers.is_path(path):
                providers.fingerprint(Path(path).absolute())


def remember_installed(words: Sequence[str]) -> None:
    """As ``remember``, for all known libraries, and for files that a command's ``words`` name."""
    for package, serves in providers.PROVIDERS.items():
        for namespace in serves:
            for file in providers.locate(package, namespace, lambda: None):
                providers.fingerprint(file)
    for word in words:
        path = word.rpartition("=")[2]
        if path.endswith(".so"):
            providers.fingerprint(Path(path).absolute())


def _registered() -> set[str]:
    import torch

    return set(torch._C._dispatch_get_all_op_names())


def _namespaces(operators: set[str] | frozenset[str]) -> set[str]:
    return {name.split("::")[0] for name in operators}


def _declared_file(path: str) -> Path:
    file = Path(path).absolute()
    if not file.is_file():
        raise UnusableError(f"--library {path}: there is no such file on this machine")
    return file
