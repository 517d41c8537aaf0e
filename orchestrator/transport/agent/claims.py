"""Claims: what an agent that came later says to the one that runs a job whose link is gone.

The agent that started a job keeps it for a while when nobody listens any more. Whoever attaches to
the job writes ``<store>/claims/<job>`` again and again: until when the job may go on (on the
monotonic clock, which all processes of a machine share), or why it has to end.
"""

import json
import os
from typing import NamedTuple, Optional

from .files import AgentError, explain_os_error, make_folders, remove_quietly, write_whole


class Claim(NamedTuple):
    """Until when a job may go on, and why it has to end before (None: it has not)."""

    until: float
    stop: Optional[str]


NO_CLAIM = Claim(0.0, None)
CLAIM_LIMIT = 4096


def _path(store: str, job: str) -> str:
    return os.path.join(store, "claims", job)


def read_claim(store: str, job: str) -> Claim:
    """What was claimed last; ``NO_CLAIM`` where nothing was or it cannot be read."""
    try:
        handle = os.open(_path(store, job), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(handle, "rb") as stream:
            said = json.loads(stream.read(CLAIM_LIMIT).decode("ascii"))
        return Claim(float(said["until"]), said["stop"])
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


def renew_claim(store: str, job: str, until: float) -> None:
    """Let a job go on until then. One that was told to end stays so; a full disk is no reason."""
    if read_claim(store, job).stop is None:
        try:
            write_claim(store, job, Claim(until, None))
        except AgentError:
            pass  # the job then ends with the link, as the first one's would


def drop_claim(store: str, job: str) -> None:
    """The job is over."""
    remove_quietly(_path(store, job))
