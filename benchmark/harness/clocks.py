"""Quieter conditions on request: the clock of a GPU held, a board cooled down before measuring.

Both are asked for, never done by default, and never a reason to fail: what could not be done is
warned of and recorded.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from harness import board, markers, signals, worker

_TOOL = "nvidia-smi"
_TOOL_SECONDS = 20.0
_POLL_SECONDS = 0.5
# nvidia-smi ends with 0 although it did nothing, and says so only in words.
_REFUSALS = ("not supported", "treating as warning", "permission", "invalid", "error")


@contextmanager
def locked(device: dict[str, Any], spec: int | None) -> Iterator[dict[str, Any] | None]:
    """Hold the GPU's clock at ``spec`` MHz within the block, released also on SIGTERM and Ctrl-C.

    Yields what was done, for the record: ``requested_mhz``, ``locked``, ``reason`` (why not) and,
    when the block has ended, ``released``; None when ``spec`` is None. Releasing sets the clocks
    free, also from a lock that was there before. After SIGKILL the lock stays:
    ``nvidia-smi -rgc`` ends it.
    """
    if spec is None:
        yield None
        return
    done: dict[str, Any] = {"requested_mhz": spec, "locked": False, "reason": _impossible(device)}
    done["released"] = None
    if done["reason"] is not None:
        markers.warn(f"the clock of {device['name']} is not locked: {done['reason']}")
        yield done
        return
    with signals.unwinding():
        try:
            try:
                done["reason"] = _smi(device["uuid"], "-lgc", f"{spec},{spec}")
                done["locked"] = done["reason"] is None
                if done["reason"] is not None:
                    markers.warn(f"the clock of {device['name']} is not locked: {done['reason']}")
                yield done
            finally:
                _release(device, done)
        except BaseException:
            # The signal may have come when the release was about to begin.
            _release(device, done)
            raise


def _impossible(device: dict[str, Any]) -> str | None:
    if device["kind"] == "cpu":
        return "it is a CPU"
    if device["uuid"] is None:
        return "torch does not tell the GPU's UUID"
    if shutil.which(_TOOL) is None:
        return f"there is no {_TOOL} on PATH"
    return None


def _release(device: dict[str, Any], done: dict[str, Any]) -> None:
    # A refused lock leaves nothing; one that was interrupted may be there.
    if done["reason"] is not None or done["released"] is not None:
        return
    with _uninterrupted():
        problem = _smi(device["uuid"], "-rgc")
        done["released"] = problem is None
    if problem is not None:
        markers.warn(f"{device['name']} is still locked, run {_TOOL} -rgc there: {problem}")


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Within the block SIGTERM and SIGINT wait; they are delivered afterwards."""
    former = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, former)


def _smi(uuid: str, *words: str) -> str | None:
    """Run nvidia-smi on one GPU; None when it did as told, else what it said."""
    try:
        # Ctrl-C in a terminal goes to the whole group: the tool finishes what it began.
        ended = subprocess.run(
            [_TOOL, "-i", uuid, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            timeout=_TOOL_SECONDS,
            start_new_session=True,
        )
    except subprocess.TimeoutExpired:
        return f"{_TOOL} did not end within {_TOOL_SECONDS:g} s"
    except OSError as error:
        return f"{_TOOL} cannot be run: {error.strerror}"
    said = " ".join(ended.stdout.split())[:300]
    if ended.returncode != 0 or any(word in said.lower() for word in _REFUSALS):
        return said or f"{_TOOL} ended with {ended.returncode}"
    return None


def cool_down(device: dict[str, Any], celsius: float, limit: float = 300.0) -> dict[str, Any]:
    """Wait until the board has ``celsius`` degrees or less, at most ``limit`` seconds.

    Returns, for the record, ``target_c``, ``from_c``, ``to_c``, ``seconds`` and ``reached``; the
    temperatures and ``reached`` are null where the board does not tell them.
    """

    def ask(send: worker.Send) -> None:
        deadline = time.monotonic() + limit
        while True:
            now = (board.snapshot(device) or {}).get("temperature_c")
            send({"temperature": now})
            if now is None or now <= celsius or time.monotonic() >= deadline:
                return
            time.sleep(_POLL_SECONDS)

    started = time.monotonic()
    ended = worker.call(ask, limit + 10.0)
    seen = [message["temperature"] for message in ended.messages]
    known = [temperature for temperature in seen if temperature is not None]
    reached = known[-1] <= celsius if known and seen[-1] is not None else None
    if reached is None:
        markers.warn(f"{device['name']} does not tell its temperature; nothing was waited for")
    elif not reached:
        markers.warn(
            f"{device['name']} has {known[-1]} degrees C after {limit:g} s of cooling down"
        )
    return {
        "target_c": celsius,
        "from_c": known[0] if known else None,
        "to_c": known[-1] if known else None,
        "seconds": round(time.monotonic() - started, 3),
        "reached": reached,
    }
