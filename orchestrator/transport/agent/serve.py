"""The agent's main loop: requests in, answers out, and what happens when nobody listens any more.

Every request runs in a thread of its own, and imports what only it needs: an agent is started for
every command. When the pipe ends, or nothing at all came over it for the lease, all jobs are ended
(TERM, KILL, proof) before the agent goes: at once when the controller said goodbye, else after the
time that each job is held for somebody to attach to it.
"""

import os
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, BinaryIO, Callable, Dict, List, Optional, Set

from . import fetch, locks
from .claims import hold_of, read_claim
from .files import (
    AgentError,
    Entry,
    disk_of,
    entries_from_json,
    explain_os_error,
    native,
    private_store,
)
from .guard import guard
from .jobfolder import job_folder, sweep
from .jobs import Job
from .proc import become_subreaper, reap
from .wire import (
    Frame,
    FrameWriter,
    Inbox,
    WireError,
    beat,
    file_writer,
    read_frame,
    start_mark,
)

if TYPE_CHECKING:
    from .trees import TreeStore
    from .warm import Workers

VERSION = 1
EXIT_LIMIT_SECONDS = 20.0
HELD_TICK_SECONDS = 0.2
TIDY_SECONDS = 5.0


class Request(object):
    """One request: its arguments, its incoming bytes, and the way to answer."""

    def __init__(self, number: int, args: Dict[str, Any], writer: FrameWriter) -> None:
        self.number = number
        self.args = native(args)
        self.incoming = Inbox()
        self._writer = writer
        self.thread: Optional[threading.Thread] = None

    def say(self, message: Dict[str, Any]) -> None:
        self._writer.json(self.number, message)

    def data(self, data: bytes) -> None:
        self._writer.data(self.number, data)

    def read(self) -> bytes:
        """The next bytes from the controller, ``b""`` at their end."""
        frame = self.incoming.get()
        if frame is None or frame.kind == "E":
            self.incoming.close()
            return b""
        return frame.payload


