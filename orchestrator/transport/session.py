"""The controller's side of an agent: start it, ask it things, notice when it is gone.

A session is one pipe to one agent. Requests run side by side; each is an object that takes and
gives messages and bytes. A link that says nothing for ``dead_link`` seconds is dead: the session
closes the pipe and everything that waits raises ``LinkLostError``.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from orchestrator.errors import (
    LinkLostError,
    MxfleetError,
    NoTreeError,
    ProtocolError,
    TreeError,
    UnusableError,
)
from orchestrator.transport import bootstrap
from orchestrator.transport.agent import wire
from orchestrator.transport.base import Connection, Pipe
from orchestrator.transport.watch import watch_link

GOODBYE_SECONDS = 0.5
_LONGEST_MAGIC = 64  # bytes
NOISE_LIMIT = 4 * 1024 * 1024  # bytes a login shell may print before the agent speaks

Explain = Callable[[int | None, bytes], MxfleetError | None]


class Request:
    """One question to the agent and everything that comes back for it.

    What is not taken holds up the session's other requests: that is how a slow listener slows
    the agent down. So whoever may stop listening before the result asks in a ``with`` statement,
    or calls ``drop``.
    """

    def __init__(self, session: AgentSession, number: int) -> None:
        self._session = session
        self._number = number
        self.incoming = wire.Inbox()

    def __enter__(self) -> Request:
        return self

    def __exit__(self, *_: object) -> None:
        self.drop()

    def drop(self) -> None:
        """Stop listening: what still comes is thrown away, for good. After the result: nothing.

        The agent goes on with what was asked; a job ends by its own ``stop`` request.
        """
        self._session.forget(self._number)
        self.incoming.close()  # the session's reader may be waiting for room in it

    def send(self, data: bytes) -> None:
        """Send bytes that belong to the request."""
        self._session.write(lambda writer: writer.data(self._number, data))

    def end(self) -> None:
        """Say that no more bytes come."""
        self._session.write(lambda writer: writer.end(self._number))

    def next(self, timeout: float | None = None) -> dict[str, Any] | bytes | None:
        """The next message or bytes; None when ``timeout`` seconds passed without any.

        Raises what the agent reports as an error, and ``LinkLostError``.
        """
        try:
            frame = self.incoming.get(timeout)
        except TimeoutError:
            return None
        if frame is None:
            raise self._session.failure()
        if frame.kind == "D":
            return frame.payload
        try:
            message = frame.json()
        except wire.WireError as error:
            raise ProtocolError(str(error), where=self._session.name) from None
        if message.get("type") in ("result", "error"):
            self._session.forget(self._number)
        if message.get("type") == "error":
            raise self._session.error_of(message)
        return message

    def __iter__(self) -> Iterator[dict[str, Any] | bytes]:
        """All messages and bytes, the result last."""
        while True:
            item = self.next()
            assert item is not None
            yield item
            if isinstance(item, dict) and item.get("type") == "result":
                return

    def result(self) -> dict[str, Any]:
        """Wait for the result, ignoring what comes before it."""
        for item in self:
            if isinstance(item, dict) and item.get("type") == "result":
                return item
        raise ProtocolError("the agent gave no result", where=self._session.name)


class AgentSession:
    """A running agent at the other end of a pipe."""

    def __init__(self, pipe: Pipe, name: str, dead_link: float, explain: Explain | None) -> None:
        self.name = name
        self._pipe = pipe
        self._dead_link = dead_link
        self._explain = explain
        self._writer = wire.FrameWriter(pipe.write)
        self._requests: dict[int, Request] = {}
        self._lock = threading.Lock()
        self._next = 1
        self._heard = time.monotonic()
        self._failure: MxfleetError | None = None
        self._asked = threading.Event()  # for the agent's code, or there is a failure
        self._magic: str | None = None
        self._ready = threading.Event()
        self._closed = False

    @classmethod
    def start(
        cls,
        connection: Connection,
        *,
        name: str,
        pythons: Sequence[str],
        in_container: bool,
        dead_link: float = 15.0,
        start_timeout: float = 30.0,
        explain: Explain | None = None,
    ) -> AgentSession:
        """Start an agent over ``connection``; return once it speaks.

        Raises ``UnusableError`` with what ``explain`` makes of the command's end, or
        ``LinkLostError`` after ``start_timeout`` seconds of silence.
        """
        session = cls(connection.open(bootstrap.command(pythons)), name, dead_link, explain)
        nonce = secrets.token_hex(16)
        hello = {"nonce": nonce, "lease": dead_link, "in_container": in_container}
        until = time.monotonic() + start_timeout
        threading.Thread(
            target=session._receive, args=(nonce,), name=f"mxfleet-read-{name}", daemon=True
        ).start()
        try:
            if session._asked.wait(start_timeout) and session._failure is None:
                session._pipe.write(bootstrap.bundle(session._magic))
                session.write(lambda writer: writer.json(0, hello))
        except LinkLostError:
            # The command may have ended already: its own words are worth more.
            session._ready.wait(2.0)
            session.close()
            raise session.failure() from None
        if not session._ready.wait(max(0.0, until - time.monotonic())):
            session._fail(
                UnusableError(
                    f"the agent did not start within {start_timeout:.0f} s",
                    where=name,
                    hint="is the machine overloaded, or does the login shell wait for input?",
                )
            )
        if session._failure is not None:
            session.close()
            raise session.failure()
        watch_link(session)
        return session

    def request(self, op: str, **args: Any) -> Request:
        """Send a request; the answers come through the returned object."""
        with self._lock:
            if self._failure is not None:
                raise self._failure
            number, self._next = self._next, self._next + 1
            request = self._requests[number] = Request(self, number)
        try:
            self.write(lambda writer: writer.json(number, {"op": op, **args}))
        except wire.WireError as error:
            self.forget(number)
            raise TreeError(
                f"{error}: {op} concerns too many files",
                where=self.name,
                hint="leave some out with `push: {exclude: [...]}` in the inventory",
            ) from None
        return request

    def call(self, op: str, **args: Any) -> dict[str, Any]:
        """Send a request and wait for its result."""
        with self.request(op, **args) as request:
            return request.result()

    def write(self, action: Callable[[wire.FrameWriter], None]) -> None:
        """Write frames; a broken pipe raises the session's failure."""
        try:
            action(self._writer)
        except (LinkLostError, OSError) as error:
            self._fail(LinkLostError(f"the link was lost: {error}", where=self.name))
            raise self.failure() from None

    def forget(self, number: int) -> None:
        """Take no more answers for a request: it is answered, or nobody listens any more."""
        with self._lock:
            self._requests.pop(number, None)

    @property
    def lost(self) -> bool:
        """Whether nothing can be asked any more."""
        return self._failure is not None

    def failure(self) -> MxfleetError:
        """What ended the session."""
        return self._failure or LinkLostError("the link was lost", where=self.name)

    def error_of(self, message: dict[str, Any]) -> MxfleetError:
        """The exception for an error that the agent reports."""
        kind, text, hint = message.get("kind"), str(message.get("message")), message.get("hint")
        if kind == "tree":
            return TreeError(text, where=self.name, hint=hint)
        if kind == "no_tree":
            return NoTreeError(text, where=self.name, hint=hint)
        if kind in ("protocol", "internal"):
            return ProtocolError(f"the agent failed: {text}", where=self.name, hint=hint)
        return UnusableError(text, where=self.name, hint=hint)

    def check_link(self) -> None:
        """Close a link on which nothing was heard for too long. For the watch thread."""
        if self._closed or self._failure is not None:
            return
        silent = time.monotonic() - self._heard
        if silent > self._dead_link:
            self._fail(
                LinkLostError(
                    f"the link was lost: nothing heard for {silent:.0f} s", where=self.name
                )
            )

    def close(self) -> None:
        """End the agent. Jobs that still run there are ended by it."""
        self._closed = True
        # A thread: a link that is stuck must not hold up who gives it up.
        goodbye = threading.Thread(target=self._say_goodbye, daemon=True)
        goodbye.start()
        goodbye.join(GOODBYE_SECONDS)
        self._pipe.close_write()
        self._fail(LinkLostError("the session was closed", where=self.name))

    def _say_goodbye(self) -> None:
        with suppress(LinkLostError, OSError):
            if self._failure is None:
                self._writer.json(0, {"op": "goodbye"})

    def _fail(self, error: MxfleetError) -> None:
        with self._lock:
            if self._failure is None:
                self._failure = error
            waiting = list(self._requests.values())
        for request in waiting:
            request.incoming.close()
        self._asked.set()
        self._ready.set()
        self._pipe.close()

    def _receive(self, nonce: str) -> None:
        try:
            rest = self._skip_noise(bootstrap.PYTHON_MARK, b"")
            if rest is not None:
                rest = self._take_python(rest)
            if rest is not None:
                rest = self._skip_noise(wire.start_mark(nonce), rest)
            if rest is None:
                self._fail(self._early_end())
                return
            self._dispatch(rest)
        except wire.WireError as error:
            self._fail(ProtocolError(str(error), where=self.name))
        except MxfleetError as error:
            self._fail(error)
        except OSError as error:
            self._fail(LinkLostError(f"the link was lost: {error}", where=self.name))

    def _take_python(self, seen: bytes) -> bytes | None:
        """Learn which Python starts the agent; return what came after that, None at the end."""
        while bootstrap.PYTHON_END not in seen[:_LONGEST_MAGIC]:
            if len(seen) > _LONGEST_MAGIC:
                raise ProtocolError("the agent's Python does not say what it is", where=self.name)
            data = self._pipe.read(wire.CHUNK)
            if not data:
                return None
            seen += data
        magic, _, rest = seen.partition(bootstrap.PYTHON_END)
        self._magic = magic.decode("ascii", "replace")
        self._asked.set()
        return rest

    def _skip_noise(self, mark: bytes, seen: bytes) -> bytes | None:
        """Drop everything up to a mark; return what came after it, None at the end.

        ``seen`` has come already.
        """
        dropped = 0
        while True:
            _, found, after = seen.partition(mark)
            if found:
                return after
            keep = len(mark) - 1
            dropped += max(0, len(seen) - keep)
            if dropped > NOISE_LIMIT:
                raise ProtocolError(
                    "the login shell prints without end before the agent starts",
                    where=self.name,
                    hint="quiet its start-up files for sessions without a terminal",
                )
            data = self._pipe.read(wire.CHUNK)
            if not data:
                return None
            seen = seen[-keep:] + data

    def _early_end(self) -> MxfleetError:
        status = self._pipe.wait(5.0)
        tail = self._pipe.stderr_tail()
        words = tail.decode("utf-8", "replace").split("\n")
        last = next((line.strip() for line in reversed(words) if line.strip()), "")
        if "mxfleet: no python found" in last:
            return UnusableError(
                "no Python 3.6 or later was found for the agent",
                where=self.name,
                hint="install python3 there or set `python` in the inventory",
            )
        explained = self._explain(status, tail) if self._explain is not None else None
        if explained is not None:
            return explained
        ended = "ended" if status is None else f"ended with status {status}"
        said = f": {last}" if last else ""
        return UnusableError(
            f"the agent could not start, its command {ended}{said}", where=self.name
        )

    def _dispatch(self, rest: bytes) -> None:
        buffer = rest

        def read(size: int) -> bytes:
            nonlocal buffer
            if not buffer:
                buffer = self._pipe.read(wire.CHUNK)
            part, buffer = buffer[:size], buffer[size:]
            return part

        while True:
            frame = wire.read_frame(read)
            if frame is None:
                self._fail(self._lost_at_end())
                return
            self._alive()
            if frame.request:
                with self._lock:
                    request = self._requests.get(frame.request)
                if request is not None:
                    request.incoming.put(frame, self._alive)
            elif frame.kind == "J":
                self._ready.set()

    def _alive(self) -> None:
        """Something came, or waits until a slow reader has taken the rest.

        Whatever comes is answered with a heartbeat now and then, which keeps the agent's lease on
        us; the agent sends one itself when it has nothing else to say.
        """
        self._heard = time.monotonic()
        self._writer.heartbeat_if_idle(wire.beat(self._dead_link))

    def _lost_at_end(self) -> MxfleetError:
        status = self._pipe.wait(2.0)
        tail = self._pipe.stderr_tail().decode("utf-8", "replace").strip().split("\n")[-1]
        how = "" if status is None else f", its command with status {status}"
        return LinkLostError(
            f"the agent ended before its time{how}{f': {tail}' if tail else ''}",
            where=self.name,
            hint="was the container or the machine stopped, or the agent killed?",
        )
