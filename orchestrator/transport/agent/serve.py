"""The agent's main loop: requests in, answers out, and what happens when nobody listens any more.

Every request runs in a thread of its own. When the pipe ends, or nothing at all came over it for
the lease, all jobs are ended (TERM, KILL, proof) before the agent goes.
"""

import os
import queue
import signal
import sys
import threading
import time
import traceback
from typing import Any, BinaryIO, Callable, Dict, List, Optional

from . import facts as facts_of
from . import fetch, sync
from .files import AgentError, Entry, disk_of, private_store
from .jobs import Job, job_folder
from .proc import become_subreaper, reap
from .trees import TreeStore
from .wire import FrameWriter, WireError, file_writer, read_frame, start_mark

VERSION = 1
EXIT_LIMIT_SECONDS = 20.0


class Request(object):
    """One request: its arguments, its incoming bytes, and the way to answer."""

    def __init__(self, number: int, args: Dict[str, Any], writer: FrameWriter) -> None:
        self.number = number
        self.args = args
        self.incoming = queue.Queue()  # type: queue.Queue[Optional[bytes]]
        self._writer = writer
        self._ended = False

    def say(self, message: Dict[str, Any]) -> None:
        self._writer.json(self.number, message)

    def data(self, data: bytes) -> None:
        self._writer.data(self.number, data)

    def read(self) -> bytes:
        """The next bytes from the controller, ``b""`` at their end."""
        if self._ended:
            return b""
        data = self.incoming.get()
        if data is None:
            self._ended = True
            return b""
        return data