class Agent(object):
    """Serves one pipe."""

    def __init__(
        self, stream: BinaryIO, output: BinaryIO, reassure: Callable[[float], None]
    ) -> None:
        self._stream = stream
        self._reassure = reassure
        self._swept: Set[str] = set()
        self._sweeping = threading.Lock()
        self._writer = FrameWriter(file_writer(output))
        self._requests: Dict[int, Request] = {}
        self._jobs: Dict[str, Job] = {}
        self._lock = threading.Lock()
        self._heard = time.monotonic()
        self._lease = 15.0
        self._workers: "Optional[Workers]" = None
        self._ending = threading.Event()
        self._at_once = threading.Event()  # no job is held any longer
        self._in_container = False
        self._locks = locks.Locks(self._at_once)
        self._handlers: Dict[str, Callable[[Request], Dict[str, Any]]] = {
            "facts": self._facts,
            "has_tree": self._has_tree,
            "missing": self._missing,
            "put_tree": self._put_tree,
            "compare": self._compare,
            "sync": self._sync,
            "run": self._run,
            "stop": self._stop,
            "attach": self._attach,
            "job": self._job,
            "fetch": self._fetch,
            "gpus": self._gpus,
            "lock": lambda request: self._locks.lock(request.args, request.say, request.read),
            "lock_holders": lambda request: locks.holders(request.args),
        }

    def serve(self) -> None:
        """Handle requests until the pipe ends."""
        hello = read_frame(self._read)
        if hello is None:
            return
        args = hello.json()
        self._lease = float(args["lease"])
        self._in_container = bool(args["in_container"])
        self._writer.raw(start_mark(args["nonce"]))
        self._writer.json(0, {"type": "hello", "version": VERSION, "pid": os.getpid()})
        threading.Thread(target=self._beat, daemon=True).start()
        threading.Thread(target=self._watch, daemon=True).start()
        threading.Thread(target=self._live, daemon=True).start()
        try:
            while True:
                frame = read_frame(self._read)
                if frame is None:
                    break
                self._take(frame)
        except (WireError, OSError) as error:
            sys.stderr.write("mxfleet-agent: %s\n" % error)
        finally:
            self.end("lost")

    def _take(self, frame: Frame) -> None:
        self._hear()
        if frame.kind == "J" and not frame.request:
            self._at_once.set()  # goodbye: what comes next is the end of the pipe
        elif frame.kind == "J":
            self._begin(frame.request, frame.json())
        elif frame.kind in ("D", "E"):
            request = self._requests.get(frame.request)
            if request is not None:
                request.incoming.put(frame, self._hear)

    def _hear(self) -> None:
        """Somebody is there: bytes came, or wait to be read until a slow disk has taken others."""
        self._heard = time.monotonic()

    def _read(self, size: int) -> bytes:
        return self._stream.read1(size)  # type: ignore[attr-defined,no-any-return]

    def _beat(self) -> None:
        """Heartbeats out. A thread of its own: writing may block as long as nobody reads."""
        interval = beat(self._lease)
        while not self._ending.wait(min(0.5, interval)):
            try:
                self._writer.heartbeat_if_idle(interval)
            except OSError:
                self.end("lost")

    def _watch(self) -> None:
        """The lease in, orphans reaped."""
        while not self._ending.wait(min(0.5, beat(self._lease))):
            if time.monotonic() - self._heard > self._lease:
                self.end("lost")
            reap()

    def _live(self) -> None:
        """Signs of life to the guardian, until the last moment."""
        while True:
            self._reassure(self._lease)
            time.sleep(min(0.5, beat(self._lease)))

    def end(self, reason: str) -> None:
        """End all jobs and the process; whoever comes second waits for the first.

        Only a lost link lets jobs be held; everything else ends them at once, also those that are.
        """
        with self._lock:
            first = not self._ending.is_set()
            self._ending.set()
        if reason != "lost":
            self._at_once.set()
        while not first:
            time.sleep(EXIT_LIMIT_SECONDS)
        requests = list(self._requests.values())
        for request in requests:
            request.incoming.close()
        jobs = list(self._jobs.values())
        self._hold(jobs, reason)
        deadline = time.monotonic() + EXIT_LIMIT_SECONDS
        for job in jobs:
            job.finished.wait(max(0.0, deadline - time.monotonic()))
        if self._workers is not None:
            self._workers.close()
        self._locks.settle()
        # A push that breaks off takes its half of a tree away. Threads may also be blocked on the
        # pipe for good.
        tidied = time.monotonic() + TIDY_SECONDS
        for request in requests:
            if request.thread is not None and request.args.get("op") != "run":
                request.thread.join(max(0.0, tidied - time.monotonic()))
        os._exit(0)

    def _hold(self, jobs: List[Job], reason: str) -> None:
        """Let jobs go on for as long as they are held or claimed, then have them ended."""
        began = time.monotonic()
        left = list(jobs)
        while left:
            for job in list(left):
                claim = read_claim(job.store, job.spec["job"])
                until = max(began + hold_of(job.spec.get("hold")), claim.until)
                if self._at_once.is_set() or claim.stop or time.monotonic() >= until:
                    job.stop(claim.stop or ("stopped" if self._at_once.is_set() else reason))
                    left.remove(job)
                elif job.finished.is_set():
                    left.remove(job)
            if left:
                reap()
                time.sleep(HELD_TICK_SECONDS)

    def _begin(self, number: int, args: Dict[str, Any]) -> None:
        request = Request(number, args, self._writer)
        request.thread = threading.Thread(target=self._answer, args=(request,), daemon=True)
        self._requests[number] = request
        request.thread.start()

    def _answer(self, request: Request) -> None:
        try:
            handler = self._handlers.get(request.args.get("op", ""))
            if handler is None:
                raise AgentError("protocol", "unknown request %r" % request.args.get("op"))
            answer = dict(handler(request), type="result")
        except AgentError as error:
            answer = {"type": "error", "kind": error.kind, "message": error.message}
            answer["hint"] = error.hint
        except OSError as error:
            told = explain_os_error(error, "answering %r" % request.args.get("op"))
            answer = {"type": "error", "kind": told.kind, "message": told.message}
            answer["hint"] = told.hint
        except Exception as error:  # noqa: BLE001 - the controller has to hear of our own faults
            answer = {"type": "error", "kind": "internal", "message": repr(error), "hint": None}
            import traceback

            answer["traceback"] = traceback.format_exc()
        request.incoming.close()
        self._requests.pop(request.number, None)
        try:
            request.say(answer)
        except OSError:
            pass  # the main loop sees the end of the pipe as well

    def _store(self, request: Request, make: bool = True) -> str:
        store = private_store(request.args.get("store"), self._in_container, make)
        if make:
            with self._sweeping:
                if store not in self._swept:
                    self._swept.add(store)
                    sweep(store)
        return store

    def _facts(self, request: Request) -> Dict[str, Any]:
        from . import facts

        return facts.gather(request.args, self._store(request))

    @staticmethod
    def _gpus(_: Request) -> Dict[str, Any]:
        from . import gpus

        return gpus.gpus()

    @staticmethod
    def _trees(store: str) -> "TreeStore":
        from .trees import TreeStore

        return TreeStore(store)

    def _warm(self) -> "Workers":
        from .warm import Workers

        with self._lock:
            if self._workers is None:
                self._workers = Workers()
            return self._workers

    def _has_tree(self, request: Request) -> Dict[str, Any]:
        trees = self._trees(self._store(request, make=False))
        name = request.args["tree"]
        return {"present": trees.present(name), "path": trees.folder(name)}

    def _missing(self, request: Request) -> Dict[str, Any]:
        trees = self._trees(self._store(request, make=False))
        return {"missing": trees.missing(self._entries(request))}

    @staticmethod
    def _entries(request: Request) -> List[Entry]:
        return entries_from_json(request.args["entries"])

    def _put_tree(self, request: Request) -> Dict[str, Any]:
        store = self._store(request)
        trees = self._trees(store)
        name = request.args["tree"]
        path = trees.receive(name, self._entries(request), request.args["sent"], request.read)
        gone = trees.collect(request.args["keep"], request.args["keep_days"], name)
        fetch.collect_jobs(store)
        return {"path": path, "collected": gone, "disk": disk_of(store)}

    def _compare(self, request: Request) -> Dict[str, Any]:
        from . import sync

        args = request.args
        return sync.compare(args["workdir"], args["folders"], self._entries(request), args["texts"])

    def _sync(self, request: Request) -> Dict[str, Any]:
        from . import sync

        args = request.args
        return sync.apply(
            args["workdir"], self._entries(request), args["delete"], args["expected"], request.read
        )

    def _run(self, request: Request) -> Dict[str, Any]:
        job = Job(request.args, self._store(request), self._warm)
        name = request.args["job"]
        with self._lock:
            if self._ending.is_set():
                raise AgentError("interrupted", "the agent is ending")
            if name in self._jobs:
                raise AgentError("protocol", "the job %s was started before" % name)
            self._jobs[name] = job

        def started(folder: str) -> None:
            request.say({"type": "started", "folder": folder})

        try:
            outcome = job.run(started, request.data)
        finally:
            self._jobs.pop(name, None)
        request.say({"type": "output_end"})
        self._send_results(request, job.folder, bool(job.spec.get("profiler")))
        return {"outcome": outcome, "folder": job.folder}

    @staticmethod
    def _send_results(request: Request, folder: str, made: bool) -> None:
        """Send what the job measured, and with ``made`` whatever else it wrote."""
        fetch.send_files(folder, list(fetch.RESULT_FILES), request.say, request.data)
        if made:
            from .made import send_made

            send_made(folder, request.say, request.data)

    def _stop(self, request: Request) -> Dict[str, Any]:
        """End a running job, whichever agent runs it, and wait for the proof."""
        name = request.args["job"]
        job = self._jobs.get(name)
        if job is None:
            from . import attach

            return attach.stop(self._store(request, make=False), name, EXIT_LIMIT_SECONDS)
        job.stop(request.args.get("reason") or "stopped")
        return {"known": True, "finished": job.finished.wait(EXIT_LIMIT_SECONDS) and job.proven}

    def _attach(self, request: Request) -> Dict[str, Any]:
        """Follow a job that another agent runs, or ran, from an offset of its output on."""
        from . import attach

        args = request.args
        store = self._store(request)
        status = attach.follow(
            store,
            args["job"],
            int(args["offset"]),
            hold_of(args.get("hold")),
            request.data,
            self._ending.is_set,
        )
        folder = job_folder(store, args["job"])
        if status["state"] == "ended":
            request.say({"type": "output_end"})
            self._send_results(request, folder, bool(args.get("made")))
        return dict(status, folder=folder)

    def _job(self, request: Request) -> Dict[str, Any]:
        return fetch.job_status(self._store(request, make=False), request.args["job"])

    def _fetch(self, request: Request) -> Dict[str, Any]:
        """Send a job's spool and its files."""
        store = self._store(request, make=False)
        status = fetch.job_status(store, request.args["job"])
        folder = job_folder(store, request.args["job"])
        fetch.send_files(folder, ["output"], request.say, request.data)
        self._send_results(request, folder, bool(request.args.get("made")))
        return status


def main(stream: BinaryIO) -> None:
    """Serve the pipe on ``stream`` and standard output."""
    os.umask(0o022)
    reassure = guard()
    guardian = os.getppid()
    # Not SIG_IGN, which jobs would inherit.
    signal.signal(signal.SIGHUP, lambda *_: None)
    # Frames have standard output to themselves, whatever else may print.
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    become_subreaper()
    agent = Agent(stream, output, reassure)

    def terminated(*_: Any) -> None:
        # The guardian's death is no wish of anybody: what runs may go on for as long as it is held.
        reason = "stopped" if os.getppid() == guardian else "lost"
        threading.Thread(target=agent.end, args=(reason,)).start()

    signal.signal(signal.SIGTERM, terminated)
    agent.serve()
