"""Before the first job on a target: is what is to run there, and what exactly will it read?"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.errors import TreeError
from orchestrator.events import Note, Sink
from orchestrator.inventory.model import Target
from orchestrator.push.tree import Tree, entry_rows, subset
from orchestrator.suites import mcoplib, whitelist
from orchestrator.transport.session import AgentSession
from orchestrator.workflows.push import push_target, pushed_event

Configs = Mapping[str, Mapping[str, Any]]


def prepare(
    session: AgentSession, target: Target, tree: Tree, ops: Sequence[str], sink: Sink
) -> Configs:
    """Push what is missing, and say so. Returns the configs that an established checkout has.

    A checkout whose files differ from here is used as it is: somebody may be at work there.
    """
    if target.workdir is None:
        there = session.call("has_tree", store=target.store, tree=tree.name)
        if not there["present"]:
            sink(Note(f"tree {tree.name[:12]} is not there yet, pushing it", target=target.name))
            sent = push_target(session, target, tree)
            sink(pushed_event(target, tree, sent, dry_run=False))
        return {}
    answer = _compare(session, target.workdir, tree, ops)
    if answer["new"] or _unlisted(answer["texts"], ops, f"{target.name}:{target.workdir}"):
        sink(Note("operators are missing in the checkout, pushing them", target=target.name))
        sent = push_target(session, target, tree, only=ops)
        sink(pushed_event(target, tree, sent, dry_run=False))
        answer = _compare(session, target.workdir, tree, ops)
    part = subset(tree, mcoplib.SYNC_FOLDERS, ops)
    for index in answer["changed"]:
        text = f"{part.entries[index].path} there differs from here; `mxfleet push` brings it"
        sink(Note(text, target=target.name, level="warning"))
    return {op: _config(answer["texts"], op, target) for op in ops}


def _compare(session: AgentSession, workdir: str, tree: Tree, ops: Sequence[str]) -> dict[str, Any]:
    part = subset(tree, mcoplib.SYNC_FOLDERS, ops)
    return session.call(
        "compare",
        workdir=workdir,
        folders=list(mcoplib.SYNC_FOLDERS),
        entries=entry_rows(part.entries),
        texts=[mcoplib.SCRIPT, *(f"config/{op}.json" for op in ops)],
    )


def _unlisted(texts: Mapping[str, str | None], ops: Sequence[str], where: str) -> bool:
    source = texts.get(mcoplib.SCRIPT)
    if source is None:
        return False
    return not set(ops) <= set(whitelist.names(source, where))


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