class Agent(object):
    """Serves one pipe."""

    def __init__(self, stream: BinaryIO, output: BinaryIO) -> None:
        self._stream = stream
        self._writer = FrameWriter(file_writer(output))
        self._requests = {}  # type: Dict[int, Request]
        self._jobs = {}  # type: Dict[str, Job]
        self._lock = threading.Lock()
        self._heard = time.monotonic()
        self._lease = 15.0
        self._ending = threading.Event()
        self._in_container = False
        self._handlers = {
            "facts": self._facts,
            "has_tree": self._has_tree,
            "missing": self._missing,
            "put_tree": self._put_tree,
            "compare": self._compare,
            "sync": self._sync,
            "run": self._run,
            "stop": self._stop,
            "job": self._job,
            "fetch": self._fetch,
        }  # type: Dict[str, Callable[[Request], Dict[str, Any]]]

    def serve(self) -> None:
        """Handle requests until the pipe ends."""
        hello = read_frame(self._read)
        if hello is None:
            return
        args = hello.json()
        self._lease = float(args["lease"])
        self._in_container = bool(args["in_container"])
        sys.stderr.flush()
        self._writer._write(start_mark(args["nonce"]))
        self._writer.json(0, {"type": "hello", "version": VERSION, "pid": os.getpid()})
        threading.Thread(target=self._watch, daemon=True).start()
        try:
            while True:
                frame = read_frame(self._read)
                if frame is None:
                    break
                self._heard = time.monotonic()
                if frame.kind == "J":
                    self._begin(frame.request, frame.json())
                elif frame.kind in ("D", "E"):
                    request = self._requests.get(frame.request)
                    if request is not None:
                        request.incoming.put(frame.payload if frame.kind == "D" else None)
        except (WireError, OSError) as error:
            sys.stderr.write("mxfleet-agent: %s\n" % error)
        self.end("lost")

    def _read(self, size: int) -> bytes:
        return self._stream.read1(size)  # type: ignore[attr-defined,no-any-return]

    def _watch(self) -> None:
        """Heartbeats out, the lease in, orphans reaped."""
        while not self._ending.wait(0.5):
            try:
                self._writer.heartbeat_if_idle()
            except OSError:
                self.end("lost")
            if time.monotonic() - self._heard > self._lease:
                sys.stderr.write("mxfleet-agent: nothing heard for %.0f s\n" % self._lease)
                self.end("lost")
            reap()

    def end(self, reason: str) -> None:
        """End all jobs and the process; whoever comes second waits for the first."""
        with self._lock:
            first = not self._ending.is_set()
            self._ending.set()
        if not first:
            time.sleep(EXIT_LIMIT_SECONDS * 2)
        for request in list(self._requests.values()):
            request.incoming.put(None)
        deadline = time.monotonic() + EXIT_LIMIT_SECONDS
        for job in list(self._jobs.values()):
            job.stop(reason)
        for job in list(self._jobs.values()):
            job.finished.wait(max(0.0, deadline - time.monotonic()))
        # Other threads may be blocked on the pipe for good.
        os._exit(0)

    def _begin(self, number: int, args: Dict[str, Any]) -> None:
        request = Request(number, args, self._writer)
        self._requests[number] = request
        threading.Thread(target=self._answer, args=(request,), daemon=True).start()

    def _answer(self, request: Request) -> None:
        try:
            handler = self._handlers.get(request.args.get("op", ""))
            if handler is None:
                raise AgentError("protocol", "unknown request %r" % request.args.get("op"))
            answer = dict(handler(request), type="result")
        except AgentError as error:
            answer = {"type": "error", "kind": error.kind, "message": error.message}
            answer["hint"] = error.hint
        except Exception as error:  # noqa: BLE001 - the controller has to hear of our own faults
            answer = {"type": "error", "kind": "internal", "message": repr(error), "hint": None}
            answer["traceback"] = traceback.format_exc()
        self._requests.pop(request.number, None)
        try:
            request.say(answer)
        except OSError:
            pass  # the main loop sees the end of the pipe as well

    def _store(self, request: Request) -> str:
        return private_store(request.args.get("store"), self._in_container)

    def _facts(self, request: Request) -> Dict[str, Any]:
        return facts_of.gather(request.args, self._store(request))

    def _has_tree(self, request: Request) -> Dict[str, Any]:
        trees = TreeStore(self._store(request))
        name = request.args["tree"]
        return {"present": trees.present(name), "path": trees.folder(name)}

    def _missing(self, request: Request) -> Dict[str, Any]:
        """The manifest comes as bytes: it can be large."""
        trees = TreeStore(self._store(request))
        return {"missing": trees.missing(self._entries(request))}

    @staticmethod
    def _entries(request: Request) -> List[Entry]:
        return [Entry.from_json(item) for item in request.args["entries"]]

    def _put_tree(self, request: Request) -> Dict[str, Any]:
        store = self._store(request)
        trees = TreeStore(store)
        name = request.args["tree"]
        lock = trees.lock(name)
        try:
            path = trees.receive(name, self._entries(request), request.args["sent"], request.read)
        finally:
            if lock is not None:
                os.close(lock)
        gone = trees.collect(request.args["keep"], request.args["keep_days"], name)
        fetch.collect_jobs(store)
        return {"path": path, "collected": gone, "disk": disk_of(store)}

    def _compare(self, request: Request) -> Dict[str, Any]:
        args = request.args
        return sync.compare(args["workdir"], args["folders"], self._entries(request), args["texts"])

    def _sync(self, request: Request) -> Dict[str, Any]:
        args = request.args
        return sync.apply(
            args["workdir"], self._entries(request), args["delete"], args["expected"], request.read
        )

    def _run(self, request: Request) -> Dict[str, Any]:
        job = Job(request.args, self._store(request))
        with self._lock:
            if self._ending.is_set():
                raise AgentError("interrupted", "the agent is ending")
            self._jobs[request.args["job"]] = job

        def started(folder: str) -> None:
            request.say({"type": "started", "folder": folder})

        outcome = job.run(started, request.data)
        request.say({"type": "output_end"})
        fetch.send_files(job.folder, list(fetch.RESULT_FILES), request.say, request.data)
        return {"outcome": outcome, "folder": job.folder}

    def _stop(self, request: Request) -> Dict[str, Any]:
        """End a running job and wait for it."""
        job = self._jobs.get(request.args["job"])
        if job is None:
            return {"known": False}
        job.stop("stopped")
        return {"known": True, "finished": job.finished.wait(EXIT_LIMIT_SECONDS)}

    def _job(self, request: Request) -> Dict[str, Any]:
        return fetch.job_status(self._store(request), request.args["job"])

    def _fetch(self, request: Request) -> Dict[str, Any]:
        """Send a job's spool and its files."""
        store = self._store(request)
        status = fetch.job_status(store, request.args["job"])
        folder = job_folder(store, request.args["job"])
        names = list(request.args.get("names") or ("output",) + fetch.RESULT_FILES)
        fetch.send_files(folder, names, request.say, request.data)
        return status


def main(stream: BinaryIO) -> None:
    """Serve the pipe on ``stream`` and standard output."""
    os.umask(0o022)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    # Frames have standard output to themselves, whatever else may print.
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    become_subreaper()
    agent = Agent(stream, output)
    signal.signal(
        signal.SIGTERM, lambda *_: threading.Thread(target=agent.end, args=("stopped",)).start()
    )
    agent.serve()
