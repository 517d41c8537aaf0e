"""A process worth forking from: torch imported, and nothing that a fork would break.

Importing torch costs seconds, forking milliseconds. But a fork keeps only the calling thread and
copies every lock, descriptor and driver handle as it stands: with a second thread, a CUDA context,
an operator library or an open device the child may hang or measure something else. So torch is
imported with single-threaded numeric libraries, and ``soiled`` looks before a fork is made.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# What makes the numeric libraries start threads while they are imported.
_SINGLE = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
# Modules that bring a driver or kernels with them; imported after a fork only.
_FORBIDDEN = ("cuda.bench", "vllm", "mcoplib", "sgl_kernel", "cupy")
_DEVICES = ("/dev/nvidia", "/dev/mxcd", "/dev/mxgvm", "/dev/dri", "/dev/kfd")


def import_torch() -> None:
    """Import torch such that it leaves one thread; raises ``ImportError`` as the import does."""
    with _single_threaded():
        import torch  # noqa: F401


@contextmanager
def _single_threaded() -> Iterator[None]:
    before = {name: os.environ.get(name) for name in _SINGLE}
    os.environ.update(dict.fromkeys(_SINGLE, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name)
            else:
                os.environ[name] = value


def restore_threads() -> None:
    """Give torch, in a forked child, the threads it would have had without ``import_torch``."""
    import torch

    torch.set_num_threads(threads())


def threads() -> int:
    """Threads that torch uses in a case's process."""
    wanted = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    if wanted.isdigit() and int(wanted) > 0:
        return int(wanted)
    return _cores() or os.cpu_count() or 1


def _cores() -> int:
    """Physical cores that this process may use: one thread each, as torch counts by default."""
    if sys.platform != "linux":
        return 0
    allowed = os.sched_getaffinity(0)
    cores = set()
    for cpu in allowed:
        topology = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology")
        try:
            package = (topology / "physical_package_id").read_text().strip()
            cores.add((package, (topology / "core_id").read_text().strip()))
        except OSError:
            return len(allowed)
    return len(cores)


def soiled() -> str | None:
    """Why a fork of this process would not be clean; None: nothing was found.

    Looked at: threads, descriptors of GPU devices, torch's CUDA state, modules that load a driver
    or kernels. On systems without ``/proc`` the first two cannot be seen.
    """
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return "torch has initialised CUDA in it"
    loaded = [name for name in _FORBIDDEN if name in sys.modules]
    if loaded:
        return f"module {loaded[0]} is loaded in it"
    try:
        threads = len(list(Path("/proc/self/task").iterdir()))
        names = [_target(link) for link in Path("/proc/self/fd").iterdir()]
    except OSError:
        return None
    if threads > 1:
        return f"it has {threads} threads"
    opened = [name for name in names if name.startswith(_DEVICES)]
    return f"it holds {opened[0]} open" if opened else None


def _target(descriptor: Path) -> str:
    try:
        return str(descriptor.readlink())
    except OSError:  # the one that listed the folder is closed by now
        return ""
