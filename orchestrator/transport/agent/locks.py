"""Requests for device locks: queue, hold, and let go only of a job that is proven dead.

A lock is held by ``flock`` for as long as its request is open, and after that until nothing of its
job is left: the controller says so, or we find out ourselves, also when the link is gone and nobody
listens any more. Should this process be killed, the kernel frees the lock; its note stays, and
whoever comes next proves the job dead before using the device.
"""

import json
import os
import threading
import time
from typing import Any, Callable, Dict, List, Optional

from .claims import LONGEST_HOLD, hold_of
from .files import AgentError
from .jobfolder import JOB_NAME
from .lockfiles import (
    CONTAINER_NAME,
    DEFAULT_FOLDER,
    LockFolder,
    Note,
    Take,
    clear_note,
    read_note,
    write_note,
)
from .proc import process
from .proof import Left, Suspect, any_lives, first_process, here, prove

TELL_SECONDS = 10.0  # between two words on who is waited for
LOOK_SECONDS = 0.3
RETRY_SECONDS = 1.0
MARGIN_SECONDS = 3.0  # for a job's own agent to end it, before we step in
KILL_SECONDS = 8.0
SETTLE_SECONDS = 30.0

Say = Callable[[Dict[str, Any]], None]


class _Lock(object):
    """One request: its devices, its job, and the way to tell."""

    def __init__(
        self, args: Dict[str, Any], say: Say, ended: threading.Event, at_once: threading.Event
    ) -> None:
        self.job = str(args["job"])
        container = args.get("container")
        if not JOB_NAME.match(self.job) or container and not CONTAINER_NAME.match(container):
            raise AgentError("protocol", "not a job or container: %r %r" % (self.job, container))
        mounted = bool(args.get("mounted"))
        self._folder = LockFolder(args.get("folder"), make=not mounted)
        if mounted and not self._folder.shared_with_host():
            raise AgentError(
                "permission",
                "the lock folder %s is the container's own" % self._folder.path,
                "mount a folder of the host there, or leave `lock_folder` out",
            )
        self._docker = [str(word) for word in args.get("docker_command") or ()]
        self._hold = hold_of(args.get("hold"))
        self._wait_limit = args.get("wait_limit")
        self._say = say
        self._ended = ended
        self._at_once = at_once
        self._devices = sorted(set(args["devices"]))
        self._takes: Dict[str, Take] = {}
        self._adopted: List[str] = []
        self._dead: List[str] = []  # jobs that are proven dead, also of other devices
        self._seen: Dict[str, float] = {}  # jobs without an agent, and since when we know
        self._began = time.monotonic()
        self._told = -TELL_SECONDS
        self._told_of: Any = None
        self.note: Note = {
            "job": self.job,
            "run": args.get("run"),
            "who": args.get("who"),
            "container": container,
            "since": time.time(),
            "hold": self._hold,
            "keepers": [],
        }
        self.note.update(here(), agent=_me())

    def acquire(self) -> None:
        """Take all devices, in one order for everybody, and put our note into them."""
        try:
            for device in self._devices:
                self._acquire(device)
            container = self.note["container"]
            if container is not None:
                self.note["init"] = first_process(container, self._docker)
                if self.note["init"] is None:
                    raise AgentError("docker", "docker cannot tell whether %s runs" % container)
            self.note["since"] = time.time()
            self._write()
        except BaseException:
            for take in self._takes.values():
                take.close()
            raise

    def _write(self) -> None:
        written = []
        try:
            for take in self._takes.values():
                if take.handle is not None:
                    written.append(take.handle)
                    write_note(take.handle, self.note)
        except OSError:
            for handle in written:
                clear_note(handle)
            raise
        for device in self._adopted:
            self._keep(device)

    def _keep(self, device: str) -> None:
        """Tell the holder, which waits for our job's end, that the job has somebody again."""
        handle = self._folder.open(device)
        try:
            note = read_note(handle)
            if note is not None and note["job"] == self.job:
                note["keepers"] = [_me()]
                write_note(handle, note)
        finally:
            os.close(handle)

    def _acquire(self, device: str) -> None:
        while True:
            take = self._takes[device] = Take(self._folder, device)
            while not take.done.wait(LOOK_SECONDS):
                note = self._folder.peek(device)
                if note is not None and note["job"] == self.job:
                    self._adopted.append(device)  # held for it by an agent whose link was lost
                    return
                self._still_wanted(device, note)
                self._tell(device, note, False)
            if take.error is not None:
                raise take.error
            assert take.handle is not None
            note = read_note(take.handle)
            if note is None or note["job"] in (self.job, *self._dead):
                return
            kept = _has_keeper(note) or self._holds_another(device, note["job"])
            if not kept and self._is_dead(device, note):
                clear_note(take.handle)
                return
            # Perhaps somebody else can tell, who is in the queue behind us.
            take.close()
            self._still_wanted(device, note)
            self._tell(device, note, not kept)
            self._ended.wait(RETRY_SECONDS)

    def _holds_another(self, device: str, job: str) -> bool:
        """Whether a job that a note names has a device, and the agent that locked it lives.

        Everybody may write notes: one that nobody holds is no reason to end such a job.
        """
        notes = [self._folder.peek(other) for other in self._folder.devices() if other != device]
        return any(_lives_here(n, [n.get("agent")]) for n in notes if n and n["job"] == job)

    def _still_wanted(self, device: str, note: Optional[Note]) -> None:
        if self._ended.is_set():
            raise AgentError("interrupted", "the lock is no longer wanted")
        waited = time.monotonic() - self._began
        if self._wait_limit is not None and waited > float(self._wait_limit):
            raise AgentError(
                "busy",
                "%s was busy for %d s: %s" % (device, waited, _told_of(note)),
                "wait for its end, or choose other `gpus`",
            )

    def _tell(self, device: str, note: Optional[Note], proving: bool) -> None:
        now = time.monotonic()
        about = (device, (note or {}).get("job"), proving)
        if about == self._told_of and now - self._told < TELL_SECONDS:
            return
        self._told, self._told_of = now, about
        self._say(
            {
                "type": "waiting",
                "device": device,
                "holder": _public(note),
                "seconds": now - self._began,
                "clock": time.time(),
                "proving": proving,
            }
        )

    def _is_dead(self, device: str, note: Note) -> bool:
        """Prove the job of a dead holder dead, ending it if need be; False: nobody can tell."""
        job = note["job"]
        since = self._seen.setdefault(job, time.monotonic())

        def go_on() -> bool:
            self._tell(device, note, True)
            return not self._ended.is_set() and (
                self._wait_limit is None or time.monotonic() - self._began < float(self._wait_limit)
            )

        suspect = Suspect(note, self._docker)
        known = bool(note.get("unkillable"))  # its time is over
        hold = 0.0 if known else hold_of(note.get("hold")) + MARGIN_SECONDS
        if suspect.look() is None:
            return False
        left = prove(suspect, lambda: hold - (time.monotonic() - since), KILL_SECONDS, go_on)
        if left is None:
            return False
        if left:
            raise AgentError(
                "unkillable",
                "process %s of %s cannot be killed, so %s is left alone"
                % (
                    ", ".join("%d (state %s)" % (p.pid, p.state) for p in left),
                    _told_of(note),
                    device,
                ),
                "free the device (its driver may hang: see dmesg), or choose other `gpus`",
            )
        self._dead.append(job)
        return True

    def release(self, said: bytes) -> List[Left]:
        """Let go of what is proven dead; what is not keeps its note. Returns what is left."""
        try:
            told = json.loads(said.decode("utf-8")) if said else {}
        except ValueError:
            told = {}
        left: Optional[List[Left]] = []
        if not told.get("proven"):
            suspect = Suspect(self.note, self._docker)
            if told.get("unkillable"):
                left = suspect.host_view(told["unkillable"]) or suspect.look()
            elif told:
                # Whoever asked for the lock has given the job up: it is held for nobody.
                left = prove(suspect, lambda: MARGIN_SECONDS, KILL_SECONDS)
            else:
                left = prove(suspect, self._patience, KILL_SECONDS)
        for take in self._takes.values():
            if take.handle is not None:
                if left == []:
                    clear_note(take.handle)
                else:
                    self._leave(take.handle, left or [])
            take.close()
        return left or []

    def _leave(self, handle: int, left: List[Left]) -> None:
        note = dict(self.note, keepers=[], unkillable=[p.as_json() for p in left], hold=0.0)
        try:
            write_note(handle, note)
        except OSError:
            pass  # the one that is there says enough

    def _patience(self) -> float:
        if self._at_once.is_set():
            return MARGIN_SECONDS
        for device in self._takes:
            note = self._folder.peek(device)
            if note is not None and note["job"] == self.job and _has_keeper(note):
                return LONGEST_HOLD
        return self._hold + MARGIN_SECONDS


