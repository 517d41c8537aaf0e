"""One provider a namespace and process: whatever would be the second one is refused by name.

Two libraries that register the same namespace either kill the process (torch throws while the
second one is loaded, where nothing can catch it) or silently replace each other's kernels. So
modules of known libraries are refused when they are imported, and any other shared object that
registers operators is first loaded on trial, in a fork.
"""

from __future__ import annotations

import ctypes
import faulthandler
import importlib.machinery
import mmap
import os
import re
import resource
import sys
import tempfile
import warnings
from collections.abc import Sequence
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from harness import providers
from harness.errors import BrokenLibraryError, SecondLibraryError

# A library that registers operators refers to one of these, stripped or not.
_REGISTERS = (b"_ZN5torch7LibraryC", b"aoti_torch_library_init")
_CLASH = re.compile(
    r"Only a single TORCH_LIBRARY.*|Tried to register an operator.*"
    r"|Overriding a previously registered kernel.*"
)


class Exclusive:
    """What holds each namespace in this process, and the files that were loaded for it."""

    def __init__(self) -> None:
        self.held: dict[str, str] = {}
        self._files: set[str] = set()
        self._watching = False
        self._asking = False

    def hold(self, namespace: str, holder: str) -> None:
        """Note that ``holder``, a package or a path, serves ``namespace``; keep others out."""
        self.held.setdefault(namespace, holder)
        if not self._watching:
            self._watching = True
            sys.meta_path.insert(0, _Finder(self))
            self._watch_loading()

    def allow(self, file: Path) -> None:
        """``file`` is one of those that were chosen."""
        self._files.add(os.path.realpath(file))

    def refusal(self, module: str) -> str | None:
        """Why ``module`` may not be imported: a namespace of it has another provider."""
        package = module.split(".")[0]
        if self._asking:
            return None
        # Importing sgl_kernel loads its binary.
        whole = ("sgl_kernel",) if module == "sgl_kernel" else ()
        for namespace in whole or providers.registers(module):
            holder = self.held.get(namespace, package)
            chosen = [str(f) for f in self._located(package, namespace) if self._chosen(f)]
            if holder not in (package, *chosen):
                return (
                    f"{module} is not imported: {namespace} is served by {holder} in this "
                    f"process, and a second library for it would clash"
                )
        return None

    def _chosen(self, file: Path) -> bool:
        return os.path.realpath(file) in self._files

    def _located(self, package: str, namespace: str) -> list[Path]:
        # Locating asks the finders, this one too.
        self._asking = True
        try:
            return providers.locate(package, namespace, lambda: None)
        finally:
            self._asking = False

    def check_mapped(self) -> None:
        """Raise ``SecondLibraryError`` when another known library for a namespace is in memory."""
        try:
            lines = Path("/proc/self/maps").read_text(errors="replace").splitlines()
        except OSError:
            return
        mapped = {line.split(maxsplit=5)[-1] for line in lines if line.endswith(".so")}
        for namespace, holder in self.held.items():
            for package in providers.PROVIDERS:
                if package == holder or namespace not in providers.PROVIDERS[package]:
                    continue
                for file in self._located(package, namespace):
                    if os.path.realpath(file) in mapped - self._files:
                        raise SecondLibraryError(
                            f"{namespace} has two providers in this process: {holder} and "
                            f"{package} ({file}, loaded by the runner or what it imports)"
                        )

    def _watch_loading(self) -> None:
        """Look at every shared object before it is loaded by ctypes or as a module."""
        load, create = ctypes.CDLL.__init__, ExtensionFileLoader.create_module

        def checked_load(library: ctypes.CDLL, name: Any, *args: Any, **keywords: Any) -> None:
            if isinstance(name, (str, os.PathLike)):
                self._check(str(name))
            load(library, name, *args, **keywords)

        def checked_create(loader: ExtensionFileLoader, spec: ModuleSpec) -> ModuleType:
            self._check(loader.path)
            return create(loader, spec)

        ctypes.CDLL.__init__ = checked_load  # type: ignore[method-assign,assignment]
        ExtensionFileLoader.create_module = checked_create  # type: ignore[method-assign,assignment]

    def _check(self, name: str) -> None:
        path = os.path.realpath(name)
        if path in self._files or not _registers(path):
            return
        said = try_to_load(path)
        clash = _CLASH.search(said)
        if clash:
            holders = ", ".join(f"{name} by {holder}" for name, holder in self.held.items())
            raise SecondLibraryError(
                f"{path} is not loaded: it registers what another library holds ({holders}); "
                f"torch says: {clash[0][:200]}"
            )
        self._files.add(path)


class _Finder:
    """A ``sys.meta_path`` finder that only refuses."""

    def __init__(self, exclusive: Exclusive) -> None:
        self._exclusive = exclusive

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """None, or ``SecondLibraryError`` (an ImportError) for a module that would clash."""
        reason = self._exclusive.refusal(name)
        if reason is not None:
            raise SecondLibraryError(reason)
        return None


def stand_in(package: str) -> None:
    """Let modules of ``package`` be imported without running its ``__init__``."""
    spec = importlib.machinery.ModuleSpec(package, None, is_package=True)
    places = [str(folder) for folder in providers.folders(package)]
    spec.submodule_search_locations = places
    module = ModuleType(package, "Stands in for the package, of which only a binary is wanted.")
    module.__spec__ = spec
    module.__path__ = places
    sys.modules.setdefault(package, module)


def _registers(path: str) -> bool:
    """Whether a shared object registers operators with torch."""
    try:
        with (
            Path(path).open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
        ):
            return any(data.find(word) >= 0 for word in _REGISTERS)
    except (OSError, ValueError):  # the loader looks for it elsewhere, or it is empty
        return False


def try_to_load(path: str) -> str:
    """Load ``path`` in a fork of this process; what that wrote to its standard error.

    Raises ``BrokenLibraryError`` when loading kills the process, for another reason than a clash.
    """
    sys.stderr.flush()
    with tempfile.TemporaryFile() as log, warnings.catch_warnings():
        # Python warns of threads; all that the fork does is loading.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
        if pid == 0:
            try:
                # Dying here is an answer, not an accident to be reported.
                faulthandler.disable()
                resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
                os.dup2(log.fileno(), 2)
                with os.fdopen(os.open(os.devnull, os.O_WRONLY), "wb") as nowhere:
                    os.dup2(nowhere.fileno(), 1)
                ctypes._dlopen(path, ctypes.DEFAULT_MODE)  # type: ignore[attr-defined]
            finally:
                os._exit(0)
        _, status = os.waitpid(pid, 0)
        log.seek(0)
        said = log.read().decode("utf-8", "replace")
    if os.WIFSIGNALED(status) and not _CLASH.search(said):
        lines = said.strip().splitlines() or [f"signal {os.WTERMSIG(status)}"]
        raise BrokenLibraryError(f"{path}: loading it kills the process: {lines[0]}")
    return said
