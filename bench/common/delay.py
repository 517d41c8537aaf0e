"""A wire with a delay: two TUN devices, each packet into one comes out of the other later.

For kernels without netem. Run as a program: ``delay.py NAME NAME SECONDS``. It makes the two
devices, writes ``ready`` and passes packets on until standard input ends; the devices go with it.
The devices may be moved into network namespaces meanwhile.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import struct
import sys
import time
from collections import deque
from dataclasses import dataclass, field

DEVICE = "/dev/net/tun"
_TUNSETIFF = 0x400454CA
_IFF_TUN, _IFF_NO_PI = 0x0001, 0x1000
_LARGEST_PACKET = 65535


@dataclass
class _End:
    handle: int
    waiting: deque[tuple[float, bytes]] = field(default_factory=deque)  # (due, packet) to send here


def open_device(name: str) -> int:
    """Create the TUN device ``name`` and return its non-blocking handle. Raises OSError."""
    handle = os.open(DEVICE, os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(handle, _TUNSETIFF, struct.pack("16sH", name.encode(), _IFF_TUN | _IFF_NO_PI))
    return handle


def pass_on(first: int, second: int, seconds: float, until: int) -> None:
    """Carry packets both ways, ``seconds`` late, until the handle ``until`` can be read."""
    ends = (_End(first), _End(second))
    other = {first: ends[1], second: ends[0]}
    while True:
        due = min((end.waiting[0][0] for end in ends if end.waiting), default=None)
        timeout = None if due is None else max(0.0, due - time.monotonic())
        readable, _, _ = select.select([first, second, until], [], [], timeout)
        if until in readable:
            return
        for handle in readable:
            _take_in(handle, other[handle].waiting, seconds)
        now = time.monotonic()
        for end in ends:
            while end.waiting and end.waiting[0][0] <= now:
                _deliver(end.handle, end.waiting.popleft()[1])


def _take_in(handle: int, queue: deque[tuple[float, bytes]], seconds: float) -> None:
    for _ in range(64):  # then it is the other direction's turn
        try:
            packet = os.read(handle, _LARGEST_PACKET)
        except OSError:  # nothing more, or the device is still down
            return
        queue.append((time.monotonic() + seconds, packet))


def _deliver(handle: int, packet: bytes) -> None:
    # A device that is still down loses packets, as any wire does.
    with contextlib.suppress(OSError):
        os.write(handle, packet)


def main() -> None:
    """Make the devices named on the command line and carry packets between them."""
    first, second = (open_device(name) for name in sys.argv[1:3])
    print("ready", flush=True)
    pass_on(first, second, float(sys.argv[3]), sys.stdin.fileno())


if __name__ == "__main__":
    main()