class Locks(object):
    """The locks that one agent holds. ``at_once`` is set when no job is held for anybody."""

    def __init__(self, at_once: threading.Event) -> None:
        self._at_once = at_once
        self._held = 0
        self._changed = threading.Condition()

    def lock(self, args: Dict[str, Any], say: Say, read: Callable[[], bytes]) -> Dict[str, Any]:
        """Serve a request from its first word to the proof; ``read`` gives the controller's last
        words, b"" at their end or with the link's."""
        ended = threading.Event()
        words: List[bytes] = []

        def listen() -> None:
            for data in iter(read, b""):
                words.append(data)
            ended.set()

        threading.Thread(target=listen, daemon=True).start()
        lock = _Lock(args, say, ended, self._at_once)
        lock.acquire()
        with self._changed:
            self._held += 1
        try:
            # A thread: a link that is stuck must not keep us from finding out about the job.
            threading.Thread(target=_say_held, args=(say, lock.note), daemon=True).start()
            ended.wait()
            left = lock.release(b"".join(words))
        finally:
            with self._changed:
                self._held -= 1
                self._changed.notify_all()
        return {"proven": not left, "left": [p.as_json() for p in left]}

    def settle(self) -> None:
        """Return when all jobs whose locks we hold are proven dead, or were given long enough."""
        hurried: Optional[float] = None
        with self._changed:
            while self._held:
                now = time.monotonic()
                if self._at_once.is_set():
                    hurried = now if hurried is None else hurried
                    if now - hurried > SETTLE_SECONDS:
                        return
                self._changed.wait(0.5)


