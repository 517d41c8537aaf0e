"""SIGTERM and SIGHUP unwind the stack, so that what was begun is ended; then they kill as usual.

So does Ctrl-C; pressed again, it does not break off what is being ended.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_NUMBERS = (signal.SIGTERM, signal.SIGHUP)


class _Terminated(BaseException):
    """A signal that ends this process has come."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextmanager
def unwinding() -> Iterator[None]:
    """Within the block a signal raises through it; this process dies of it afterwards.

    A signal that is ignored (nohup) stays ignored. Only in the main thread, elsewhere the block
    simply runs. SIGINT raises ``KeyboardInterrupt``, once. Blocks may be nested.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def terminate(number: int, frame: object) -> None:
        # Once is enough: what is being cleaned up must not be broken off.
        for each in former:
            signal.signal(each, signal.SIG_IGN)
        raise KeyboardInterrupt if number == signal.SIGINT else _Terminated(number)

    former = {n: signal.getsignal(n) for n in _NUMBERS}
    former = {n: handler for n, handler in former.items() if handler is not signal.SIG_IGN}
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        former[signal.SIGINT] = signal.default_int_handler
    for number in former:
        signal.signal(number, terminate)
    try:
        yield
    except KeyboardInterrupt:
        # This process is about to end; what is left of it shall not be broken off either.
        former.pop(signal.SIGINT, None)
        raise
    except _Terminated as error:
        for number, handler in former.items():
            signal.signal(number, handler)
        os.kill(os.getpid(), error.number)
        raise
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
