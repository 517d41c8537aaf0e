"""Warm workers: jobs that are forked from a Python that imported torch once.

A worker is a tree's front door with ``--serve`` (see benchmark/harness/warm.py), started as a job
is: env script, search paths, python. It takes one job after the other; jobs that differ in anything
but their arguments never share one. A job's processes carry the job's cookie, the worker has one
of its own. Whatever does not end in order is ended with the whole worker, and the next job gets a
new one. A worker that waits for ``IDLE_SECONDS``, or while another tree is served, is ended.
"""

import array
import binascii
import json
import os
import queue
import select
import socket
import stat
import subprocess
import threading
import time
from typing import Any, Callable, Dict, List, Optional, Tuple

from .files import remove_quietly
from .jobfolder import JOB_NAME_LENGTH, hold_record
from .proc import COOKIE, Process, end_tree, release, spawn, tag_of
from .shell import JOB_MARK, Told, env_script_of, shell_command

IDLE_SECONDS = 60.0
TICK_SECONDS = 1.0
GRACE_SECONDS = 1.0
LIMIT_SECONDS = 6.0
MESSAGE = 1 << 20
OUR_FAULT = 70


class Worker(object):
    """A server process with the socket to it; it has one job at a time."""

    def __init__(self, key: Tuple[Any, ...], store: str, cookie: str) -> None:
        self.key = key
        self.cookie = cookie
        self.fit = False  # it has run a job
        self.idle_since = 0.0
        self.process: Optional["subprocess.Popen[bytes]"] = None
        self._record = os.path.join(store, "running", cookie)
        self._lock = hold_record(self._record)
        self._socket, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._open = True

    def ask(self, request: Dict[str, Any], outputs: List[int]) -> None:
        """Have a front door started; raises ``OSError`` when there is nobody to ask."""
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", outputs))]
        self._socket.sendmsg([json.dumps(request).encode("ascii")], rights)

    def hear(self, limit: float) -> Optional[Dict[str, Any]]:
        """The next answer, ``{}`` once the worker has ended, None after ``limit`` seconds."""
        assert self.process is not None
        # Looked at first: what it said before its end is still to be read.
        ended = self.process.poll() is not None
        if self._open and select.select([self._socket], [], [], 0.0 if ended else limit)[0]:
            try:
                answer = json.loads(self._socket.recv(MESSAGE).decode("ascii"))
            except (OSError, ValueError):
                answer = None  # the other end is closed, or is no server of ours
            if isinstance(answer, dict) and answer:
                return answer
            self._open = False
            self.process.kill()
            return None
        if not self._open and not ended:
            try:
                self.process.wait(limit)
            except subprocess.TimeoutExpired:
                pass
        return {} if ended else None

    def has_ended(self) -> bool:
        """Whether there is no such process, or none any more."""
        return self.process is None or self.process.poll() is not None

    def how(self) -> str:
        """How it ended, in words."""
        assert self.process is not None and self.process.returncode is not None
        code = self.process.returncode
        return "it ended with exit code %d" % code if code >= 0 else "signal %d ended it" % -code

    def end(self) -> None:
        """End it and all that it started; what cannot be ended the next agent looks after."""
        self._socket.close()
        self.theirs.close()
        left: List[Process] = []
        if self.process is not None:
            left = end_tree((self.cookie,), self.process, GRACE_SECONDS, LIMIT_SECONDS)
            release(self.process, self.cookie)
        if not left:
            remove_quietly(self._record)
        os.close(self._lock)


