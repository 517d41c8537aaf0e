"""Numbers for people: three digits and a unit. Files and JSON keep the full ones."""

from __future__ import annotations

import math

_TIMES = ((1e-9, "ns"), (1e-6, "µs"), (1e-3, "ms"), (1.0, "s"))
_RATES = ((1.0, ""), (1e3, "k"), (1e6, "M"), (1e9, "G"), (1e12, "T"), (1e15, "P"))
_SIZES = ((1.0, "B"), (1e3, "kB"), (1e6, "MB"), (1e9, "GB"), (1e12, "TB"))

UNKNOWN = "-"
# What is more is somebody's mistake, and must not bury a table.
_MOST_SECONDS, _MOST_RATE, _MOST_PERCENT = 99999, 9999, 9999


def duration(seconds: float | None) -> str:
    """A measured time in seconds as ``3.90 µs``; ``-`` when unknown or not finite."""
    return _scaled(seconds, _TIMES, most=_MOST_SECONDS)


def rate(per_second: float | None) -> str:
    """Operations a second as ``640 T``; ``-`` when unknown or not finite."""
    return _scaled(per_second, _RATES, most=_MOST_RATE).rstrip()


def elapsed(seconds: float | None) -> str:
    """How long a command or a job took, always in seconds: ``0.03 s``; ``-`` when unknown."""
    if seconds is not None and 0 <= seconds < 0.005:
        return "< 0.01 s"
    return _scaled(seconds, _TIMES[-1:])


def size(count: float | None) -> str:
    """Bytes as ``1.23 MB`` (powers of ten); ``-`` when unknown."""
    if count is not None and 0 <= count < 1000:
        return f"{count:.0f} B"
    return _scaled(count, _SIZES)


def counted(count: int, name: str) -> str:
    """``count`` and a name in the plural, both as people say it: ``1 file sent``, ``131 kB sent``.

    ``name`` begins with the noun; one that is no plural (a status) stays as it is.
    """
    noun, blank, rest = name.partition(" ")
    if noun == "bytes":
        return f"{size(count)}{blank}{rest}"
    if count == 1 and noun.islower():
        noun = noun.removesuffix("s")
    return f"{count} {noun}{blank}{rest}"


def percent(fraction: float | None) -> str:
    """A fraction as ``47.6%``, below ten percent as ``0.31%``; ``-`` when unknown."""
    if fraction is None or not math.isfinite(fraction):
        return UNKNOWN
    value = fraction * 100
    if abs(value) > _MOST_PERCENT:
        return f">{_MOST_PERCENT}%" if value > 0 else "< 0%"
    if abs(value) >= 999.5:
        return f"{value:.0f}%"
    return f"{value:.2f}%" if abs(value) < 9.995 else f"{value:.1f}%"


def _scaled(
    value: float | None, units: tuple[tuple[float, str], ...], most: float = math.inf
) -> str:
    if value is None or not math.isfinite(value):
        return UNKNOWN
    for scale, unit in units:
        scaled = value / scale
        if abs(scaled) < 999.5 or unit == units[-1][1]:
            break
    if abs(scaled) > most:
        return f">{most} {unit}" if scaled > 0 else f"< 0 {unit}"
    places = 2 if abs(scaled) < 9.995 else 1 if abs(scaled) < 99.95 else 0
    return f"{scaled:.{places}f} {unit}"
