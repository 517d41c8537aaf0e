"""What GPUs can do at most, and what a measurement says beside it: roofline fractions and flags.

The peaks are those of the vendors' data sheets, dense (without sparsity), with the tensor cores
where a type has them. What a sheet does not say plainly is left out. Users can give their own
(``--specs``, ``gpu_specs`` of the inventory).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.environment import device_model
from harness.errors import TreeError

# Above this part of a peak, what was declared or timed cannot be right.
ABOVE = 1.05
# Back to back this much slower than alone: see ``_launch_bound``.
LAUNCHING = 1.25
# A smaller number is in another unit than bytes or operations a second.
_LEAST, _MOST = 1e9, 1e21

CLASSES = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8")
_CLASS_OF = {
    "float64": "fp64",
    "double": "fp64",
    "float32": "fp32",
    "float": "fp32",
    "float16": "fp16",
    "half": "fp16",
    "bfloat16": "bf16",
    "float8": "fp8",
    "float8_e4m3fn": "fp8",
    "float8_e4m3fnuz": "fp8",
    "float8_e5m2": "fp8",
    "float8_e5m2fnuz": "fp8",
    **{name: name for name in CLASSES},
}
# Faults of cooling or supply; a mere power cap is in ``_throttled``.
_FAULTS = {
    "hw_slowdown",
    "hw_thermal_slowdown",
    "hw_power_brake_slowdown",
    "sw_thermal_slowdown",
}


@dataclass(frozen=True)
class Peaks:
    """A GPU model's peaks: bytes a second, and operations a second by class of ``CLASSES``."""

    bandwidth: float | None
    flops: Mapping[str, float] = field(default_factory=dict)
    source: str = ""


# By the names of ``device_model``: the data sheet, TB/s, then TFLOP/s of each of ``CLASSES``; None
# where the sheets say nothing, or several things. Not here for want of a sheet: C550, C600.
# fmt: off
_SHEETS: Mapping[str, tuple[Any, ...]] = {
    #                                TB/s    fp64    fp32    tf32    fp16    bf16     fp8    int8
    "C500":           ("C500 OAM",  1.8432,   None,   None,   None,   None,    280,   None,   None),
    "A10":            ("A10",        0.600,   None,   31.2,   62.5,    125,    125,   None,    250),
    "A30":            ("A30",        0.933,   10.3,   10.3,     82,    165,    165,   None,    330),
    "A40":            ("A40",        0.696,   None,   37.4,   74.8,  149.7,  149.7,   None,  299.3),
    "A100-SXM4-80GB": ("A100",       2.039,   19.5,   19.5,    156,    312,    312,   None,    624),
    "A100_80GB_PCIe": ("A100",       1.935,   19.5,   19.5,    156,    312,    312,   None,    624),
    "A100-SXM4-40GB": ("A100",       1.555,   19.5,   19.5,    156,    312,    312,   None,    624),
    "A100-PCIE-40GB": ("A100",       1.555,   19.5,   19.5,    156,    312,    312,   None,    624),
    "L4":             ("L4",         0.300,   None,   30.3,     60,    121,    121,  242.5,  242.5),
    "L20":            ("L20",        0.864,   None,   59.8,   59.8,  119.5,  119.5,    239,    239),
    "L40":            ("L40",        0.864,   None,   90.5,   90.5, 181.05, 181.05,    362,    362),
    "L40S":           ("L40S",       0.864,   None,   91.6,    183, 362.05, 362.05,    733,    733),
    "H20":            ("H20",        4.000,      1,     44,     74,    148,    148,    296,    296),
    "H100_80GB_HBM3": ("H100",       3.350,     67,     67,  494.5,  989.5,  989.5,   1979,   1979),
    "H100_PCIe":      ("H100 PCIe",  2.000,     51,     51,    378,  756.5,  756.5,   1513,   1513),
    "H100_NVL":       ("H100 NVL",   3.900,     60,     60,  417.5,  835.5,  835.5, 1670.5, 1670.5),
    "H200":           ("H200",       4.800,     67,     67,  494.5,  989.5,  989.5,   1979,   1979),
    "H200_NVL":       ("H200",       4.800,     60,     60,  417.5,  835.5,  835.5, 1670.5, 1670.5),
    "B200":           ("HGX B200",   8.000,   None,   None,   1125,   2250,   2250,   4500,   4500),
}
# fmt: on
GPU_SPECS: Mapping[str, Peaks] = {
    model: Peaks(
        bandwidth * 1e12,
        {c: n * 1e12 for c, n in zip(CLASSES, numbers, strict=True) if n is not None},
        f"{'MetaX' if model == 'C500' else 'NVIDIA'} {sheet} data sheet",
    )
    for model, (sheet, bandwidth, *numbers) in _SHEETS.items()
}
# Other names of these devices.
_ALIASES = {
    "C500_OAM": "C500",
    "MXC500": "C500",
    "A100-PCIE-80GB": "A100_80GB_PCIe",
    "H100_SXM5": "H100_80GB_HBM3",
    "H200_SXM": "H200",
    "H200_141GB_HBM3e": "H200",
}


