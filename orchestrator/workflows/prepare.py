"""Before the first job on a target: is what is to run there, and what exactly will it read?"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from orchestrator.errors import TreeError, UnusableError
from orchestrator.events import Note, Sink
from orchestrator.inventory.model import Target
from orchestrator.push.tree import Tree, entry_rows, subset
from orchestrator.suites import mcoplib, whitelist
from orchestrator.transport.session import AgentSession
from orchestrator.workflows.push import push_target, pushed_event


@dataclass(frozen=True)
class Checkout:
    """What an established checkout has of a run's operators, as it was before the first job.

    ``configs`` by operator; ``differing`` names by operator the files that are not as here.
    """

    configs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    differing: Mapping[str, Sequence[str]] = field(default_factory=dict)


def prepare(
    session: AgentSession, target: Target, tree: Tree, ops: Sequence[str], sink: Sink
) -> Checkout | None:
    """Push what is missing, and say so. Returns what an established checkout has, else None.

    A checkout whose files differ from here is used as it is, somebody may be at work there; its
    results say so. Operators that only the checkout has are run as well.
    """
    if target.workdir is None:
        there = session.call("has_tree", store=target.store, tree=tree.name)
        if not there["present"]:
            sink(Note(f"tree {tree.name[:12]} is not there yet, pushing it", target=target.name))
            sent = push_target(session, target, tree)
            sink(pushed_event(target, tree, sent, dry_run=False))
        return None
    where = f"{target.name}:{target.workdir}"
    here = {op for op in ops if len(subset(tree, mcoplib.SYNC_FOLDERS, [op]).entries) > 1}
    answer = _compare(session, target.workdir, tree, ops)
    if answer["new"] or here & _unlisted(answer["texts"], ops, where):
        sink(Note("operators are missing in the checkout, pushing them", target=target.name))
        sent = push_target(session, target, tree, only=sorted(here))
        sink(pushed_event(target, tree, sent, dry_run=False))
        answer = _compare(session, target.workdir, tree, ops)
    unknown = sorted(_unlisted(answer["texts"], ops, where))
    if unknown:
        raise UnusableError(
            f"the checkout does not list {', '.join(unknown)}, nor are they here",
            where=where,
            hint="write config and runner here, or name an operator that the checkout lists",
        )
    part = subset(tree, mcoplib.SYNC_FOLDERS, ops)
    changed = [part.entries[index].path for index in answer["changed"]]
    for path in changed:
        text = f"{path} there differs from here; `mxfleet push` brings it"
        sink(Note(text, target=target.name, level="warning"))
    return Checkout(
        configs={op: _config(answer["texts"], op, target) for op in ops},
        differing={op: [path for path in changed if path in mcoplib.files_of(op)] for op in ops},
    )


def _compare(session: AgentSession, workdir: str, tree: Tree, ops: Sequence[str]) -> dict[str, Any]:
    part = subset(tree, mcoplib.SYNC_FOLDERS, ops)
    return session.call(
        "compare",
        workdir=workdir,
        folders=list(mcoplib.SYNC_FOLDERS),
        entries=entry_rows(part.entries),
        texts=[mcoplib.SCRIPT, *(f"config/{op}.json" for op in ops)],
    )


def _unlisted(texts: Mapping[str, str | None], ops: Sequence[str], where: str) -> set[str]:
    source = texts.get(mcoplib.SCRIPT)
    # Without a front door there is nothing to list in: the job says that it is missing.
    return set() if source is None else set(ops) - set(whitelist.names(source, where))


def _config(texts: Mapping[str, str | None], op: str, target: Target) -> Mapping[str, Any]:
    name = f"config/{op}.json"
    where = f"{target.name}:{target.workdir}/{name}"
    try:
        value = json.loads(texts.get(name) or "")
    except ValueError as error:
        raise TreeError(f"broken JSON: {error}", where=where, hint="push a good one") from None
    if not isinstance(value, dict):
        raise TreeError("the config is not a JSON object", where=where, hint="push a good one")
    return value
