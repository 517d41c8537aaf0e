"""A run's folder: everything that is known of a run, written as it becomes known.

``plan.json``, ``attempts.jsonl`` (each noted before it was started), ``inventory.yaml`` (as it
was), ``tree.json`` (files and hashes), ``events.jsonl``, ``logs/<target>/<op>.log`` (raw),
``records/<target>/<op>.jsonl`` (judged, over all attempts), ``raw/<target>/<op>.jsonl`` and
``csv/<target>/<op>.csv`` (as pulled), ``checkouts/`` (what established checkouts had) and
``run-summary.json``.
"""

from __future__ import annotations

import fcntl
import glob
import hashlib
import json
import os
import re
import secrets
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from orchestrator.errors import UsageError
from orchestrator.events import Event, OutputLine

_LONGEST_NAME = 120  # with a suffix well below what file systems take
_PRIVATE = ("plan.json", "inventory.yaml")  # they hold the targets' environment
_LOCK_TRIES, _LOCK_PAUSE = 10, 0.03  # seconds
_MOST_ATTEMPTS = 1 << 16
_UNSAFE = re.compile(r"[^A-Za-z0-9._@+:=-]+")


def safe_name(text: str) -> str:
    """``text`` as a file name; ``:`` stays, as in ``host:container``.

    A name that has to be changed gets a hash, so that different texts stay different.
    """
    plain = _UNSAFE.sub("_", text).lstrip(".")[:_LONGEST_NAME]
    if plain == text and plain:
        return plain
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{plain or '_'}-{digest[:8]}"


class NotKeptError(UsageError):
    """The run's folder cannot take in what came."""


def not_kept(path: Path, error: OSError) -> NotKeptError:
    """The error for a file of a run's folder that could not be written."""
    return NotKeptError(
        f"cannot write into the run's folder: {error.strerror}",
        where=str(path),
        hint="free some space there, then `mxfleet pull`",
    )


def _check(job: Mapping[str, Any]) -> None:
    """Raise ``TypeError`` for a job of a plan, or a spec, that nothing can be made of."""
    spec = job.get("spec", {})
    lists = [spec.get(key, []) for key in ("argv", "path", "ld_library_path", "profiler")]
    env = spec.get("env", {})
    words = [job.get("job", ""), spec.get("tree", ""), spec.get("python", ""), *env.values()]
    words += [spec.get("store") or "", spec.get("workdir", ""), spec.get("env_script") or ""]
    words += [word for each in lists for word in each]
    sound = all(isinstance(each, list) for each in lists)
    if not sound or not all(isinstance(word, str) for word in words):
        raise TypeError("spec")
    if not isinstance(job.get("attempt", 1), int) or not 0 < job.get("attempt", 1) < _MOST_ATTEMPTS:
        raise TypeError("attempt")


def still_going_on(folder: RunFolder) -> UsageError:
    """The error for a run's folder that another command is at work on."""
    return UsageError(
        "another mxfleet is at work on this run",
        where=str(folder.path),
        hint=f"see what it does: mxfleet attach {folder.run}; or end it: mxfleet kill {folder.run}",
    )


def _locked(handle: int) -> bool:
    """Lock a file for ourselves; who only looks whether it is locked has it for a moment."""
    for _ in range(_LOCK_TRIES):
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            time.sleep(_LOCK_PAUSE)
        else:
            return True
    return False