def _key(name: str) -> str:
    """A model's name such that spelling makes no difference: case, blanks, dashes."""
    return re.sub(r"[\s_-]+", " ", device_model(name)).casefold()


_BY_KEY = {_key(name): peaks for name, peaks in GPU_SPECS.items()}
_BY_KEY |= {_key(alias): GPU_SPECS[name] for alias, name in _ALIASES.items()}


def overrides(text: str | None) -> dict[str, Any] | None:
    """The value of ``--specs``: ``{"C600": {"bandwidth": 2e12, "flops": {"bfloat16": 3e14}}}``.

    Bytes and operations a second; ``source`` may say where they are from. Raises ``TreeError``.
    """
    if text is None:
        return None
    try:
        given = json.loads(text, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise TreeError(f"--specs: no JSON ({error}); write {_EXAMPLE}") from None
    return _checked(given)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    for name, _ in pairs:
        if [other for other, _ in pairs].count(name) > 1:
            raise TreeError(f"--specs: {name!r} stands twice; only one value can hold")
    return dict(pairs)


_EXAMPLE = '{"C600": {"bandwidth": 2e12, "flops": {"bfloat16": 3e14}, "source": "data sheet"}}'


def peaks(device_name: str, given: Mapping[str, Any] | None) -> Peaks | None:
    """The peaks of a GPU by its name (``NVIDIA H200``), ``given`` ones first; None: not known.

    ``given`` is as ``overrides`` reads it; what it leaves out stays built in. Raises ``TreeError``
    when it is not right.
    """
    key = _key(device_name)
    built_in = _BY_KEY.get(key)
    for model, entry in (_checked(given) if given is not None else {}).items():
        if _key(model) != key:
            continue
        source = entry.get("source", f"given for {model}")
        if built_in is None:
            return Peaks(entry.get("bandwidth"), _by_class(entry), source)
        return Peaks(
            entry.get("bandwidth", built_in.bandwidth),
            {**built_in.flops, **_by_class(entry)},
            f"{source}; else {built_in.source}",
        )
    return built_in


def _by_class(entry: Mapping[str, Any]) -> dict[str, float]:
    classes = {_class_of(name): float(value) for name, value in entry.get("flops", {}).items()}
    return {name: value for name, value in classes.items() if name is not None}


def _class_of(dtype: Any) -> str | None:
    """The class of a dtype's name (``bfloat16``, ``torch.bfloat16``, ``bf16``); None: none."""
    if not isinstance(dtype, str):
        return None
    return _CLASS_OF.get(dtype.strip().lower().removeprefix("torch."))


def _checked(given: Any) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        raise TreeError(f"--specs: {given!r} is no object of GPU models; write {_EXAMPLE}")
    seen: dict[str, str] = {}
    for model, entry in given.items():
        where = f"--specs: {model}"
        other = seen.setdefault(_key(str(model)), str(model))
        if other != model:
            raise TreeError(f"{where}: it stands twice, also as {other}; keep one of the two")
        if not isinstance(entry, Mapping):
            raise TreeError(f"{where}: {entry!r} is no object; write {_EXAMPLE}")
        for key, value in entry.items():
            if key == "bandwidth":
                _check_rate(f"{where}: bandwidth", value, "bytes")
            elif key == "source":
                if not isinstance(value, str) or not value.strip():
                    raise TreeError(f"{where}: source {value!r} is no text; name the data sheet")
            elif key == "flops":
                _check_flops(where, value)
            else:
                raise TreeError(f"{where}: unknown key {key!r}; use bandwidth, flops and source")
    return dict(given)


def _check_flops(where: str, value: Any) -> None:
    if not isinstance(value, Mapping):
        raise TreeError(f'{where}: flops {value!r} is no object; write {{"bfloat16": 3e14}}')
    seen: dict[str, str] = {}
    for name, rate in value.items():
        kind = _class_of(name)
        if kind is None:
            raise TreeError(
                f"{where}: flops of {name!r}: use {', '.join(CLASSES)} or torch's names"
            )
        other = seen.setdefault(kind, name)
        if other != name:
            raise TreeError(f"{where}: flops of {other!r} and {name!r} are the same; keep one")
        _check_rate(f"{where}: flops of {name!r}", rate, "operations")


def _check_rate(where: str, value: Any, unit: str) -> None:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not _LEAST <= value <= _MOST:
        raise TreeError(
            f"{where}: {value!r} is no rate; write {unit} a second, 2e12 for 2 tera {unit}"
        )


def roofline(
    limits: Peaks | None,
    dtype: Any,
    bytes_moved: float | None,
    flops: float | None,
    cold_seconds: float | None,
) -> dict[str, Any] | None:
    """What part of its device's peaks a case reached; None when none can be told.

    ``dtype`` is a dtype's name and says which peak ``flops`` are held against. The bound is the
    roof that the case comes closer to; ``fraction`` is how close. An operator that declares only
    bytes, or only FLOPs, is held against that roof alone. When FLOPs were declared but their peak
    is not known (or the bandwidth is not), nobody can say which roof binds: both are null.
    """
    if limits is None or cold_seconds is None or not cold_seconds > 0:
        return None
    peak_flops = limits.flops.get(_class_of(dtype) or "")
    memory = _fraction(bytes_moved, cold_seconds, limits.bandwidth)
    compute = _fraction(flops, cold_seconds, peak_flops)
    if memory is None and compute is None:
        return None
    bound = None
    if memory is not None and compute is not None:
        bound = "memory" if memory >= compute else "compute"
    elif memory is not None and not flops:
        bound = "memory"
    elif compute is not None and not bytes_moved:
        bound = "compute"
    return {
        "bandwidth_fraction": memory,
        "flops_fraction": compute,
        "bound": bound,
        "fraction": {"memory": memory, "compute": compute}[bound] if bound else None,
        "peak_bandwidth": limits.bandwidth,
        "peak_flops": peak_flops,
        "source": limits.source,
    }


def _fraction(amount: float | None, seconds: float, peak: float | None) -> float | None:
    return None if not amount or peak is None else amount / seconds / peak


def flags(
    *,
    roofline: Mapping[str, Any] | None,
    cold_median: float | None,
    batch_mean: float | None,
    bytes_moved: float | None,
    l2_bytes: int | None,
    board_before: Mapping[str, Any] | None,
    board_after: Mapping[str, Any] | None,
    foreign: Sequence[Any] | None,
    cpu_median: float | None = None,
) -> list[str]:
    """What a reader of the case's times has to know; what is not known (None) gives no flag.

    Times in seconds; the boards are ``board.snapshot``s before and after sampling; ``foreign`` are
    the processes of others, before and after together.
    """
    found = []
    if _launch_bound(cold_median, batch_mean, cpu_median):
        found.append("LAUNCH_BOUND")
    parts = [(roofline or {}).get(name) for name in ("bandwidth_fraction", "flops_fraction")]
    if any(part is not None and part > ABOVE for part in parts):
        found.append("ABOVE_ROOFLINE")
    # Cold times are taken with the cache emptied; the batch time then is the cache's.
    if bytes_moved and l2_bytes and bytes_moved <= l2_bytes:
        found.append("CACHE_RESIDENT")
    if _throttled(board_before or {}, board_after or {}):
        found.append("THROTTLED")
    if foreign:
        found.append("CONTENDED")
    return found


def _launch_bound(cold: float | None, batch: float | None, cpu: float | None) -> bool:
    """Whether the batch time is that of launching.

    Back to back a kernel takes its own time or that of launching it from Python, whichever is
    longer. Seen on an H200: 12 to 18 us cold became 22 to 31 us in a batch (1.8 times), 4 us
    became 24 us; kernels above 25 us stayed within 0.6 to 1.09 times. A long kernel can be slower
    in a batch for another reason, a clock that the power limit lowers under steady load; but
    launching alone never takes longer than the CPU time of a whole cold call, which holds it.
    """
    if cold is None or batch is None or not batch > LAUNCHING * cold:
        return False
    return cpu is None or batch <= cpu


def _throttled(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Whether the board held its clock down for a fault of its cooling or its supply.

    A cap by power alone is how any big GPU runs a dense matrix product: the same for all boards of
    a model, so no fault; it is seen in the record. Unless somebody lowered the limit: then this
    board is slower than its model.
    """
    reasons = set(before.get("throttle_reasons") or ()) | set(after.get("throttle_reasons") or ())
    if reasons & _FAULTS:
        return True
    if _grew("thermally_throttled_ns", before, after):
        return True
    limit, default = after.get("power_limit_w"), after.get("default_power_limit_w")
    if limit is None or default is None or not limit < default:
        return False
    return "sw_power_cap" in reasons or _grew("power_throttled_ns", before, after)


def _grew(name: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    first, last = before.get(name), after.get(name)
    return first is not None and last is not None and last > first
