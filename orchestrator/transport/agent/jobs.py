"""Run one command of a job: its output, its limits, and a clean end.

The job's folder (see ``jobfolder``) stays on the target until it is collected, so that nothing is
lost with a connection.
"""

import functools
import os
import selectors
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Optional, Tuple

from .files import AgentError, check_relative, disk_of, explain_os_error, remove_quietly
from .jobfolder import JobFolder
from .proc import KEEP, end_tree, members, reap, release, spawn
from .shell import Told, refusal, shell_command
from .spool import Spool
from .sync import lock_checkout
from .wire import CHUNK

if TYPE_CHECKING:
    from .warm import Workers

STRAY_OUTPUT_SECONDS = 1.0
WAITING_CHUNKS = 64  # as much as a pipe can hold; who goes on writing is not waited for


class Job(object):
    """One attempt at one command; ``run`` blocks until it has really ended."""

    def __init__(self, spec: Dict[str, Any], store: str, workers: Callable[[], "Workers"]) -> None:
        self.spec = spec
        self.store = store
        self._workers = workers
        self._place = JobFolder(store, spec)
        self.folder = self._place.path
        self.stop_reason: Optional[str] = None
        self.finished = threading.Event()  # its end is on disk
        self.proven = True  # nothing of it runs any more, once it is finished
        self._tree_lock: Optional[int] = None
        self._checkout_lock: Optional[int] = None

    def stop(self, reason: str) -> None:
        """Ask for the end of the job; ``run`` does it and says why. Safe from any thread."""
        if self.stop_reason is None:
            self.stop_reason = reason

    def run(self, started: Callable[[str], None], data: Callable[[bytes], None]) -> Dict[str, Any]:
        """Run the job. ``started`` gets its folder, ``data`` parts of the spool as they come."""
        forget = True
        try:
            self._place.make()
            try:
                outcome, sender = self._run(started, data)
            except AgentError as error:
                if error.kind == "no_tree":
                    remove_quietly(self.folder)  # pushed again, the same job can be asked for
                    raise
                # Whoever asks later hears the same.
                why = error.message + ("; " + error.hint if error.hint else "")
                self._place.write_status({"ended": "refused", "message": why, "exit_code": None})
                raise
            forget = self.proven = not outcome["unkillable"]
        finally:
            self._place.close(forget)
            self.finished.set()
            for lock in (self._tree_lock, self._checkout_lock):
                if lock is not None:
                    os.close(lock)
        # Last, because it takes as long as the link does: a job is over without its listener.
        sender.join()
        return outcome

    def _run(
        self, started: Callable[[str], None], data: Callable[[bytes], None]
    ) -> "tuple[Dict[str, Any], threading.Thread]":
        began = time.monotonic()
        told = Told()
        try:
            cwd = self._prepare()
            output = os.path.join(self.folder, "output")
            spool = Spool(output)
            try:
                words, env = shell_command(self.spec, cwd, self.folder, told)
                parts = spool.follow()
                sender = threading.Thread(target=self._send, args=(parts, data), daemon=True)
                started(self.folder)
                sender.start()
                outcome = self._supervise(words, env, cwd, spool, told)
                damaged = self._place.mend()
                damaged = spool.keep_as(output) or damaged
            finally:
                spool.close()
            refused = refusal(told.words(), self.spec, cwd)
            if refused is not None and outcome["ended"] == "exited":
                sender.join()  # the output that explains it comes before the error
                raise refused
            outcome["seconds"] = time.monotonic() - began
            outcome["disk_free"] = disk_of(self.store)["free"]
            if damaged is not None:
                outcome["damaged"] = damaged
            if spool.failed is not None:
                full = explain_os_error(spool.failed, "keeping the output")
                outcome["output_lost"] = "%s; %s" % (full.message, full.hint)
            if self._tree_lock is not None:
                left = os.path.join(self.folder, "left")
                if os.path.lexists(left):
                    os.rename(left, left + ".of-the-job")
                from .trees import TreeStore

                trees = TreeStore(self.store)
                changed, outcome["left"] = trees.settle(self.spec["tree"], self._tree_lock, left)
                if changed is not None:
                    outcome["tree_changed"] = changed
            self._place.write_status(outcome)
            return outcome, sender
        except OSError as error:
            raise explain_os_error(error, "running the job")
        finally:
            told.close()

    def _prepare(self) -> str:
        """Lock what the job runs in and return its working folder."""
        tree = self.spec.get("tree")
        if tree is not None:
            from .trees import TreeStore, verify_tree

            trees = TreeStore(self.store)
            self._tree_lock = trees.lock(tree)
            folder = trees.folder(tree)
            if not os.path.isdir(folder):
                raise AgentError("no_tree", "the tree %s is not here" % tree, "push first")
            verify_tree(folder, tree)
            cwd = os.path.join(folder, check_relative(self.spec["subfolder"]))
            if not os.path.isdir(cwd):
                raise AgentError("tree", "the tree has no %s/" % self.spec["subfolder"])
            return cwd
        workdir = str(self.spec["workdir"])
        hint = "set `workdir` to the benchmark/ folder of a checkout, as the container sees it"
        if not os.path.isdir(workdir):
            raise AgentError("workdir", "the workdir %s does not exist here" % workdir, hint)
        self._checkout_lock = lock_checkout(workdir, exclusive=False)
        script = self.spec["script"]
        if not os.path.isfile(os.path.join(workdir, script)):
            raise AgentError("workdir", "the workdir %s has no %s" % (workdir, script), hint)
        overlay = self.spec.get("overlay")
        if not overlay:
            return workdir
        from .shadow import make_shadow

        outside = os.path.join(self.folder, "shadow")
        return make_shadow(outside, workdir, self.spec.get("copied") or (), overlay)

    def _supervise(
        self, words: List[str], env: Dict[str, str], cwd: str, spool: Spool, told: Told
    ) -> Dict[str, Any]:
        cookie = self.spec["job"]
        if self.spec.get("warm") and not self.spec.get("profiler"):
            outcome = self._supervise_warm(cwd, spool, told)
            if outcome is not None:
                return outcome
        child = spawn(
            words,
            cookie,
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=(told.child_end,),
        )
        return self._see_through(child, (cookie,), spool, lambda _: release(child, cookie))

    def _supervise_warm(self, cwd: str, spool: Spool, told: Told) -> Optional[Dict[str, Any]]:
        """Run the job in a warm worker; None when it was not started and a fresh Python has to."""
        workers = self._workers()
        why = workers.unfit(self.spec, self.store, cwd)
        while why is None:
            try:
                job = workers.start(self.spec, self.store, cwd, self.folder, told)
            except OSError as error:
                why = "it cannot be started: %s" % error.strerror
                break
            over = functools.partial(workers.release, job)
            outcome = self._see_through(job, job.cookies, spool, over)
            if job.lost is not None:
                text = "mxfleet: the warm Python of this job: %s\n" % job.lost
                spool.append(2, text.encode())
            if job.refused is None or outcome["ended"] != "exited":
                outcome["strays"] += job.left
                return outcome
            if job.worker.fit and job.worker.has_ended():
                told.forget()  # it served before and is of no use any more: another takes its place
            else:
                why = job.refused
        spool.append(2, b"mxfleet: not in a warm Python, but in a fresh one: %s\n" % why.encode())
        told.forget()
        return None

    def _see_through(
        self,
        child: Any,
        cookies: Tuple[str, ...],
        spool: Spool,
        over: Callable[[bool], None],
    ) -> Dict[str, Any]:
        """Take the output of ``child``, a ``Popen`` or ``WarmJob``, until its tree has ended.

        ``over`` is called then, and told whether the child ended by itself and left nothing.
        """
        in_order = False
        try:
            ended = self._drain(child, spool)
            left: List[Any] = []
            child.poll()
            reap()
            found = members(cookies, child.pid)
            strays = [p for p in found if p.pid not in KEEP and p.state != "Z"]
            if ended is not None or strays:
                left = end_tree(
                    cookies,
                    child,
                    self._grace(),
                    self._grace() + 5.0,
                    lambda: self._take_waiting(child, spool),
                )
            self._take_waiting(child, spool)
            code = child.poll()
            in_order = ended is None and not strays
        except BaseException:
            end_tree(cookies, child, self._grace(), self._grace() + 5.0)
            raise
        finally:
            over(in_order)
            for pipe in (child.stdout, child.stderr):
                assert pipe is not None
                pipe.close()
        return {
            "ended": ended or "exited",
            "exit_code": code if code is None or code >= 0 else None,
            "signal": -code if code is not None and code < 0 else None,
            "strays": len(strays) if ended is None else 0,
            "unkillable": [{"pid": p.pid, "state": p.state} for p in left],
        }

    def _grace(self) -> float:
        return float(self.spec.get("grace") or 3.0)

    def _drain(self, child: Any, spool: Spool) -> Optional[str]:
        """Spool output until the child has ended; return why it has to be ended, or None."""
        began = last = time.monotonic()
        limit, silence = self.spec.get("timeout"), self.spec.get("silence")
        with selectors.DefaultSelector() as selector:
            for number, pipe in ((1, child.stdout), (2, child.stderr)):
                assert pipe is not None
                os.set_blocking(pipe.fileno(), False)
                selector.register(pipe, selectors.EVENT_READ, number)
            exited: Optional[float] = None
            after = 0  # bytes that came since then
            while exited is None or self._ready(selector):
                if selector.get_map():
                    events = selector.select(0.2)
                else:
                    events = []
                    self._wait(child, 0.1)
                for key, _ in events:
                    data = os.read(key.fd, CHUNK)
                    last = time.monotonic()
                    if data:
                        spool.append(key.data, data)
                        after += len(data) if exited is not None else 0
                    else:
                        selector.unregister(key.fileobj)
                now = time.monotonic()
                if exited is None and child.poll() is not None:
                    exited = now
                if exited is not None:
                    if now - exited > STRAY_OUTPUT_SECONDS or after > WAITING_CHUNKS * CHUNK:
                        break  # something that the command left behind keeps the pipes busy
                elif self.stop_reason is not None:
                    return self.stop_reason
                elif limit and now - began > limit:
                    return "timeout"
                elif silence and now - last > silence:
                    return "silence"
        return None

    @staticmethod
    def _wait(child: Any, seconds: float) -> None:
        try:
            child.wait(seconds)
        except subprocess.TimeoutExpired:
            pass

    @staticmethod
    def _ready(selector: selectors.BaseSelector) -> bool:
        return bool(selector.get_map()) and bool(selector.select(0))

    @staticmethod
    def _take_waiting(child: Any, spool: Spool) -> None:
        """Take what waits in the pipes: last words must not hold up the process that says them."""
        for number, pipe in ((1, child.stdout), (2, child.stderr)):
            assert pipe is not None
            for _ in range(WAITING_CHUNKS):
                try:
                    data = os.read(pipe.fileno(), CHUNK)
                except BlockingIOError:
                    break
                if not data:
                    break
                spool.append(number, data)

    @staticmethod
    def _send(parts: Iterator[bytes], data: Callable[[bytes], None]) -> None:
        try:
            for part in parts:
                data(part)
        except OSError as error:
            # The link is gone; the spool keeps everything and the lease decides on the job.
            sys.stderr.write("mxfleet-agent: cannot send output: %s\n" % error)
