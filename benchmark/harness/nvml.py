"""The few questions that are put to NVIDIA's management library (NVML), by ctypes.

Every answer is None where NVML does not give it: the library or a function is missing, the device
does not support the question, the caller may not ask. The library is loaded by whoever asks first
and stays; the process that forks the cases must never ask.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from functools import cache
from typing import Any, TypeAlias

LIBRARY = "libnvidia-ml.so.1"

_SUCCESS = 0
_INSUFFICIENT_SIZE = 7
_SM_CLOCK, _MEMORY_CLOCK = 1, 2
_CORE_TEMPERATURE = 0
_POWER_POLICY, _THERMAL_POLICY = 0, 1
_NOT_AVAILABLE = 2**64 - 1
_TEXT = 256

REASONS = {
    0x1: "gpu_idle",
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}

_UInt: TypeAlias = ctypes.c_uint
_ULong: TypeAlias = ctypes.c_ulonglong


class _Memory(ctypes.Structure):
    _fields_ = (("total", _ULong), ("free", _ULong), ("used", _ULong))


class _Memory2(ctypes.Structure):
    _fields_ = (
        ("version", _UInt),
        ("total", _ULong),
        ("reserved", _ULong),
        ("free", _ULong),
        ("used", _ULong),
    )


class _Violation(ctypes.Structure):
    _fields_ = (("reference_time", _ULong), ("violation_time", _ULong))


class _Process1(ctypes.Structure):
    _fields_ = (("pid", _UInt), ("memory", _ULong))


class _Process2(ctypes.Structure):
    _fields_ = (("pid", _UInt), ("memory", _ULong), ("gpu_instance", _UInt), ("compute", _UInt))


# Newest first; the plain name is of the oldest layout.
_PROCESS_CALLS: Sequence[tuple[str, type[ctypes.Structure]]] = (
    ("nvmlDeviceGetComputeRunningProcesses_v3", _Process2),
    ("nvmlDeviceGetComputeRunningProcesses_v2", _Process2),
    ("nvmlDeviceGetComputeRunningProcesses", _Process1),
)


def library() -> Nvml | None:
    """NVML of this process, started; None where it is absent or does not start."""
    return _library(LIBRARY, os.getpid())


@cache
def _library(name: str, _process: int) -> Nvml | None:
    try:
        nvml = Nvml(ctypes.CDLL(name))
    except OSError:
        return None
    return nvml if nvml.start() else None


class Nvml:
    """The library, started. Methods return None for what it does not say."""

    def __init__(self, loaded: ctypes.CDLL) -> None:
        self._loaded = loaded

    def start(self) -> bool:
        """Initialise; False when the driver is not there or refuses."""
        # Not without attaching (nvmlInitWithFlags): then an idle GPU is not found by its UUID.
        return self._code("nvmlInit_v2") == _SUCCESS

    def driver(self) -> str | None:
        """Version of the driver."""
        text = ctypes.create_string_buffer(_TEXT)
        if self._code("nvmlSystemGetDriverVersion", text, _UInt(_TEXT)) != _SUCCESS:
            return None
        return text.value.decode(errors="replace") or None

    def device(self, uuid: str) -> Device | None:
        """The GPU with this UUID."""
        handle = ctypes.c_void_p()
        given = ctypes.c_char_p(uuid.encode())
        code = self._code("nvmlDeviceGetHandleByUUID", given, ctypes.byref(handle))
        return Device(self, handle) if code == _SUCCESS else None

    def _code(self, name: str, *arguments: Any) -> int | None:
        """Status of a call, None when this library lacks it."""
        function = getattr(self._loaded, name, None)
        return None if function is None else int(function(*arguments))


class Device:
    """One GPU as NVML sees it. Methods return None for what it does not say."""

    def __init__(self, nvml: Nvml, handle: ctypes.c_void_p) -> None:
        self._nvml = nvml
        self._handle = handle

    def sm_clock(self) -> int | None:
        """Clock of the multiprocessors now, in MHz."""
        return self._number("nvmlDeviceGetClockInfo", _UInt(_SM_CLOCK))

    def memory_clock(self) -> int | None:
        """Clock of the memory now, in MHz."""
        return self._number("nvmlDeviceGetClockInfo", _UInt(_MEMORY_CLOCK))

    def temperature(self) -> int | None:
        """Temperature of the die in degrees Celsius."""
        return self._number("nvmlDeviceGetTemperature", _UInt(_CORE_TEMPERATURE))

    def power(self) -> int | None:
        """Power drawn, in milliwatts."""
        return self._number("nvmlDeviceGetPowerUsage")

    def power_limit(self) -> int | None:
        """Power that the board may draw now, in milliwatts."""
        return self._number("nvmlDeviceGetEnforcedPowerLimit")

    def default_power_limit(self) -> int | None:
        """Power that the board may draw as it was delivered, in milliwatts."""
        return self._number("nvmlDeviceGetPowerManagementDefaultLimit")

    def throttle_reasons(self) -> list[str] | None:
        """Why the clock is not higher now, by names of ``REASONS``; bits without a name in hex."""
        mask = _ULong()
        name = "nvmlDeviceGetCurrentClocksThrottleReasons"
        code = self._code(name, ctypes.byref(mask))
        if code is None:  # as it may be called one day
            code = self._code("nvmlDeviceGetCurrentClocksEventReasons", ctypes.byref(mask))
        if code != _SUCCESS:
            return None
        bits = [1 << n for n in range(64) if mask.value >> n & 1]
        return [REASONS.get(bit, hex(bit)) for bit in bits]

    def power_throttled(self) -> int | None:
        """Nanoseconds since the driver was loaded that the power limit held the clock down."""
        return self._violation(_POWER_POLICY)

    def thermally_throttled(self) -> int | None:
        """Nanoseconds since the driver was loaded that heat held the clock down."""
        return self._violation(_THERMAL_POLICY)

    def memory_used(self) -> int | None:
        """Bytes in use; older drivers count what they keep for themselves."""
        claimed = self.memory_claimed()
        if claimed is not None:
            return claimed
        memory = _Memory()
        code = self._code("nvmlDeviceGetMemoryInfo", ctypes.byref(memory))
        return int(memory.used) if code == _SUCCESS else None

    def memory_claimed(self) -> int | None:
        """Bytes in use without what the driver keeps for itself."""
        memory = _Memory2(version=ctypes.sizeof(_Memory2) | 2 << 24)
        code = self._code("nvmlDeviceGetMemoryInfo_v2", ctypes.byref(memory))
        return int(memory.used) if code == _SUCCESS else None

    def processes(self) -> list[tuple[int, int | None]] | None:
        """Processes with a compute context: pid as the host counts, and bytes where known."""
        for name, layout in _PROCESS_CALLS:
            room = 64
            # The list may grow between two calls.
            for _ in range(8):
                count = _UInt(room)
                table = (layout * room)()
                code = self._code(name, ctypes.byref(count), table)
                if code != _INSUFFICIENT_SIZE:
                    break
                room = max(count.value, room) * 2
            if code == _SUCCESS:
                found = table[: min(count.value, room)]
                return [(p.pid, None if p.memory == _NOT_AVAILABLE else p.memory) for p in found]
            if code is not None:
                return None
        return None

    def _violation(self, policy: int) -> int | None:
        times = _Violation()
        code = self._code("nvmlDeviceGetViolationStatus", _UInt(policy), ctypes.byref(times))
        return int(times.violation_time) if code == _SUCCESS else None

    def _number(self, name: str, *which: _UInt) -> int | None:
        number = _UInt()
        code = self._code(name, *which, ctypes.byref(number))
        return number.value if code == _SUCCESS else None

    def _code(self, name: str, *arguments: Any) -> int | None:
        return self._nvml._code(name, self._handle, *arguments)
