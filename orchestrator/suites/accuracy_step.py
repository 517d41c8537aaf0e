"""The accuracy step of one operator in an established checkout, with nothing timed.

Its scripts have no such mode. The documented way is to make the runner by hand and call its
``run_verification`` alone; this program does that for every case of the config. It is sent as text
and runs in the checkout's folder, where nothing of mxfleet is: only the standard library, and torch
where the runner brings it.

    python -u -c PROGRAM OP RECORDS ABSENT [KEY=VALUE ...]

Each case has a forked process of its own and leaves one ``mxfleet-result/1`` line in RECORDS.
ABSENT is a pattern: an exception that it fits says that the operator is not there. Exit code: as
the front door's.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import inspect
import itertools
import json
import math
import os
import platform
import re
import sys
import time
import traceback
import uuid
from pathlib import Path
from typing import Any

NOT_PARAMETERS = {"samples", "device_id", "device_name"}
NEVER_SWEPT = NOT_PARAMETERS | {"batch_size_list"}
CODES = {"PASSED": 0, "UNVERIFIED": 0, "FAILED": 1, "ERROR": 1, "UNAVAILABLE": 3}
SLICE = 1 << 22  # elements looked at together
WORST, OUTPUTS = 10, 16


def expand(config: dict[str, Any], filters: list[str]) -> list[dict[str, Any]]:
    """The cases of a config that the ``KEY=VALUE`` filters let through: lists are swept."""
    swept = [k for k, v in config.items() if isinstance(v, list) and k not in NEVER_SWEPT]
    wanted: dict[str, list[str]] = {}
    for text in filters:
        key, _, value = text.partition("=")
        wanted.setdefault(key.strip(), []).append(value.strip())
    cases = [
        dict(config, **dict(zip(swept, values)))  # noqa: B905
        for values in itertools.product(*(config[key] for key in swept))
    ]
    return [
        case
        for case in cases
        if all(
            key in case and key not in NOT_PARAMETERS and any(fits(case[key], t) for t in texts)
            for key, texts in wanted.items()
        )
    ]


def fits(value: Any, text: str) -> bool:
    """Whether a filter's text means ``value``: as JSON, else as text."""
    try:
        if json.dumps(json.loads(text), sort_keys=True) == json.dumps(value, sort_keys=True):
            return True
    except (ValueError, RecursionError):
        pass
    return str(value) == text


