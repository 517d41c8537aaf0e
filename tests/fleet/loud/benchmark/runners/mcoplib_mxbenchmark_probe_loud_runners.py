"""Say much, in ways that are hard to take; then measure.

What it says goes straight to the descriptors, in pieces that cut everything anywhere.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from itertools import cycle
from pathlib import Path
from typing import Any

import loud_words
from mcoplib_mxbenchmark_op_wrapper import OpBenchmarkBase

_SIZES = (65_521, 1, 7, 131_071, 3, 40_009)


def _say(stream: int, parts: Iterable[bytes]) -> None:
    sizes = cycle(_SIZES)
    for part in parts:
        view = memoryview(part)
        while view:
            view = view[os.write(stream, view[: next(sizes)]) :]


def _at_once(say: Any) -> None:
    threads = [threading.Thread(target=_say, args=(stream, say(stream))) for stream in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


class Runner(OpBenchmarkBase):
    """One case, after the act that the config names."""

    def run(self, records: Any) -> None:
        """Act and measure."""
        getattr(self, f"_{self.config['act']}")()
        records.measured(4096, self.config["samples"])

    def _flood(self) -> None:
        print("ready", flush=True)
        while not Path(self.config["go"]).exists():
            time.sleep(0.1)
        _at_once(lambda stream: loud_words.flood(stream, self.config["megabytes"]))
        sys.stdout = None  # type: ignore[assignment] # the front door's words are no flood

    def _text(self) -> None:
        _at_once(lambda stream: [loud_words.text(stream, self.config["megabytes"]).encode()])
        sys.stdout = None  # type: ignore[assignment]

    def _bars(self) -> None:
        _at_once(lambda stream: [loud_words.bars(stream)])
        sys.stdout = None  # type: ignore[assignment]

    def _stray(self) -> None:
        self._leave('trap "echo stray\\\'s last words" TERM; sleep {nap} & wait', 0.5)

    def _stray_flood(self) -> None:
        self._leave("sleep {nap} & exec yes \"$(head -c 60000 /dev/zero | tr '\\0' s)\"", 0.05)

    def _leave(self, script: str, seconds: float) -> None:
        """Start what goes on after the front door's end, and holds its streams."""
        words = script.format(nap=self.config["nap"])
        subprocess.Popen(["sh", "-c", words], start_new_session=True)
        time.sleep(seconds)

    def _closed(self) -> None:
        print("last words on output")
        print("last words on error", file=sys.stderr)
        sys.stdout.close()
        sys.stderr.close()
        for stream in (1, 2):
            os.close(stream)
        sys.stdout = sys.stderr = None  # type: ignore[assignment]
        time.sleep(1.5)
