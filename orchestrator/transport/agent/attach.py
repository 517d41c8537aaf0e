"""Attach to a job that another agent runs, or ran: its output from an offset on, then its end.

A job's output lies in its spool, so whoever comes later reads it there. For as long as it is
listened to, the job is claimed (see ``claims``), so that the agent that runs it lets it go on.
"""

import os
import time
from typing import Any, Callable, Dict, Optional

from .claims import Claim, read_claim, renew_claim, write_claim
from .fetch import job_status
from .files import AgentError, explain_os_error, make_folders, open_regular
from .jobfolder import is_kept, job_folder, sweep_job, write_status
from .wire import CHUNK

LOOK_SECONDS = 0.2
RENEW_SECONDS = 1.0


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
    folder = job_folder(store, job)
    renewed = 0.0
    status = _status(store, job)
    while status["state"] != "absent":
        if status["state"] == "unfinished" and time.monotonic() - renewed > RENEW_SECONDS:
            renewed = time.monotonic()
            renew_claim(store, job, renewed + hold)
        sent = _send(folder, offset, data)
        offset += sent
        if status["state"] == "ended" and not sent:
            break
        if ending():
            raise AgentError("interrupted", "the agent is ending")
        if not sent:
            time.sleep(LOOK_SECONDS)
        if status["state"] == "unfinished":
            status = _status(store, job)
    if status["state"] == "absent" and not _bury(folder):
        return follow(store, job, offset, hold, data, ending)
    return status


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
        sweep_job(store, job)
        status = job_status(store, job)
        if status["state"] == "unfinished" and not is_kept(store, job):
            # Not even its end could be written down, on a full disk say.
            lost = {"ended": "lost", "exit_code": None, "signal": None, "strays": 0}
            status = {"state": "ended", "outcome": dict(lost, unkillable=[])}
    return status


def _send(folder: str, offset: int, data: Callable[[bytes], None]) -> int:
    """Send what the spool has beyond ``offset``; return how many bytes that were."""
    sent = 0
    try:
        stream = os.fdopen(open_regular(folder, "output"), "rb")
    except OSError:
        return 0  # not there yet, or the job made something else of it
    with stream:
        stream.seek(offset)
        while True:
            part = stream.read(CHUNK)
            if not part:
                return sent
            data(part)
            sent += len(part)


def stop(store: str, job: str, limit: float) -> Dict[str, Any]:
    """Have a job that another agent runs ended; wait for the proof, at most ``limit`` seconds."""
    asked: Optional[float] = None
    began = time.monotonic()
    while True:
        status = _status(store, job)
        if status["state"] != "unfinished" or time.monotonic() - began > limit:
            return dict(status, known=asked is not None, finished=status["state"] == "ended")
        if asked is None:
            asked = time.monotonic()
            write_claim(store, job, Claim(read_claim(store, job).until, "stopped"))
        time.sleep(LOOK_SECONDS)
