"""What pushes sent, or in a dry run would send; then what is the same on many targets once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

from orchestrator.events import Pushed
from orchestrator.show.hostset import host_set
from orchestrator.show.numbers import counted, size

_MOST_CHANGES = 20  # that are told one by one, more are counted by folder
_VERBS = {"send", "add", "update", "delete"}


def pushed_texts(event: Pushed) -> list[str]:
    """The lines for one target: its changes, then what they come to."""
    verb = "would send" if event.dry_run else "sent"
    text = f"{verb} {counted(event.files_sent, 'files')} ({size(event.bytes_sent)})"
    if not event.files_sent and not event.deleted:
        text = "nothing to send"
    elif event.deleted:
        text += f", {'would delete' if event.dry_run else 'deleted'} {event.deleted}"
    return [*_changes(event.changes), f"{text}: {event.path}"]


def alike(events: Sequence[Pushed]) -> list[tuple[str, list[str]]]:
    """Sets of targets of which the same is to be told, with these lines."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for event in events:
        groups.setdefault(tuple(pushed_texts(event)), []).append(event.target)
    return [(host_set(targets), list(texts)) for texts, targets in groups.items()]


def _changes(changes: Sequence[str]) -> list[str]:
    """Changes one by one, or of very many how many there are in which folder."""
    if len(changes) <= _MOST_CHANGES:
        return list(changes)
    others: list[str] = []
    counts: dict[tuple[str, str], int] = {}
    for change in changes:
        verb, _, path = change.partition(" ")
        if verb in _VERBS:
            key = verb, str(PurePosixPath(path).parent)
            counts[key] = counts.get(key, 0) + 1
        else:
            others.append(change)
    told = [
        f"{verb} {counted(count, 'files')} in {folder}/" for (verb, folder), count in counts.items()
    ]
    return [*told, *others]