def load_runner(op: str) -> Any:
    """The runner's class, found as the checkout's own loader finds it."""
    path = Path.cwd() / "runners" / f"mcoplib_mxbenchmark_{op}_runners.py"
    spec = importlib.util.spec_from_file_location(f"mcoplib_mxbenchmark_{op}_runners", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    base = importlib.import_module("mcoplib_mxbenchmark_op_wrapper").OpBenchmarkBase
    classes = [
        value
        for value in vars(module).values()
        if inspect.isclass(value) and issubclass(value, base) and value.__module__ == spec.name
    ]
    if not classes:
        raise TypeError(f"{path} defines no subclass of OpBenchmarkBase")
    return classes[0]


def device(index: int) -> dict[str, Any]:
    """The device of the case as a record has it."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        name = torch.cuda.get_device_name(index)
        low = name.lower()
        maca = "metax" in low or ("MACA_PATH" in os.environ and "nvidia" not in low)
        return {"kind": "maca" if maca else "cuda", "name": name, "index": index, "uuid": None}
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    found = re.search(r"^(?:model name|Model|Processor)\s*:\s*(.+)$", text, re.MULTILINE)
    name = found[1].strip() if found else platform.processor() or platform.machine()
    return {"kind": "cpu", "name": name, "index": 0, "uuid": None}


def verify(op: str, case: dict[str, Any]) -> dict[str, Any]:
    """What a record says of verifying one case: status, verification, device, error."""
    index = case.get("device_id", 0)
    runner = load_runner(op)(op, case)
    worst: list[dict[str, Any]] = []
    watch(runner, worst)
    answer = runner.run_verification(index)
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.synchronize(index)
    told: dict[str, Any] = {"device": device(index), "verification": None, "error": None}
    if answer is None:
        print(f"[VERIFY] {op} -> NONE (the runner has no reference)", flush=True)
        return dict(told, status="UNVERIFIED")
    passed, difference = answer
    passed = passed.item() if hasattr(passed, "item") else passed
    if not isinstance(passed, bool):
        raise TypeError(f"run_verification returned {passed!r} for passed, which is no bool")
    difference = float(difference)
    finite = math.isfinite(difference)
    told["verification"] = {
        "passed": passed and finite,
        "metrics": {"one_minus_cosine": difference if finite else None},
        "poisoned": False,
        "worst": worst[:OUTPUTS],
    }
    word = "PASS" if passed and finite else "FAIL"
    print(f"[VERIFY] {op} -> {word} (1-CosSim: {difference:.2e})", flush=True)
    if passed and finite:
        return dict(told, status="PASSED")
    for entry in worst[:OUTPUTS]:
        print(f"  >> [WORST] {entry['reason']}")
        for element in entry["elements"]:
            print("     " + ", ".join(f"{key} {value}" for key, value in element.items()))
    reason = f"the runner's check refused it ({difference:.2e})"
    if passed:
        reason = f"the runner calls a difference of {difference} a pass"
    told["error"] = {"type": "VerificationFailed", "message": reason, "traceback": None}
    return dict(told, status="FAILED")


def watch(runner: Any, worst: list[dict[str, Any]]) -> None:
    """Have ``worst`` take the outputs that the runner's ``check_diff`` refuses."""
    check = getattr(runner, "check_diff", None)
    if check is None:
        return

    def watched(out: Any, ref: Any, *rest: Any, **named: Any) -> Any:
        answer = check(out, ref, *rest, **named)
        try:
            if not answer[0] and len(worst) < OUTPUTS:
                worst.append(look(out, ref, answer[1]))
        except Exception as error:  # noqa: BLE001 - never the reason of a verdict
            print(f"warning: the worst elements cannot be told: {error}", file=sys.stderr)
        return answer

    runner.check_diff = watched


def look(out: Any, ref: Any, difference: Any) -> dict[str, Any]:
    """The elements with the largest absolute errors, what is not finite first."""
    import torch

    out, ref = torch.as_tensor(out).detach(), torch.as_tensor(ref).detach()
    entry = {
        "output": None,
        "reason": f"check_diff: {float(difference):.2e}",
        "shape": list(out.shape),
        "expected_shape": list(ref.shape),
        "dtype": str(out.dtype).replace("torch.", ""),
        "expected_dtype": str(ref.dtype).replace("torch.", ""),
        "elements": [],
    }
    if out.shape != ref.shape or out.is_complex() or ref.is_complex():
        return entry
    left, right = out.reshape(-1), ref.reshape(-1)
    found: list[tuple[float, int]] = []
    for start in range(0, left.numel(), SLICE):
        a = left[start : start + SLICE].to(torch.float64)
        b = right[start : start + SLICE].to(a.device, torch.float64)
        error = (a - b).abs()
        error = torch.where(torch.isfinite(a) & torch.isfinite(b), error, math.inf)
        top = error.topk(min(WORST, error.numel()))
        pairs = zip(top.values.tolist(), top.indices.tolist())  # noqa: B905
        found += [(value, start + place) for value, place in pairs if value > 0]
        found = sorted(found, key=lambda one: (-one[0], one[1]))[:WORST]
    entry["elements"] = [element(left, right, place, out.shape) for _, place in found]
    return entry


def element(left: Any, right: Any, place: int, shape: Any) -> dict[str, Any]:
    """One element: where it is, what is there, what should be, how far that is off."""
    index: list[int] = []
    rest = place
    for size in reversed(shape):
        index.insert(0, rest % size)
        rest //= size
    got, expected = left[place].item(), right[place].item()
    error = abs(got - expected)
    known = math.isfinite(error)
    return {
        "index": index,
        "got": got if math.isfinite(got) else str(got),
        "expected": expected if math.isfinite(expected) else str(expected),
        "abs_error": error if known else None,
        "rel_error": error / abs(expected) if known and expected else None,
    }


def decide(op: str, case: dict[str, Any], absent: str) -> dict[str, Any]:
    """``verify``, whatever the runner raises."""
    try:
        return verify(op, case)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - an outcome of its case
        status = "UNAVAILABLE" if re.search(absent, str(error)) else "ERROR"
        trace = traceback.format_exc()
        sys.stderr.write(trace)
        print(f"[FATAL] {op}: {status}: {error}", flush=True)
        kind = status if status == "UNAVAILABLE" else type(error).__name__
        failure = {"type": kind, "message": str(error), "traceback": trace}
        try:
            where = device(case.get("device_id", 0))
        except Exception:  # noqa: BLE001 - a broken device has no name
            where = None
        return {"status": status, "verification": None, "device": where, "error": failure}


def record(op: str, case: dict[str, Any], began: float, told: dict[str, Any]) -> bytes:
    """A case's line."""
    parameters = {key: value for key, value in case.items() if key not in NOT_PARAMETERS}
    named = {"op": op, "parameters": parameters}
    text = json.dumps(named, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    moment = time.gmtime(began)
    version = getattr(sys.modules.get("torch"), "__version__", None)
    whole = {
        "schema": "mxfleet-result/1",
        "record_id": uuid.uuid4().hex,
        "suite": "mcoplib",
        "op": op,
        "case_id": hashlib.sha256(text.encode("ascii")).hexdigest()[:16],
        "parameters": parameters,
        "measured": False,
        "environment": {
            "python": platform.python_version(),
            "torch": None if version is None else str(version),
            "host": platform.node(),
        },
        "engine": None,
        "started": time.strftime("%Y-%m-%dT%H:%M:%S", moment) + f".{int(began * 1000) % 1000:03d}Z",
        "duration": round(time.time() - began, 3),
        **told,
    }
    return json.dumps(whole).encode("ascii") + b"\n"


def append(path: Path, line: bytes) -> None:
    """Write a line and see it onto the disk."""
    with path.open("ab") as stream:
        stream.write(line)
        stream.flush()
        os.fsync(stream.fileno())


def forked(op: str, case: dict[str, Any], absent: str, path: Path) -> str:
    """Decide a case in a process of its own; returns its status."""
    began, before = time.time(), size(path)
    child = os.fork()
    if not child:
        told = decide(op, case, absent)
        append(path, record(op, case, began, told))
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    if size(path) > before:
        with path.open("rb") as stream:
            stream.seek(before)
            return str(json.loads(stream.readline())["status"])
    how = f"exit code {status >> 8}" if not status & 127 else f"signal {status & 127}"
    message = f"the process of the case ended with {how} before it was decided"
    print(f"[FATAL] {op}: {message}", flush=True)
    failure = {"type": "ERROR", "message": message, "traceback": None}
    told = {"status": "ERROR", "verification": None, "device": None, "error": failure}
    append(path, record(op, case, began, told))
    return "ERROR"


def size(path: Path) -> int:
    """The length of a file, 0 before there is one."""
    return path.stat().st_size if path.exists() else 0


def main(op: str, records: str, absent: str, *filters: str) -> int:
    """Verify the operator's cases; returns the exit code."""
    sys.path.insert(0, str(Path.cwd()))
    config = Path("config") / f"{op}.json"
    cases = expand(json.loads(config.read_text(encoding="utf-8")), list(filters))
    if not cases:
        print(f"error: {config}: no case is {' '.join(filters) or 'left'}", file=sys.stderr)
        return 2
    if len(cases) > 1:
        # Once for all of them; on its own it touches no device.
        with contextlib.suppress(ImportError):
            importlib.import_module("torch")
    statuses = [forked(op, case, absent, Path(records)) for case in cases]
    return min({CODES[status] for status in statuses} - {0}, default=0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
