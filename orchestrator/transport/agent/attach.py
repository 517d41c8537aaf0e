"""Attach to a job that another agent runs, or ran: its output from an offset on, then its end.

A job's output lies in its spool, so whoever comes later reads it there. For as long as it is
listened to, the job is claimed (see ``claims``), so that the agent that runs it lets it go on.
"""

import os
import time
from typing import Any, Callable, Dict, List

from .claims import Claim, claimed, drop_claim, read_claim, write_claim
from .fetch import job_status
from .files import AgentError, explain_os_error, make_folders, open_regular
from .jobfolder import (
    SWEEP_GRACE_SECONDS,
    SWEEP_LIMIT_SECONDS,
    is_kept,
    job_folder,
    sweep_job,
    write_status,
)
from .proc import Process, carriers, end_found
from .wire import CHUNK

LOOK_SECONDS = 0.2


def follow(
    store: str,
    job: str,
    offset: int,
    hold: float,
    data: Callable[[bytes], None],
    ending: Callable[[], bool],
) -> Dict[str, Any]:
    """Send the spool from ``offset`` on until the job has ended; return what became of it.

    ``hold`` is for how many seconds the job goes on when we are gone; ``ending`` tells that we go.
    """
    if offset < 0:
        raise AgentError("protocol", "no job has output before its first byte")
    folder = job_folder(store, job)
    with claimed(store, job, hold, lambda: is_kept(store, job) and not ending()):
        status = _settled(store, job)
        while True:
            sent = _send(folder, offset, data)
            offset += sent
            if status["state"] != "unfinished" and not sent:
                break
            if ending():
                raise AgentError("interrupted", "the agent is ending")
            if not sent:
                time.sleep(LOOK_SECONDS)
            if status["state"] == "unfinished":
                status = _settled(store, job)
    drop_claim(store, job)  # it may have been renewed once more after the job's end
    return status


def _settled(store: str, job: str) -> Dict[str, Any]:
    """As ``_status``; a job that was never started is not going to be either."""
    while True:
        status = _status(store, job)
        if status["state"] != "absent":
            return status
        if _bury(job_folder(store, job)):
            # Somebody may have removed the store under a job.
            left = _end(job)
            return _lost(left) if left else status


def _bury(folder: str) -> bool:
    """Make sure that a request that a slow link still carries starts nothing any more."""
    try:
        make_folders(os.path.dirname(folder))
        os.mkdir(folder, 0o700)
    except FileExistsError:
        return False
    except OSError as error:
        raise explain_os_error(error, "giving the job up")
    message = "given up before its request arrived"
    write_status(folder, {"ended": "refused", "message": message, "exit_code": None})
    return True


def _status(store: str, job: str) -> Dict[str, Any]:
    """As ``job_status``; a job that nobody looks after any more is ended here and now."""
    status = job_status(store, job)
    if status["state"] == "unfinished" and not is_kept(store, job):
        # By its cookie, also where the record that a sweep goes by was removed.
        left = _end(job)
        if not left:
            sweep_job(store, job)
        status = job_status(store, job)
        if status["state"] == "unfinished" and not is_kept(store, job):
            # Something is left, or not even its end could be written down, on a full disk say.
            status = _lost(left)
    return status


def _end(job: str) -> List[Process]:
    return end_found(lambda: carriers(job), SWEEP_GRACE_SECONDS, SWEEP_LIMIT_SECONDS)


def _lost(left: List[Process]) -> Dict[str, Any]:
    lost = {"ended": "lost", "exit_code": None, "signal": None, "strays": 0}
    unkillable = [{"pid": p.pid, "state": p.state} for p in left]
    return {"state": "ended", "outcome": dict(lost, unkillable=unkillable)}


def _send(folder: str, offset: int, data: Callable[[bytes], None]) -> int:
    """Send what the spool has beyond ``offset``; return how many bytes that were."""
    sent = 0
    try:
        stream = os.fdopen(open_regular(folder, "output"), "rb")
    except OSError:
        return 0  # not there yet, or the job made something else of it
    with stream:
        if offset > os.fstat(stream.fileno()).st_size:
            return 0  # the job cut it
        stream.seek(offset)
        while True:
            part = stream.read(CHUNK)
            if not part:
                return sent
            data(part)
            sent += len(part)


def stop(store: str, job: str, limit: float) -> Dict[str, Any]:
    """Have a job that another agent runs ended; wait for the proof, at most ``limit`` seconds."""
    asked = False
    began = time.monotonic()
    while True:
        status = _settled(store, job)
        if status["state"] != "unfinished" or time.monotonic() - began > limit:
            left = status.get("outcome", {}).get("unkillable")
            return dict(status, known=asked, finished=status["state"] == "ended" and not left)
        asked = True
        claim = read_claim(store, job)
        if claim.stop is None:  # again, if somebody who renewed his claim has overwritten it
            write_claim(store, job, Claim(claim.until, "stopped"))
        time.sleep(LOOK_SECONDS)
