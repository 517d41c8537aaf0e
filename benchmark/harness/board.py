"""What state a GPU is in: clocks, temperature, power, memory, who else is on it, does it answer.

NVML tells (``nvml``). ``snapshot`` asks in the process that calls it, which may hold a CUDA
context; all other questions are put by a forked child, so that the process that forks the cases
loads neither NVML nor CUDA.

MetaX: there is no NVML. What torch offers for its devices is asked instead, and what it does not
offer is null. This was written from torch's interface and not seen on a MetaX board.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import nvml, worker

# Memory that the driver gives back later, or keeps for other reasons than a process.
_SLACK_BYTES = 64 << 20
# Memory in use that no listed process explains counts as somebody's above this.
_UNEXPLAINED_BYTES = 512 << 20
_POLL_SECONDS = 0.02
# The PID namespace of the host itself has this number in every Linux.
_HOST_PIDS = "pid:[4026531836]"
_FIELDS = (
    "sm_clock_mhz",
    "memory_clock_mhz",
    "temperature_c",
    "power_w",
    "power_limit_w",
    "default_power_limit_w",
    "throttle_reasons",
    "power_throttled_ns",
    "thermally_throttled_ns",
    "memory_used_bytes",
    "driver",
)


def snapshot(device: dict[str, Any]) -> dict[str, Any] | None:
    """The board's state now: MHz, degrees Celsius, watts, bytes; None for a CPU.

    ``throttle_reasons`` are the names in ``nvml.REASONS``; ``*_throttled_ns`` count since the
    driver was loaded, so that the difference of two snapshots says what happened between them.
    ``source`` says who was asked (``nvml``, ``torch``); it is null, as everything else then is,
    where nobody answers.
    """
    if device["kind"] == "cpu":
        return None
    nothing = {"source": None, **dict.fromkeys(_FIELDS)}
    found = _by_torch(device) if device["kind"] == "maca" else _by_nvml(device)
    return nothing | found


def _by_nvml(device: dict[str, Any]) -> dict[str, Any]:
    library = nvml.library()
    board = _board(device)
    if library is None or board is None:
        return {}
    return {
        "source": "nvml",
        "sm_clock_mhz": board.sm_clock(),
        "memory_clock_mhz": board.memory_clock(),
        "temperature_c": board.temperature(),
        "power_w": _watts(board.power()),
        "power_limit_w": _watts(board.power_limit()),
        "default_power_limit_w": _watts(board.default_power_limit()),
        "throttle_reasons": board.throttle_reasons(),
        "power_throttled_ns": board.power_throttled(),
        "thermally_throttled_ns": board.thermally_throttled(),
        "memory_used_bytes": board.memory_used(),
        "driver": library.driver(),
    }


def _board(device: dict[str, Any]) -> nvml.Device | None:
    """NVML's device; None without a UUID: an index means another GPU to NVML than to torch."""
    library = nvml.library()
    if library is None or device["uuid"] is None:
        return None
    return library.device(device["uuid"])


def _watts(milliwatts: int | None) -> float | None:
    return None if milliwatts is None else milliwatts / 1000


def _by_torch(device: dict[str, Any]) -> dict[str, Any]:
    import torch

    index = device["index"]
    questions: dict[str, Callable[[], Any]] = {
        "sm_clock_mhz": lambda: int(torch.cuda.clock_rate(index)),
        "temperature_c": lambda: int(torch.cuda.temperature(index)),
        "power_w": lambda: torch.cuda.power_draw(index) / 1000,
        "memory_used_bytes": lambda: _used_by_torch(index),
    }
    found: dict[str, Any] = {}
    for name, ask in questions.items():
        # A vendor's port may lack the function or raise whatever it likes.
        with suppress(Exception):
            found[name] = ask()
    return {"source": "torch", **found} if found else {}


def _used_by_torch(index: int) -> int:
    import torch

    free, total = torch.cuda.mem_get_info(index)
    return int(total - free)


def driver(limit: float = 10.0) -> str | None:
    """Version of the GPU driver as NVML says; None where there is none."""

    def ask(send: worker.Send) -> None:
        library = nvml.library()
        send({"driver": None if library is None else library.driver()})

    answer: str | None = _asked(ask, limit).get("driver")
    return answer


