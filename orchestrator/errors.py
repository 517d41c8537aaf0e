"""What can go wrong: every error of ours, with its exit code, its place and its way out.

An error's text is one sentence on what is wrong; ``where`` is a path with a line, a host or a
target; ``hint`` says what to do. The command line prints the three as one line and returns
``code``. Nothing here imports anything of ours.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of the ``mxfleet`` command; scripts and CI jobs rely on them."""

    OK = 0
    FAILED = 1  # FAILED or ERROR
    USAGE = 2  # usage, configuration, the tree or its files
    TARGET = 3  # target unreachable or unusable, or a named operator UNAVAILABLE
    TIMEOUT = 4
    REGRESSION = 5
    UNDECIDED = 6  # UNSURE or UNVERIFIED under --strict
    INTERNAL = 70  # our own fault
    INTERRUPTED = 130


def combine(codes: Iterable[int]) -> ExitCode:
    """Return the exit code that stands for several: 70, else 130, else the lowest non-zero one."""
    seen = {ExitCode(code) for code in codes} - {ExitCode.OK}
    for loudest in (ExitCode.INTERNAL, ExitCode.INTERRUPTED):
        if loudest in seen:
            return loudest
    return min(seen, default=ExitCode.OK)


class MxfleetError(Exception):
    """Base of every expected error; ``str()`` is the one line that the user sees."""

    code = ExitCode.INTERNAL

    def __init__(self, message: str, *, where: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        advice = f"; {self.hint}" if self.hint else ""
        return " ".join(f"{place}{self.message}{advice}".split())


class UsageError(MxfleetError):
    """The command line asks for something that does not exist or does not go together."""

    code = ExitCode.USAGE


class ConfigError(MxfleetError):
    """The inventory is wrong; ``where`` is ``path:line``."""

    code = ExitCode.USAGE


class TreeError(MxfleetError):
    """The benchmark tree is wrong: an operator, its config or its runner."""

    code = ExitCode.USAGE


class TargetError(MxfleetError):
    """A target cannot be used; ``status`` names how."""

    code = ExitCode.TARGET
    status = "UNUSABLE"


class UnreachableError(TargetError):
    """The host cannot be reached: name, port, host key, login, or the link was lost."""

    status = "UNREACHABLE"


class TransientError(UnreachableError):
    """Unreachable for now: it did not answer, hung up or was too busy. Worth trying again."""


class LinkLostError(TransientError):
    """The pipe to an agent broke or fell silent while it was in use."""


class PlaceLostError(LinkLostError):
    """The pipe broke because the place that it led to is gone: its container was stopped, say."""

    status = "UNUSABLE"


class UnusableError(TargetError):
    """The host answers but cannot do the work: container, env script, python, torch, disk."""


class DeadDeviceError(UnusableError):
    """After an operator that went wrong the GPU no longer answers: nothing more can run there."""


class NoTreeError(UnusableError):
    """The pushed tree is not there, or not as it was pushed: pushed again, the job can run."""


class ProtocolError(TargetError):
    """What came over the pipe is not what our agent says."""


class OwnFault(MxfleetError):
    """Something in mxfleet broke that should not; the message names the report."""

    code = ExitCode.INTERNAL


class RunTimeoutError(MxfleetError):
    """The time of the whole run is over."""

    code = ExitCode.TIMEOUT
    way_out = "raise `timeouts: {run: …}` or --run-timeout"


class InterruptedRun(MxfleetError):
    """The user asked to stop."""

    code = ExitCode.INTERRUPTED
