"""What a measurement depends on: devices, versions, threads. Reads, never changes anything."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import socket
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any

from harness import board, markers, preload, worker
from harness.errors import UnusableError

# The controller names its CSV files by the same rules.
_VENDORS = re.compile(
    r"\A(?:metax|nvidia|amd|advanced micro devices|intel(?:\(r\))?|hygon|iluvatar"
    r"|moore threads)\s+",
    re.IGNORECASE,
)
_NOISE = re.compile(r"\((?:r|tm|c)\)|®|™|\s@\s.*$|\bCPU\b|\b\d+-core processor\b", re.IGNORECASE)
_GIT_SECONDS = 5.0
# Of the tree: what decides what is measured and how.
_MEASURED = ("config", "runners", "harness", ":(exclude,glob)**/__pycache__/**")
_OTHER = re.compile(r"[^A-Za-z0-9.+-]+")


def require_torch() -> None:
    """Import torch, or raise ``UnusableError`` with what to do about it."""
    try:
        preload.import_torch()
    except ImportError as error:
        version = platform.python_version()
        raise UnusableError(
            f"{sys.executable} (Python {version}) cannot import torch ({error}); install torch "
            "there or set the target's python to one that has it"
        ) from None


@cache
def cpu_name() -> str:
    """The CPU's model name, as good as the system tells it."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    found = re.search(r"^(?:model name|Model|Processor)\s*:\s*(.+)$", text, re.MULTILINE)
    return found[1].strip() if found else platform.processor() or platform.machine()


def cpu_device() -> dict[str, Any]:
    """The CPU as a record's ``device``."""
    return {"kind": "cpu", "name": cpu_name(), "index": 0, "uuid": None}


# What a server has asked once for the front doors that it forks.
_remembered: dict[str, Any] = {}


def remember(root: Path) -> None:
    """Ask now for the GPUs and the facts of the tree ``root``; forks of this process know them.

    Raises ``UnusableError`` as ``gpu_devices`` does; then nothing is remembered.
    """
    gpus = gpu_devices()
    _remembered.update({"gpus": gpus, f"facts of {root}": facts(root)})


def gpu_devices() -> list[dict[str, Any]]:
    """All GPUs that torch sees, as records' ``device``, by index; a warning when it should see any.

    Asked in a forked child: the question initialises CUDA, which this process must stay clear of.
    """
    import torch

    if "gpus" in _remembered:
        return list(_remembered["gpus"])

    if not torch.backends.cuda.is_built():  # type: ignore[no-untyped-call]
        return []
    ended = worker.call(_send_gpus, limit=120)
    if ended.timed_out:
        raise UnusableError("the GPU driver did not answer within 120 s; look at the host's GPUs")
    if ended.how() is not None:
        raise UnusableError(f"asking torch for its GPUs failed: {ended.how()}")
    if not ended.messages:
        markers.warn("this torch is built for GPUs but sees none; measuring on the CPU")
    return [message["gpu"] for message in ended.messages]


def _send_gpus(send: worker.Send) -> None:
    import torch

    if not torch.cuda.is_available():
        return
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        name = properties.name
        uuid = getattr(properties, "uuid", None)
        send(
            {
                "gpu": {
                    "kind": _gpu_kind(name),
                    "name": name,
                    "index": index,
                    "uuid": None if uuid is None else f"GPU-{str(uuid).removeprefix('GPU-')}",
                    "l2_bytes": getattr(properties, "L2_cache_size", None),
                }
            }
        )


def device_model(name: str, kind: str = "cuda") -> str:
    """The model of a device, as CSV files are named by it: ``MetaX C500`` gives ``C500``."""
    if kind == "cpu":
        cleaned = _clean(_NOISE.sub(" ", name))
        return f"CPU_{cleaned}" if cleaned else "CPU"
    return _clean(_VENDORS.sub("", name.strip(), count=1)) or "unknown"


def _clean(name: str) -> str:
    return _OTHER.sub("_", name).strip("_.")


def _gpu_kind(name: str) -> str:
    # MetaX' torch calls its devices CUDA; the name or MetaX' own toolkit tells.
    if "metax" in name.lower() or ("MACA_PATH" in os.environ and "nvidia" not in name.lower()):
        return "maca"
    return "cuda"


def first_device_model() -> str:
    """Model of the device that a run without further flags uses."""
    require_torch()
    device = next(iter(gpu_devices()), None) or cpu_device()
    return device_model(device["name"], device["kind"])


def nvbench_package() -> dict[str, str] | None:
    """Which package that offers ``cuda.bench`` is installed; reads their metadata only."""
    for package in ("cuda-bench", "mxbench"):
        try:
            return {"package": package, "version": importlib.metadata.version(package)}
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


def mismatch(device: dict[str, Any], expected: Any) -> str | None:
    """What is odd when ``device`` is none of ``expected``, a config's ``device_name``; else None.

    ``expected`` is a name or a list of names, compared as models: vendor and case do not count.
    None or empty expects nothing.
    """
    names = [str(name) for name in (expected if isinstance(expected, list) else [expected or ""])]
    names = [name for name in names if name.strip()]
    models = {device_model(name, kind).casefold() for name in names for kind in ("cuda", "cpu")}
    if not names or device_model(device["name"], device["kind"]).casefold() in models:
        return None
    return f"the config is for {' or '.join(names)}, this device is {device['name']}"


def commit(root: Path) -> str | None:
    """HEAD of the checkout that the tree ``root`` is part of; None where there is none.

    ``+dirty`` when what is measured differs from it. A tree may lie in somebody else's checkout
    (a home folder, say): what git does not know of it says nothing. Never a failure.
    """
    deadline = time.monotonic() + _GIT_SECONDS
    try:
        head = _git(root, deadline, "rev-parse", "--verify", "HEAD").strip()
        if not _git(root, deadline, "ls-tree", "--name-only", "HEAD", "--", "harness"):
            return None
        state = _git(root, deadline, "status", "--porcelain", "--", *_MEASURED)
    except (OSError, subprocess.SubprocessError):
        return None
    return f"{head}+dirty" if state else head


def _git(root: Path, deadline: float, *words: str) -> str:
    # Where git looks is the folder's affair, not that of a hook that called us; and no program
    # that the checkout's settings name is run.
    environment = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    done = subprocess.run(
        ["git", "--no-optional-locks", "-c", "core.fsmonitor=false", "-C", str(root), *words],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        encoding="utf-8",
        errors="surrogateescape",
        timeout=max(deadline - time.monotonic(), 0.0),
        check=True,
    )
    return done.stdout


def facts(root: Path) -> dict[str, Any]:
    """The record's ``environment``, for the tree ``root``."""
    import torch

    known: dict[str, Any] | None = _remembered.get(f"facts of {root}")
    if known is not None:
        return dict(known)
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "runtime": {"cuda": torch.version.cuda, "hip": torch.version.hip},
        "nvbench": nvbench_package(),
        "driver": board.driver(),
        "commit": commit(root),
        "host": socket.gethostname(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpu": cpu_name(),
        "cpus": len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count(),
        "threads": preload.threads(),
    }