def _say_held(say: Say, note: Note) -> None:
    try:
        say({"type": "held", "since": note["since"]})
    except OSError:
        pass  # the link is gone: the main loop sees it as well


def holders(args: Dict[str, Any]) -> Dict[str, Any]:
    """Who holds which device of this host, and what is left of dead holders."""
    locks: List[Dict[str, Any]] = []
    if not os.path.lexists(args.get("folder") or DEFAULT_FOLDER):
        return {"clock": time.time(), "locks": locks}
    folder = LockFolder(args.get("folder"), make=False)
    for device in folder.devices():
        try:
            note, held = folder.peek(device), folder.is_held(device)
        except AgentError as error:
            locks.append({"device": device, "held": False, "problem": error.message})
            continue
        if held or note is not None:
            locks.append({"device": device, "held": held, "holder": _public(note)})
    return {"clock": time.time(), "locks": locks}


def _public(note: Optional[Note]) -> Note:
    names = ("who", "run", "job", "container", "since", "unkillable")
    return {name: note[name] for name in names if note.get(name)} if note else {}


def _told_of(note: Optional[Note]) -> str:
    if note is None:
        return "somebody who left no note"
    return "job %s of %s (run %s)" % (note["job"], note.get("who"), note.get("run"))


def _has_keeper(note: Note) -> bool:
    """Whether somebody attached to the job lives, though another agent held its lock."""
    return _lives_here(note, note.get("keepers"))


def _lives_here(note: Note, identities: Any) -> bool:
    us = here()
    if note.get("boot") != us["boot"] or note.get("pids") != us["pids"]:
        return False
    return any_lives(identities)


def _me() -> Optional[List[int]]:
    me = process(os.getpid())
    return None if me is None else [me.pid, me.start]