def _used(device: dict[str, Any]) -> int | None:
    if device["kind"] == "maca":
        with suppress(Exception):
            return _used_by_torch(device["index"])
        return None
    board = _board(device)
    return None if board is None else board.memory_used()


@dataclass(frozen=True)
class Idle:
    """A GPU while no process of ours is on it; None where something is not known.

    ``foreign`` are those that compute there: ``pid``, ``name``, ``memory_bytes`` each. NVML gives
    pids of the host; in a container they mean nothing here, and ``name`` is null. Memory in use
    without a process that NVML lists (a container that may not see others) is somebody with a null
    ``pid``. ``settled``: used memory came back to what it was before.
    """

    used_bytes: int | None
    foreign: list[dict[str, Any]] | None
    settled: bool


def idle(device: dict[str, Any], before: int | None = None, limit: float = 10.0) -> Idle:
    """Look at a GPU through a forked child; wait until used memory is back near ``before`` bytes.

    To be asked while no process of ours is on the GPU. A GPU that does not tell its memory counts
    as not settled when it was waited for.
    """
    if device["kind"] == "cpu":
        return Idle(None, None, True)

    def ask(send: worker.Send) -> None:
        settled = before is None or _settles(device, before, limit)
        send({"settled": settled, "used": _used(device), **_processes(device)})

    answer = _asked(ask, limit if before is None else limit + 5.0)
    if not answer:
        return Idle(None, None, before is None)
    return Idle(answer["used"], _foreign(answer), answer["settled"])


def _settles(device: dict[str, Any], before: int, limit: float) -> bool:
    deadline = time.monotonic() + limit
    while True:
        used = _used(device)
        back = used is not None and used <= before + _SLACK_BYTES
        if back or used is None or time.monotonic() >= deadline:
            return back
        time.sleep(_POLL_SECONDS)


def _processes(device: dict[str, Any]) -> dict[str, Any]:
    board = _board(device) if device["kind"] == "cuda" else None
    found = None if board is None else board.processes()
    if board is None or found is None:
        return {"processes": None, "claimed": None}
    return {"processes": found, "claimed": board.memory_claimed()}


def _foreign(answer: dict[str, Any]) -> list[dict[str, Any]] | None:
    if answer["processes"] is None:
        return None
    processes: list[dict[str, Any]] = [
        {"pid": pid, "name": _name(pid), "memory_bytes": memory}
        for pid, memory in answer["processes"]
    ]
    claimed = answer["claimed"]
    if not processes and claimed is not None and claimed > _UNEXPLAINED_BYTES:
        processes.append({"pid": None, "name": None, "memory_bytes": claimed})
    return processes


def _name(pid: int) -> str | None:
    try:
        if str(Path("/proc/self/ns/pid").readlink()) != _HOST_PIDS:
            return None
        return Path(f"/proc/{pid}/comm").read_text(errors="replace").rstrip("\n") or None
    except OSError:
        return None


def answers(device: dict[str, Any], limit: float = 60.0) -> str | None:
    """Compute something small on the device, in a child; None when it is right, else why not."""

    def ask(send: worker.Send) -> None:
        try:
            send({"wrong": _computes(device)})
        except Exception as error:  # noqa: BLE001 - any failure is the answer
            send({"wrong": f"{type(error).__name__}: {' '.join(str(error).split())}"})

    ended = worker.call(ask, limit)
    if ended.timed_out:
        return f"a small computation hangs, no answer within {limit:g} s"
    if not ended.messages:
        return ended.how() or "the process that computes ended without an answer"
    wrong: str | None = ended.messages[0]["wrong"]
    return wrong


def _computes(device: dict[str, Any]) -> str | None:
    import torch

    place = "cpu" if device["kind"] == "cpu" else f"cuda:{device['index']}"
    numbers = torch.arange(4096, dtype=torch.float64, device=place)
    found = float((numbers * 2 + 1).sum().item())
    expected = 4096.0**2  # the sum of the odd numbers
    return None if found == expected else f"a small computation gave {found}, not {expected}"


def _asked(ask: Callable[[worker.Send], None], limit: float) -> dict[str, Any]:
    """What a forked child answers; empty when it does not."""
    ended = worker.call(ask, limit)
    if ended.timed_out or not ended.messages:
        return {}
    return ended.messages[0]
