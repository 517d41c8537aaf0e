"""Bring a tree to a target: as an immutable tree in its store, or into an established checkout."""

from __future__ import annotations

import contextlib
import hashlib
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain

from orchestrator.errors import MxfleetError, TreeError
from orchestrator.inventory.model import Target
from orchestrator.push.tree import Tree, contents, entry_rows, excluded, subset
from orchestrator.suites import mcoplib, whitelist
from orchestrator.transport.agent.files import Entry
from orchestrator.transport.session import AgentSession, Request

KEEP_TREES = 10
KEEP_TREE_DAYS = 14.0
# Small files are gathered before they go out, so that a push is a stream and not a conversation.
_BATCH = 256 * 1024


@dataclass(frozen=True)
class Sent:
    """What a push did, or in a dry run would do."""

    path: str
    files: int = 0
    bytes: int = 0
    deleted: int = 0
    changes: tuple[str, ...] = field(default=())


def push_tree(
    session: AgentSession,
    target: Target,
    tree: Tree,
    *,
    dry_run: bool = False,
) -> Sent:
    """Make ``tree`` exist in the target's store; one round trip when it is there already."""
    there = session.call("has_tree", store=target.store, tree=tree.name)
    path = str(there["path"])
    if there["present"]:
        return Sent(path)
    rows = entry_rows(tree.entries)
    needed = session.call("missing", store=target.store, entries=rows)["missing"]
    size = sum(tree.entries[index].size for index in needed)
    changes = tuple(f"send {tree.entries[index].path}" for index in needed)
    if dry_run:
        return Sent(path, len(needed), size, changes=changes)
    with session.request(
        "put_tree",
        store=target.store,
        tree=tree.name,
        entries=rows,
        sent=needed,
        keep=KEEP_TREES,
        keep_days=KEEP_TREE_DAYS,
    ) as request:
        _stream(request, contents(tree, needed))
        request.result()
    return Sent(path, len(needed), size, changes=changes)


def push_in_place(
    session: AgentSession,
    workdir: str,
    tree: Tree,
    folders: Sequence[str],
    *,
    only: Sequence[str] = (),
    delete: bool = False,
    dry_run: bool = False,
) -> Sent:
    """Bring ``folders`` of an established checkout in step with ``tree``.

    Only what differs is sent. Operators that are new there are added to the whitelist of its
    front door; what only the checkout has stays, unless ``delete``.
    """
    part = subset(tree, folders, only)
    answer = session.call(
        "compare",
        workdir=workdir,
        folders=list(folders),
        entries=entry_rows(part.entries),
        texts=[mcoplib.SCRIPT],
    )
    chosen = list(answer["changed"])
    removed = []
    if delete and not only:
        # Operators go, not what else lies there: a package's __init__.py, an editor's file.
        removed = sorted(
            path
            for path in answer["only_there"]
            if mcoplib.is_operator_file(path)
            and not excluded(f"{mcoplib.SUBFOLDER}/{path}", tree.exclude)
        )
    new = set(answer["new"])
    changes = [f"{'add' if i in new else 'update'} {part.entries[i].path}" for i in chosen]
    changes += [f"delete {path}" for path in removed]
    entries = [part.entries[index] for index in chosen]
    front_door = b""
    expected: dict[str, str] = {}
    text = answer["texts"].get(mcoplib.SCRIPT)
    if text is not None:
        grown, names = _whitelisted(text, tree, part, f"{session.name}:{workdir}/{mcoplib.SCRIPT}")
        if names:
            changes.append(f"list {', '.join(names)} in {mcoplib.SCRIPT}")
            expected[mcoplib.SCRIPT] = hashlib.sha256(text.encode("utf-8")).hexdigest()
            front_door = grown.encode("utf-8")
            digest = hashlib.sha256(front_door).hexdigest()
            entries.append(Entry(mcoplib.SCRIPT, 0o644, len(front_door), digest, None))
    size = sum(entry.size for entry in entries)
    if dry_run or not (entries or removed):
        return Sent(workdir, len(entries), size, len(removed), tuple(changes))
    with session.request(
        "sync",
        workdir=workdir,
        entries=entry_rows(entries),
        delete=removed,
        expected=expected,
    ) as request:
        _stream(request, chain(contents(part, chosen), [front_door]))
        request.result()
    return Sent(workdir, len(entries), size, len(removed), tuple(changes))


def _whitelisted(text: str, tree: Tree, part: Tree, where: str) -> tuple[str, list[str]]:
    """The checkout's front door with the pushed operators listed, and which of them were not."""
    script = f"benchmark/{mcoplib.SCRIPT}"
    source = next(
        (s for e, s in zip(tree.entries, tree.sources, strict=True) if e.path == script), None
    )
    if source is None:
        return text, []
    suite = mcoplib.McoplibSuite(source.parent)
    pushed = {entry.path for entry in part.entries}
    there = set(whitelist.names(text, where))
    names = [
        op
        for op in suite.operators()
        if op not in there
        and suite.config_path(op).relative_to(suite.folder).as_posix() in pushed
        and suite.runner_path(op).relative_to(suite.folder).as_posix() in pushed
    ]
    return whitelist.add(text, names, where), names


def _stream(request: Request, pieces: Iterable[bytes]) -> None:
    packer = zlib.compressobj(3)
    waiting = bytearray()
    try:
        for piece in pieces:
            waiting += packer.compress(piece)
            if len(waiting) >= _BATCH:
                request.send(bytes(waiting))
                waiting.clear()
        waiting += packer.flush()
        request.send(bytes(waiting))
    except TreeError:
        # The agent takes the unfinished half away once it hears that no more comes.
        request.end()
        with contextlib.suppress(MxfleetError):
            request.result()
        raise
    request.end()
