"""Claims: what an agent that came later says to the one that runs a job whose link is gone.

The agent that started a job keeps it for a while when nobody listens any more. Whoever attaches to
the job writes ``<store>/claims/<job>`` again and again: until when the job may go on (on the
monotonic clock, which all processes of a machine share), or why it has to end.
"""

import json
import os
import threading
import time
from contextlib import contextmanager
from typing import Any, Callable, Iterator, NamedTuple, Optional

from .files import AgentError, explain_os_error, make_folders, remove_quietly, write_whole


class Claim(NamedTuple):
    """Until when a job may go on, and why it has to end before (None: it has not)."""

    until: float
    stop: Optional[str]


NO_CLAIM = Claim(0.0, None)
CLAIM_LIMIT = 4096
RENEW_SECONDS = 1.0
SHORTEST_CLAIM = 5 * RENEW_SECONDS  # a machine may be slow
LONGEST_HOLD = 30 * 86400.0


def hold_of(value: Any) -> float:
    """The seconds that a controller asks to hold a job for, within bounds."""
    try:
        return min(max(0.0, float(value or 0.0)), LONGEST_HOLD)
    except (TypeError, ValueError):
        return 0.0


def _path(store: str, job: str) -> str:
    return os.path.join(store, "claims", job)


def read_claim(store: str, job: str) -> Claim:
    """What was claimed last; ``NO_CLAIM`` where nothing was or it cannot be read."""
    try:
        handle = os.open(_path(store, job), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(handle, "rb") as stream:
            said = json.loads(stream.read(CLAIM_LIMIT).decode("ascii"))
        stop = said["stop"]
        return Claim(float(said["until"]), None if stop is None else str(stop))
    except (OSError, ValueError, KeyError, TypeError):
        return NO_CLAIM


def write_claim(store: str, job: str, claim: Claim) -> None:
    """Claim a job; raises ``AgentError`` when it cannot be written down."""
    path = _path(store, job)
    text = json.dumps({"until": claim.until, "stop": claim.stop})
    try:
        make_folders(os.path.dirname(path))
        write_whole(path, text.encode("ascii"), 0o600)
    except OSError as error:
        raise explain_os_error(error, "claiming the job")


@contextmanager
def claimed(store: str, job: str, hold: float, wanted: Callable[[], bool]) -> Iterator[None]:
    """Claim a job until the end of the block and for ``hold`` seconds more, while it is wanted.

    From a thread: whoever listens may take long for what he is sent.
    """
    over = threading.Event()

    def renew() -> None:
        while not over.is_set():
            if wanted():
                _renew(store, job, time.monotonic() + max(hold, SHORTEST_CLAIM))
            over.wait(RENEW_SECONDS)

    thread = threading.Thread(target=renew, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _renew(store: str, job: str, until: float) -> None:
    """Let a job go on until then. One that was told to end stays so; a full disk is no reason."""
    if read_claim(store, job).stop is None:
        try:
            write_claim(store, job, Claim(until, None))
        except AgentError:
            pass  # the job then ends with the link, as the first one's would


def drop_claim(store: str, job: str) -> None:
    """The job is over."""
    remove_quietly(_path(store, job))