class WarmJob(object):
    """A job's front door in a worker, in the place of a ``Popen`` of its own.

    ``cookies`` and ``pid`` are the worker's too: who ends the tree of this ends the whole worker.
    ``refused``: why it was never started; ``lost``: how its worker ended before it; ``left``: the
    number of processes that it left behind and the worker ended.
    """

    def __init__(self, worker: Worker, job: str, told: Told) -> None:
        assert worker.process is not None
        self.worker = worker
        self.cookies, self.pid = (worker.cookie, job), worker.process.pid
        self.returncode: Optional[int] = None
        self.refused: Optional[str] = None
        self.lost: Optional[str] = None
        self.left = 0
        self._process = worker.process
        self._told = told
        self._started = False

    def take(self, stdout: int, stderr: int) -> None:
        """The descriptors where its output comes from."""
        self.stdout, self.stderr = os.fdopen(stdout, "rb", 0), os.fdopen(stderr, "rb", 0)

    def poll(self) -> Optional[int]:
        """The exit code, negative for a signal; None while it runs."""
        self._process.poll()  # also when this job is over: no zombie may be left of the worker
        while self.returncode is None and self._listen(0.0):
            pass
        return self.returncode

    def wait(self, timeout: float) -> int:
        """As of ``Popen``."""
        deadline = time.monotonic() + timeout
        while self.returncode is None:
            rest = deadline - time.monotonic()
            if not self._listen(max(rest, 0.0)) and rest <= 0.0:
                raise subprocess.TimeoutExpired("a warm job", timeout)
        return self.returncode

    def refuse(self, why: str) -> None:
        """It is not started here."""
        self.refused, self.returncode = why, OUR_FAULT

    def _listen(self, limit: float) -> bool:
        answer = self.worker.hear(limit)
        if answer is None:
            return False
        if "pid" in answer:
            self._started = True
        elif "status" in answer:
            self.left = int(answer["left"])
            self.returncode = _exit_code(int(answer["status"]))
        elif "refused" in answer:
            self.refuse(str(answer["refused"]))
        elif self._started:
            self.lost = self.worker.how()
            self.returncode = self._process.returncode or OUR_FAULT
        elif self._told.words()[:1] == ["started"]:
            self.refuse(self.worker.how())
        else:
            self.returncode = self._process.returncode  # the shell's, which told why
        return True


