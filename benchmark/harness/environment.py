"""What a measurement depends on: devices, versions, threads. Reads, never changes anything."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import socket
import sys
from functools import cache
from pathlib import Path
from typing import Any

from harness import worker
from harness.errors import UnusableError

VENDORS = ("MetaX", "NVIDIA", "AMD", "Intel", "Moore Threads", "Huawei")


def require_torch() -> None:
    """Import torch, or raise ``UnusableError`` with what to do about it."""
    try:
        import torch  # noqa: F401
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


def gpu_devices() -> list[dict[str, Any]]:
    """All GPUs that torch sees, as records' ``device``, by index.

    Asked in a forked child: the question initialises CUDA, which this process must stay clear of.
    """
    import torch

    if not torch.backends.cuda.is_built():
        return []
    ended = worker.call(_send_gpus, limit=120)
    if ended.timed_out:
        raise UnusableError("the GPU driver did not answer within 120 s; look at the host's GPUs")
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
                    "kind": "maca" if "metax" in name.lower() else "cuda",
                    "name": name,
                    "index": index,
                    "uuid": None if uuid is None else f"GPU-{uuid}",
                }
            }
        )


def device_model(kind: str, name: str) -> str:
    """The name that a device model's CSV file carries: ``MetaX C500`` gives ``C500``."""
    if kind != "cpu":
        for vendor in VENDORS:
            if name.lower().startswith(vendor.lower() + " "):
                name = name[len(vendor) :]
    cleaned = re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_")
    return f"CPU_{cleaned}" if kind == "cpu" else cleaned


def nvbench_package() -> dict[str, str] | None:
    """Which of the two packages that offer ``cuda.bench`` is installed; asks their metadata only."""
    for package in ("cuda-bench", "mxbench"):
        try:
            return {"package": package, "version": importlib.metadata.version(package)}
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


def facts() -> dict[str, Any]:
    """The record's ``environment``."""
    import torch

    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "runtime": {"cuda": torch.version.cuda, "hip": torch.version.hip},
        "nvbench": nvbench_package(),
        "host": socket.gethostname(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpu": cpu_name(),
        "cpus": len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count(),
        "threads": torch.get_num_threads(),
    }
