"""Send files of a job back: its records, its CSV and, on request, its output."""

import json
import os
import time
from typing import Any, Callable, Dict, List

from .files import open_regular, remove_quietly
from .jobfolder import JOB_NAME, is_kept, job_folder
from .wire import CHUNK

RESULT_FILES = ("records.jsonl", "result.csv")
RESULT_LIMIT = 64 * 1024 * 1024  # bytes of one of them
STATUS_LIMIT = 1024 * 1024
KEEP_JOBS = 200
KEEP_JOB_DAYS = 14.0


def send_files(
    folder: str,
    names: List[str],
    announce: Callable[[Dict[str, Any]], None],
    data: Callable[[bytes], None],
) -> None:
    """Send each existing file: an announcement with its size, then exactly that many bytes.

    A job could write whatever it likes there: what is no ordinary file, or a result too large to
    be one, is announced as left out, with the reason.
    """
    for name in names:
        try:
            stream = os.fdopen(open_regular(folder, name), "rb")
        except FileNotFoundError:
            continue
        except OSError as error:
            announce({"type": "left_out", "name": name, "why": error.strerror})
            continue
        with stream:
            size = os.fstat(stream.fileno()).st_size
            if name in RESULT_FILES and size > RESULT_LIMIT:
                why = "it has %d bytes, more than the limit of %d" % (size, RESULT_LIMIT)
                announce({"type": "left_out", "name": name, "why": why})
                continue
            announce({"type": "file", "name": name, "size": size})
            while size:
                part = stream.read(min(size, CHUNK))
                if not part:
                    # Shortened while it was read: the receiver has to get what was announced.
                    part = b"\n" * min(size, CHUNK)
                size -= len(part)
                data(part)


def job_status(store: str, job: str) -> Dict[str, Any]:
    """What became of a job: absent, running (or cut off), or how it ended.

    While an agent looks after it, its folder is not asked: the job can write there what it likes.
    """
    folder = job_folder(store, job)
    if is_kept(store, job):
        return {"state": "unfinished"}
    if not os.path.lexists(folder):
        return {"state": "absent"}
    try:
        with os.fdopen(open_regular(folder, "status.json"), "rb") as stream:
            outcome = json.loads(stream.read(STATUS_LIMIT).decode("ascii"))
    except (OSError, ValueError):
        return {"state": "unfinished"}
    if not isinstance(outcome, dict) or "ended" not in outcome:
        return {"state": "unfinished"}
    return {"state": "ended", "outcome": outcome}


def collect_jobs(store: str) -> int:
    """Remove the folders of jobs beyond the latest ``KEEP_JOBS`` and older than the limit."""
    root = os.path.join(store, "jobs")
    found = []
    for name in os.listdir(root) if os.path.isdir(root) else ():
        if JOB_NAME.match(name):
            try:
                found.append((os.lstat(os.path.join(root, name)).st_mtime, name))
            except FileNotFoundError:
                pass  # another agent collects as well
    gone = 0
    for changed, name in sorted(found, reverse=True)[KEEP_JOBS:]:
        if time.time() - changed > KEEP_JOB_DAYS * 86400.0:
            remove_quietly(os.path.join(root, name))
            gone += 1
    return gone
