"""Device name to device model: the part of a CSV's file name that says what was measured.

``MetaX C500`` and ``C500`` are one model; the index of a device and its vendor are no part of it.
The harness names its files by the same rules; a test holds both equal.
"""

from __future__ import annotations

import hashlib
import re

_VENDORS = re.compile(
    r"\A(?:metax|nvidia|amd|advanced micro devices|intel(?:\(r\))?|hygon|iluvatar"
    r"|moore threads)\s+",
    re.IGNORECASE,
)
# In CPU names: marks, the clock, and words that say what a CPU is.
_NOISE = re.compile(r"\((?:r|tm|c)\)|®|™|\s@\s.*$|\bCPU\b|\b\d+-core processor\b", re.IGNORECASE)
_LONGEST_MODEL = 100 - len("mcoplib_ops_performance_.csv")
_OTHER = re.compile(r"[^A-Za-z0-9.+-]+")


def model_name(name: str, kind: str = "cuda") -> str:
    """Model of the device ``name``; ``kind`` as in a record's device (``cpu`` gives ``CPU_…``).

    The vendor of a GPU goes; other characters than letters, digits and ``.+-`` become ``_``.
    """
    if kind == "cpu":
        cleaned = _clean(_NOISE.sub(" ", name))
        return f"CPU_{cleaned}" if cleaned else "CPU"
    return _clean(_VENDORS.sub("", name.strip(), count=1)) or "unknown"


def mismatch(name: str, kind: str, expected: object) -> str | None:
    """A sentence when the device is none of a config's ``device_name``, a text or a list of them.

    Compared as models: vendor and case do not count. None when nothing is expected.
    """
    names = [str(one) for one in (expected if isinstance(expected, list) else [expected or ""])]
    names = [one for one in names if one.strip()]
    models = {model_name(one, of).casefold() for one in names for of in ("cuda", "cpu")}
    if not names or model_name(name, kind).casefold() in models:
        return None
    return f"the config is for {' or '.join(names)}, this device is {name}"


def csv_name(model: str) -> str:
    """File name of the device CSV of ``model``, of 100 bytes at most: a long one ends in a hash."""
    if len(model) > _LONGEST_MODEL:
        digest = hashlib.sha256(model.encode()).hexdigest()[:8]
        model = f"{model[: _LONGEST_MODEL - 9]}-{digest}"
    return f"mcoplib_ops_performance_{model}.csv"


def _clean(name: str) -> str:
    return _OTHER.sub("_", name).strip("_.")