class RunFolder:
    """The folder ``runs/<id>`` of a working folder; use ``create`` or ``open``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.run = path.name
        self._lock = threading.Lock()

    @classmethod
    def create(cls, runs: Path, run: str) -> RunFolder:
        """Make the folder of a new run."""
        path = runs / run
        try:
            path.mkdir(parents=True)
        except OSError as error:
            raise UsageError(
                f"cannot make the run's folder: {error.strerror}",
                where=str(path),
                hint="check permissions and free space of the working folder",
            ) from None
        return cls(path)

    @classmethod
    def open(cls, runs: Path, run: str | None) -> RunFolder:
        """The folder of an existing run, None: the latest one."""
        names = sorted(p.name for p in runs.iterdir() if p.is_dir()) if runs.is_dir() else []
        if not names:
            raise UsageError(
                "there is no run yet", where=str(runs), hint="start one: mxfleet run --op A"
            )
        if run is None:
            return cls(runs / names[-1])
        if not run:
            raise UsageError(
                "the run has no name", where=str(runs), hint="leave it out: the latest"
            )
        found = [name for name in names if name == run or name.startswith(run)]
        if run in names:
            found = [run]
        if len(found) != 1:
            what = f"no run {run!r}" if not found else f"{run!r} names {len(found)} runs"
            raise UsageError(what, where=str(runs), hint=f"the latest is {names[-1]}")
        return cls(runs / found[0])

    def log(self, target: str, op: str, attempt: int = 1) -> Path:
        """Where the raw output of an attempt goes."""
        suffix = "" if attempt == 1 else f".{attempt}"
        return self._made(self.path / "logs" / safe_name(target) / f"{safe_name(op)}{suffix}.log")

    def logs(self, target: str, op: str) -> list[Path]:
        """The logs of all attempts that there are, in their order."""
        folder, name = self.path / "logs" / safe_name(target), safe_name(op)
        further = {
            int(path.name[len(name) + 1 : -len(".log")]): path
            for path in folder.glob(f"{glob.escape(name)}.*.log")
            if path.name[len(name) + 1 : -len(".log")].isdecimal()
        }
        first = folder / f"{name}.log"
        found = [first] if first.exists() else []
        return [*found, *(further[number] for number in sorted(further))]

    def records(self, target: str, op: str) -> Path:
        """Where the records of an operator on a target go."""
        return self._made(self.path / "records" / safe_name(target) / f"{safe_name(op)}.jsonl")

    def raw(self, target: str, op: str, attempt: int) -> Path:
        """Where the records that an attempt wrote go, as they were."""
        suffix = "" if attempt == 1 else f".{attempt}"
        return self._made(self.path / "raw" / safe_name(target) / f"{safe_name(op)}{suffix}.jsonl")

    def csv(self, target: str, op: str) -> Path:
        """Where the CSV that a target wrote for an operator goes, as it was."""
        return self._made(self.path / "csv" / safe_name(target) / f"{safe_name(op)}.csv")

    def made(self, target: str, op: str, attempt: int, name: str) -> Path:
        """Where a file goes that a job made beside its results, a profiler's report say.

        ``name`` is relative and comes from the target: whatever it says, it stays in its folder.
        """
        suffix = "" if attempt == 1 else f".{attempt}"
        folder = self.path / "files" / safe_name(target) / f"{safe_name(op)}{suffix}"
        return self._made(folder.joinpath(*(safe_name(part) for part in name.split("/"))))

    def write_json(self, name: str, value: Any) -> None:
        """Write ``name`` whole and durable."""
        self.write_bytes(self.path / name, json.dumps(value, indent=1, default=str).encode("ascii"))

    def read_json(self, name: str) -> Any:
        """Read what ``write_json`` wrote."""
        path = self.path / name
        try:
            return json.loads(path.read_bytes())
        except (OSError, ValueError) as error:
            raise UsageError(
                f"the run's {name} cannot be read: {error}",
                where=str(path),
                hint="was the run cut off before it started?",
            ) from None

    def planned(self, *needed: str) -> list[dict[str, Any]]:
        """The jobs of the run's plan, each with ``target``, ``op`` and what is ``needed``.

        Raises ``UsageError`` when the plan cannot be read or is none.
        """
        plan = self.read_json("plan.json")
        try:
            jobs = [dict(job) for job in plan["jobs"]]
            for job in jobs:
                job["target"], job["op"] = str(job["target"]), str(job["op"])
            if any(key not in job for job in jobs for key in needed):
                raise KeyError(needed)
            for job in jobs:
                _check(job)
        except (KeyError, TypeError, ValueError, AttributeError):
            raise UsageError(
                "the plan of the run is damaged",
                where=str(self.path / "plan.json"),
                hint="what its jobs printed and measured lies in logs/ and records/ beside it",
            ) from None
        return jobs

    def intend(self, target: str, op: str, job: str, attempt: int) -> None:
        """Note, durably and before it happens, that an attempt is started."""
        path = self.path / "attempts.jsonl"
        entry = {"target": target, "op": op, "job": job, "attempt": attempt}
        line = json.dumps(entry).encode("ascii") + b"\n"
        try:
            with self._lock:
                handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
                try:
                    size = os.fstat(handle).st_size
                    if size and os.pread(handle, 1, size - 1) != b"\n":
                        line = b"\n" + line  # after one that was cut off
                    os.write(handle, line)
                    os.fsync(handle)
                finally:
                    os.close(handle)
        except OSError as error:
            raise not_kept(path, error) from None

    def intended(self) -> dict[tuple[str, str], tuple[str, int]]:
        """The latest attempt that was to be started, by target and operator: job and number."""
        found: dict[tuple[str, str], tuple[str, int]] = {}
        path = self.path / "attempts.jsonl"
        for line in path.read_bytes().splitlines() if path.exists() else ():
            try:
                told = json.loads(line)
                key = str(told["target"]), str(told["op"])
                found[key] = str(told["job"]), int(told["attempt"])
            except (ValueError, KeyError, TypeError):
                continue  # the last one may have been cut off: then nothing was started
        return found

    def write_checkout(self, target: str, found: Mapping[str, Any]) -> None:
        """Keep what an established checkout had: its rows mean nothing without."""
        if found:
            self._made(self.path / "checkouts" / f"{safe_name(target)}.json")
            self.write_json(f"checkouts/{safe_name(target)}.json", found)

    def read_checkout(self, target: str) -> Mapping[str, Any]:
        """What ``write_checkout`` kept; empty when there was nothing to keep."""
        name = f"checkouts/{safe_name(target)}.json"
        found: Mapping[str, Any] = self.read_json(name) if (self.path / name).exists() else {}
        return found

    @staticmethod
    @contextmanager
    def replacing(path: Path) -> Iterator[BinaryIO]:
        """Write a file of the run's folder through a temporary one: it is whole or as it was."""
        temporary = path.with_name(f".{path.name[:60]}.{secrets.token_hex(6)}.tmp")
        try:
            with temporary.open("xb") as stream:
                if path.name in _PRIVATE:
                    os.fchmod(stream.fileno(), 0o600)
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
            temporary.replace(path)
        except OSError as error:
            raise not_kept(path, error) from None
        finally:
            temporary.unlink(missing_ok=True)

    def write_bytes(self, path: Path, data: bytes) -> None:
        """Replace a file of the run's folder so that it is whole or as it was."""
        with self.replacing(path) as stream:
            stream.write(data)

    def event(self, event: Event) -> None:
        """Append to ``events.jsonl``; output lines are in the logs."""
        if isinstance(event, OutputLine):
            return
        path = self.path / "events.jsonl"
        line = json.dumps(event.as_dict(), default=str, separators=(",", ":")) + "\n"
        try:
            with self._lock, path.open("a", encoding="ascii") as stream:
                stream.write(line)
        except OSError as error:
            raise not_kept(path, error) from None

    @contextmanager
    def held(self) -> Iterator[None]:
        """Have the folder alone: a run and a pull of it would write the same files."""
        path = self.path / ".lock"
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise not_kept(path, error) from None
        try:
            if not _locked(handle):
                raise still_going_on(self)
            with suppress(OSError):
                os.ftruncate(handle, 0)
                os.pwrite(handle, b"%d\n" % os.getpid(), 0)
            yield
        finally:
            os.close(handle)

    def holder(self) -> int | None:
        """The process of the command that is at work on the folder right now, if it is known."""
        if not self.is_held():
            return None
        with suppress(OSError, ValueError):
            return int((self.path / ".lock").read_bytes())
        return None

    def is_held(self) -> bool:
        """Whether a command is at work on the folder right now."""
        try:
            handle = os.open(self.path / ".lock", os.O_RDONLY)
        except OSError:
            return False
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(handle)
        return False

    @staticmethod
    def _made(path: Path) -> Path:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise not_kept(path, error) from None
        return path
