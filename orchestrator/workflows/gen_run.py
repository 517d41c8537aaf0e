"""``mxfleet gen op --run``: a generated benchmark goes on to the targets: push, verify, run.

What fails is traced back to the argument or the step of the reference that it concerns.
"""

from __future__ import annotations

import time
from pathlib import Path

from orchestrator.author.diagnose import explain
from orchestrator.errors import ExitCode, UsageError
from orchestrator.events import Event, JobStarted, Note, OutputLine, Row, Sink, Summary
from orchestrator.workflows.context import Context
from orchestrator.workflows.gen_op import COMMAND, Generated, Wish, closing, write
from orchestrator.workflows.push import push
from orchestrator.workflows.run import run
from orchestrator.workflows.verify import verify

_RUNNER = "_runners.py"


def refuse_root(root: Path | None, dry_run: bool) -> None:
    """Refuse what does not go together with running."""
    if root is not None:
        raise UsageError(
            "--run takes the tree beside the inventory, not --root", hint="leave one of them out"
        )
    if dry_run:
        raise UsageError("--run and --dry-run exclude each other", hint="name one of them")


def gen_and_run(context: Context, wish: Wish, *, force: bool = False) -> ExitCode:
    """Generate into the working folder, then push, verify and run what was generated."""
    began = time.monotonic()
    told = _Stages(context.sink)
    made, counts = write(context.suite.folder, wish, told, force=force, close=False)
    staged = Context(context.inventory, context.targets, told)
    code, message = ExitCode.USAGE, closing(made, counts, False)
    if not counts["todos"] and not counts["errors"]:
        code, message = _stages(staged, made, told)
    last = told.last
    context.sink(
        Summary(
            command=COMMAND,
            exit_code=int(code),
            counts={**counts, **(last.counts if last is not None else {})},
            targets=last.targets if last is not None else {},
            run=last.run if last is not None else None,
            folder=last.folder if last is not None else None,
            files=tuple(str(path) for path in made.files),
            seconds=time.monotonic() - began,
            message=message,
        )
    )
    return code


def _stages(context: Context, made: Generated, told: _Stages) -> tuple[ExitCode, str]:
    names = made.names
    code = push(context)
    if code:
        return code, "it was not pushed"
    told.rows.clear()
    code = verify(context, names)
    if code:
        for row in told.rows:
            for sentence in explain(row, made.drafts, told.printed(row)):
                context.sink(Note(sentence, row.target, level="warning"))
        told.show_rows()
        return code, "it did not verify; what it concerns is told above"
    told.rows.clear()  # what is measured has rows of its own
    code = run(context, names)
    told.show_rows()
    return code, f"verified and measured: {', '.join(names)}"


class _Stages:
    """A sink that keeps the stages' rows and summaries: one command has one end."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self.rows: list[Row] = []
        self.last: Summary | None = None
        self._lines: dict[tuple[str, str], list[str]] = {}

    def __call__(self, event: Event) -> None:
        if isinstance(event, Summary):
            self.last = event
        elif isinstance(event, Row):
            self.rows.append(event)
        else:
            # Of a traceback the lines that name the runner, of the latest attempt.
            if isinstance(event, JobStarted):
                self._lines.pop((event.target, event.op), None)
            elif isinstance(event, OutputLine) and _RUNNER in event.text:
                self._lines.setdefault((event.target, event.op), []).append(event.text)
            self._sink(event)

    def printed(self, row: Row) -> list[str]:
        """What the row's job printed of its runner."""
        return self._lines.get((row.target, row.op), [])

    def show_rows(self) -> None:
        """Pass on the rows that were kept."""
        for row in self.rows:
            self._sink(row)
        self.rows.clear()
