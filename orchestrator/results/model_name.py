"""Device name to device model: the part of a CSV's file name that says what was measured.

``MetaX C500`` and ``C500`` are one model; the index of a device and its vendor are no part of it.
The harness names its files by the same rule; a test holds both equal.
"""

from __future__ import annotations

import re

_VENDOR = re.compile(r"(?:MetaX|NVIDIA|AMD|Intel|Moore Threads|Huawei) ", re.IGNORECASE)
_OTHER = re.compile(r"[^A-Za-z0-9]+")


def model_name(name: str, kind: str = "cuda") -> str:
    """Model of the device ``name``; ``kind`` as in a record's device (``cpu`` gives ``CPU_…``).

    The vendor of a GPU goes, what is neither letter nor digit becomes ``_``.
    """
    vendor = _VENDOR.match(name) if kind != "cpu" else None
    cleaned = _OTHER.sub("_", name[vendor.end() :] if vendor else name).strip("_") or "unknown"
    return f"CPU_{cleaned}" if kind == "cpu" else cleaned


def csv_name(model: str) -> str:
    """File name of the device CSV of ``model``."""
    return f"mcoplib_ops_performance_{model}.csv"
