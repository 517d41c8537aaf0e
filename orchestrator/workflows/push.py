"""``mxfleet push``: bring every target in step with the working folder."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from orchestrator.errors import ExitCode, MxfleetError, TargetError, UsageError, combine
from orchestrator.events import Note, Pushed, Sink, Summary, TargetFailed
from orchestrator.inventory.model import Target
from orchestrator.push.send import Sent, push_in_place, push_tree
from orchestrator.push.tree import Tree, subset
from orchestrator.suites import mcoplib
from orchestrator.transport.session import AgentSession
from orchestrator.workflows.activity import Activity
from orchestrator.workflows.context import Context
from orchestrator.workflows.fleet import Fleet, for_each_host


def push(
    context: Context,
    *,
    only: Sequence[str] = (),
    delete: bool = False,
    dry_run: bool = False,
) -> ExitCode:
    """Push the working folder's tree to the selected targets.

    ``only`` and ``delete`` concern established checkouts; an immutable tree is always whole.
    """
    began = time.monotonic()
    tree = context.tree()
    for pattern in only:
        if not subset(tree, mcoplib.SYNC_FOLDERS, [pattern]).entries:
            raise UsageError(
                f"--only {pattern!r} matches no file of config/ or runners/",
                where=str(context.suite.folder),
                hint="name an operator, or a glob such as 'config/rms*'",
            )
    if (only or delete) and any(not target.established for target in context.targets):
        context.sink(
            Note(
                "--only and --delete concern established checkouts; trees are pushed whole",
                level="warning",
            )
        )
    sent = Totals()
    with Activity(context.sink) as sink, Fleet() as fleet:
        failures = Failures(sink)

        def work(target: Target) -> None:
            with sink.doing("connecting", target.name):
                session = fleet.session(target)
            with sink.doing("pushing", target.name):
                result = push_target(
                    session, target, tree, only=only, delete=delete, dry_run=dry_run
                )
            sent.add(result)
            sink(pushed_event(target, tree, result, dry_run))

        for_each_host(sink, context.targets, work, failures)
    code = failures.code()
    text = f"tree {tree.name}" + (" (dry run)" if dry_run else "")
    if not (sent.files or sent.deleted or failures.errors):
        text = f"nothing to send, {text}"
    context.sink(
        Summary(
            command="push",
            exit_code=int(code),
            counts={
                "files to send" if dry_run else "files sent": sent.files,
                "bytes to send" if dry_run else "bytes sent": sent.bytes,
                "files to delete" if dry_run else "files deleted": sent.deleted,
            },
            targets=failures.statuses(context.targets),
            seconds=time.monotonic() - began,
            message=text,
        )
    )
    return code


class Totals:
    """Sums over targets, from any thread."""

    def __init__(self) -> None:
        self.files = self.bytes = self.deleted = 0
        self._lock = threading.Lock()

    def add(self, sent: Sent) -> None:
        """Count one target's push."""
        with self._lock:
            self.files += sent.files
            self.bytes += sent.bytes
            self.deleted += sent.deleted


class Failures:
    """Collects what went wrong with targets; callable as an error handler from any thread."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self.errors: dict[str, MxfleetError] = {}

    def __call__(self, target: Target, error: MxfleetError) -> None:
        self.take(target, error, told=False)

    def take(self, target: Target, error: MxfleetError, told: bool) -> None:
        """As a call; ``told``: it was said already what is wrong with many."""
        self.errors[target.name] = error
        if not told:
            self._sink(TargetFailed(target.name, status_of(error), _without_place(target, error)))

    def code(self) -> ExitCode:
        """The exit code that stands for all failures."""
        return combine(error.code for error in self.errors.values())

    def statuses(self, targets: Sequence[Target]) -> dict[str, str]:
        """Every target's status."""
        return {
            target.name: status_of(self.errors[target.name]) if target.name in self.errors else "OK"
            for target in targets
        }


def status_of(error: MxfleetError) -> str:
    """A failed target's status: UNREACHABLE or UNUSABLE."""
    return error.status if isinstance(error, TargetError) else "UNUSABLE"


def _without_place(target: Target, error: MxfleetError) -> str:
    # The line starts with the target already.
    if error.where in (target.name, f"{target.host.name}:{target.container}"):
        return str(type(error)(error.message, hint=error.hint))
    return str(error)


def push_target(
    session: AgentSession,
    target: Target,
    tree: Tree,
    *,
    only: Sequence[str] = (),
    delete: bool = False,
    dry_run: bool = False,
) -> Sent:
    """Push to one target the way its inventory entry asks for."""
    if target.workdir is None:
        return push_tree(session, target, tree, dry_run=dry_run)
    settings = target.suites.get(mcoplib.NAME)
    folders = settings.sync if settings is not None and settings.sync else mcoplib.SYNC_FOLDERS
    return push_in_place(
        session,
        target.workdir,
        tree,
        folders,
        only=only,
        delete=delete,
        dry_run=dry_run,
    )


def pushed_event(target: Target, tree: Tree, sent: Sent, dry_run: bool) -> Pushed:
    """The event for a finished push; single changes are told for checkouts and dry runs."""
    return Pushed(
        target=target.name,
        tree=None if target.established else tree.name,
        path=sent.path,
        files_sent=sent.files,
        bytes_sent=sent.bytes,
        deleted=sent.deleted,
        dry_run=dry_run,
        changes=sent.changes if dry_run or target.established else (),
    )
