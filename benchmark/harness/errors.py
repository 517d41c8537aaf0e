"""What stops a run before or beside a case, each with the exit code of the front door."""

from __future__ import annotations


class HarnessError(Exception):
    """Base of the expected errors; ``str()`` is the one line that the user sees."""

    code = 2


class TreeError(HarnessError):
    """Usage, a configuration or a runner file is wrong; nothing can be measured with it."""


class UnusableError(HarnessError):
    """This machine or Python lacks what measuring needs (torch, nvbench, the device)."""

    code = 3


class UnavailableError(HarnessError):
    """The library or backend that holds the operator is absent here; the case is UNAVAILABLE."""

    code = 3


class NotRunError(HarnessError):
    """The runner itself asked to skip the case (``state.skip``); the case is NOT_RUN."""

    code = 1


class ForeignFileError(HarnessError):
    """Where results belong lies a link, a FIFO or a device; it is left alone."""

    code = 1


class VerificationError(HarnessError):
    """The buffers that were timed hold something wrong; the case is FAILED."""

    code = 1


class DeadDeviceError(UnusableError):
    """After a case that went wrong the device is no longer fit for another one."""


class LibraryError(HarnessError):
    """An operator library is there and cannot serve; the case is an ERROR, not UNAVAILABLE."""

    code = 1


class BrokenLibraryError(LibraryError):
    """The library does not load: an undefined symbol, another torch, a missing dependency."""


class SecondLibraryError(LibraryError, ImportError):
    """It would be the second provider of a namespace in this process.

    An ``ImportError`` too: a runner that guards the import goes on with the provider that is there.
    """