class Workers(object):
    """All workers of an agent."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: List[Worker] = []
        self._unfit: Dict[Tuple[Any, ...], str] = {}
        self._closing = False
        self._asked: "queue.Queue[Tuple[Callable[[], None], queue.Queue[Any]]]" = queue.Queue()
        self._keeper: Optional[threading.Thread] = None

    def unfit(self, spec: Dict[str, Any], store: str, cwd: str) -> Optional[str]:
        """Why there is no use in starting a worker for a job: what the last one did."""
        return self._unfit.get(_key(spec, store, cwd))

    def start(self, spec: Dict[str, Any], store: str, cwd: str, folder: str, told: Told) -> WarmJob:
        """Have a job forked by a worker that fits, or by a new one."""
        words, front = spec["argv"], _front(spec)
        key = _key(spec, store, cwd)
        worker = self._take(key)
        outputs: List[int] = []
        try:
            for _ in range(2):
                outputs.extend(os.pipe())
            ends = outputs[1::2]
            if worker is not None:
                told.started()
            else:
                worker = Worker(key, store, _new_cookie())
                self._begin(worker, dict(spec, argv=words[:front]), cwd, folder, told, ends)
            job = WarmJob(worker, spec["job"], told)
            argv = [word.replace(JOB_MARK, folder) for word in words[front:]]
            request = {"argv": argv, "env": {"MXFLEET_JOB": folder}}
            try:
                worker.ask(
                    dict(request, cookie=[COOKIE, spec["job"]], tag=tag_of(spec["job"])), ends
                )
            except ConnectionError:
                pass  # it has ended, and will be heard to have
            except OSError as error:
                job.refuse("it cannot be asked: %s" % error.strerror)
        except BaseException:
            for handle in outputs:
                os.close(handle)
            if worker is not None:
                worker.end()
            raise
        for handle in ends:
            os.close(handle)
        job.take(*outputs[::2])
        return job

    def release(self, job: WarmJob, keep: bool) -> None:
        """A job is over. Unless ``keep``, its worker is ended: something was not in order."""
        worker = job.worker
        worker.idle_since = time.monotonic()
        keep = keep and not (job.refused or job.lost or job.left or worker.has_ended())
        with self._lock:
            if keep and not self._closing:
                worker.fit = True
                self._idle.append(worker)
                return
            if job.refused and not worker.fit:
                self._unfit[worker.key] = job.refused
        worker.end()

    def close(self) -> None:
        """End all workers that have no job; the others end with theirs."""
        with self._lock:
            self._closing = True
        self._end_idle(lambda worker: True)

    def _take(self, key: Tuple[Any, ...]) -> Optional[Worker]:
        """An idle worker for ``key``; those of other trees are ended."""
        self._end_idle(lambda worker: worker.key[0] != key[0] or worker.has_ended())
        with self._lock:
            for worker in self._idle:
                if worker.key == key:
                    self._idle.remove(worker)
                    return worker
        return None

    def _end_idle(self, which: Callable[[Worker], bool]) -> None:
        with self._lock:
            ending = [worker for worker in self._idle if which(worker)]
            self._idle = [worker for worker in self._idle if worker not in ending]
        for worker in ending:
            worker.end()

    def _begin(
        self,
        worker: Worker,
        spec: Dict[str, Any],
        cwd: str,
        folder: str,
        told: Told,
        outputs: List[int],
    ) -> None:
        """Start the server; what it prints until it serves belongs to the first job."""
        handle = worker.theirs.fileno()
        spec.update(job=worker.cookie, argv=spec["argv"] + ["--serve", str(handle)])
        words, env = shell_command(spec, cwd, folder, told)

        def begin() -> None:
            worker.process = spawn(
                words,
                worker.cookie,
                cwd=cwd,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=outputs[0],
                stderr=outputs[1],
                pass_fds=(told.child_end, handle),
            )
            worker.theirs.close()

        with self._lock:
            if self._keeper is None:
                self._keeper = threading.Thread(target=self._keep, daemon=True)
                self._keeper.start()
        answer: "queue.Queue[Any]" = queue.Queue()
        self._asked.put((begin, answer))
        error = answer.get()
        if error is not None:
            raise error

    def _keep(self) -> None:
        """Start servers, which end with the thread that did so; end those that idle for long."""
        while True:
            try:
                begin, answer = self._asked.get(timeout=TICK_SECONDS)
            except queue.Empty:
                self._end_idle(_has_had_its_time)
                continue
            try:
                begin()
                answer.put(None)
            except Exception as error:  # noqa: BLE001 - it is the asking thread's
                answer.put(error)


def _new_cookie() -> str:
    """A cookie in whose place that of any job fits."""
    name = "warm-" + binascii.hexlify(os.urandom(8)).decode("ascii")
    return name + "-" * (JOB_NAME_LENGTH - len(name))


def _front(spec: Dict[str, Any]) -> int:
    """How many of a command's words are python's flags and the front door."""
    return next(at for at, word in enumerate(spec["argv"]) if not word.startswith("-")) + 1


def _key(spec: Dict[str, Any], store: str, cwd: str) -> Tuple[Any, ...]:
    """What jobs of one worker have in common; first the tree."""
    script = env_script_of(spec, cwd)
    settings = [spec.get(name) for name in ("python", "env", "path", "ld_library_path")]
    return (
        (store, spec.get("tree"), _identity(cwd)),
        tuple(spec["argv"][: _front(spec)]),
        script,
        _identity(script) if script else None,
        json.dumps(settings, sort_keys=True),
    )


def _identity(path: str) -> Optional[Tuple[int, ...]]:
    """What changes when a folder is laid out anew, or a file is written."""
    try:
        found = os.stat(path)
    except OSError:
        return None  # whoever needs it will say so
    if stat.S_ISDIR(found.st_mode):
        return (found.st_dev, found.st_ino)
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


def _has_had_its_time(worker: Worker) -> bool:
    return worker.has_ended() or time.monotonic() - worker.idle_since > IDLE_SECONDS


def _exit_code(status: int) -> int:
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
