"""A job's folder in the store, and the record of jobs that run, so that nothing is forgotten.

``<store>/jobs/<job>/`` holds ``spec.json`` (what was asked), ``output`` (the spool), what the
command writes (``result.csv``, ``records.jsonl``), ``left`` (what it wrote into its tree instead),
``shadow`` (a private checkout) and ``status.json`` (how it ended). Only its owner may read it: the
variables of a target may be secrets. The command can do there what it likes, so nothing in it is
relied on; ``<store>/running/<job>`` is locked by the agent for as long as it looks after the job.
"""

import binascii
import errno
import fcntl
import json
import os
import re
import stat
import sys
import time
from typing import Any, Dict, Optional

from .claims import drop_claim
from .files import AgentError, explain_os_error, make_folders, remove_quietly, write_whole
from .proc import carriers, end_found

JOB_NAME_LENGTH = 181
JOB_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,%d}$" % (JOB_NAME_LENGTH - 1))
FOREIGN_RECORD_DAYS = 30.0
YOUNG_RECORD_SECONDS = 60.0
SWEEP_GRACE_SECONDS = 2.0
SWEEP_LIMIT_SECONDS = 8.0


def job_folder(store: str, job: str) -> str:
    """The folder of a job."""
    if not JOB_NAME.match(job):
        raise AgentError("protocol", "not a job's name: %r" % job)
    return os.path.join(store, "jobs", job)


class JobFolder(object):
    """The folder of one job that is run by us."""

    def __init__(self, store: str, spec: Dict[str, Any]) -> None:
        self.path = job_folder(store, spec["job"])
        self._store = store
        self._spec = spec
        self._running = os.path.join(store, "running", spec["job"])
        self._lock: Optional[int] = None
        self._made: Optional[os.stat_result] = None

    def make(self) -> None:
        """Record that the job is ours and make the folder, which must not be there."""
        try:
            # The record first: a folder without one tells of a job that nobody looks after.
            self._lock = hold_record(self._running)
            make_folders(os.path.dirname(self.path))
            os.mkdir(self.path, 0o700)
        except FileExistsError:
            raise AgentError("protocol", "the job %s was started before" % self._spec["job"])
        except OSError as error:
            raise explain_os_error(error, "making the job's folder")
        try:
            self._fill()
        except OSError as error:
            remove_quietly(self.path)
            raise explain_os_error(error, "making the job's folder")

    def _fill(self) -> None:
        os.chmod(self.path, 0o700)
        self._made = os.lstat(self.path)
        asked = json.dumps(self._spec).encode("ascii")
        write_whole(os.path.join(self.path, "spec.json"), asked, 0o600)

    def mend(self) -> Optional[str]:
        """After the job: make the folder again if it is not the one we made; return what was so."""
        try:
            there: Optional[os.stat_result] = os.lstat(self.path)
        except OSError:
            there = None
        assert self._made is not None
        if there is not None and os.path.samestat(there, self._made):
            if stat.S_IMODE(there.st_mode) != 0o700:
                os.chmod(self.path, 0o700)
            return None
        if there is not None and stat.S_ISDIR(there.st_mode):
            aside = "replaced-" + binascii.hexlify(os.urandom(8)).decode("ascii")
            os.rename(self.path, os.path.join(os.path.dirname(self.path), aside))
        elif there is not None:
            os.unlink(self.path)
        make_folders(os.path.dirname(self.path))
        os.mkdir(self.path, 0o700)
        self._fill()
        return "its job folder is gone" if there is None else "its job folder was replaced"

    def write_status(self, outcome: Dict[str, Any]) -> None:
        """Keep how the job ended; what prevents it is put into ``outcome``."""
        try:
            write_status(self.path, outcome)
        except OSError as error:
            outcome["status_lost"] = str(error)

    def close(self, forget: bool) -> None:
        """The job is over. Unless ``forget``, the next agent looks for what is left of it."""
        if self._lock is not None:
            drop_claim(self._store, self._spec["job"])
            if forget:
                remove_quietly(self._running)
            os.close(self._lock)
            self._lock = None


def write_status(folder: str, outcome: Dict[str, Any]) -> None:
    """Keep how a job ended, whole or not at all; raises ``OSError``."""
    path = os.path.join(folder, "status.json")
    if os.path.isdir(path) and not os.path.islink(path):
        remove_quietly(path)  # the job made it; anything else is replaced
    write_whole(path, json.dumps(outcome).encode("ascii"))


def _here() -> Dict[str, str]:
    """Where process ids mean what they mean to us: this boot, this container."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as stream:
            return {"boot": stream.read().strip(), "pids": os.readlink("/proc/self/ns/pid")}
    except OSError:
        return {}


def hold_record(path: str) -> int:
    """Record that we look after what carries the cookie ``path`` ends with; return the lock.

    Raises ``FileExistsError`` when somebody does already, or did and was killed.
    """
    folder, name = os.path.split(path)
    make_folders(folder)
    # Locked before it has its name: an agent that finds it unlocked takes us for dead.
    fresh = os.path.join(folder, "." + name)
    lock = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.write(lock, json.dumps(_here()).encode("ascii"))
        os.link(fresh, path)  # not a rename, which would replace another one
    except OSError:
        os.close(lock)
        raise
    finally:
        remove_quietly(fresh)
    return lock


def is_kept(store: str, job: str) -> bool:
    """Whether a living agent looks after a job."""
    try:
        handle = os.open(
            os.path.join(store, "running", job), os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK
        )
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False


def sweep_job(store: str, job: str) -> None:
    """``sweep`` for one job, which may have lost its agent only now."""
    try:
        _sweep_one(store, os.path.join(store, "running", job), job)
    except OSError as error:
        if error.errno != errno.ENOENT:
            sys.stderr.write("mxfleet-agent: cannot look after %s: %s\n" % (job, error))


def sweep(store: str) -> None:
    """End what is left of jobs whose agent and guardian were both killed.

    Their processes are found by the cookie in their environment and by descent. Jobs that a
    living agent looks after hold a lock; those of another machine or container that shares the
    store are left to the agents there.
    """
    folder = os.path.join(store, "running")
    for name in os.listdir(folder) if os.path.isdir(folder) else ():
        sweep_job(store, name)


def _sweep_one(store: str, record: str, name: str) -> None:
    handle = os.open(record, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return
        age = time.time() - os.fstat(handle).st_mtime
        if not JOB_NAME.match(name):
            if age > YOUNG_RECORD_SECONDS:
                os.unlink(record)
            return
        try:
            elsewhere = json.loads(os.read(handle, 4096).decode("ascii")) != _here()
        except ValueError:
            elsewhere = False  # a full disk; the cookie is enough
        if elsewhere:
            if age > FOREIGN_RECORD_DAYS * 86400.0:
                drop_claim(store, name)
                os.unlink(record)
            return
        if end_found(lambda: carriers(name), SWEEP_GRACE_SECONDS, SWEEP_LIMIT_SECONDS):
            return  # the next agent tries again
        job = job_folder(store, name)
        if os.path.isdir(job) and not os.path.lexists(os.path.join(job, "status.json")):
            write_status(
                job,
                {"ended": "lost", "exit_code": None, "signal": None, "strays": 0, "unkillable": []},
            )
        drop_claim(store, name)
        os.unlink(record)
    finally:
        os.close(handle)
