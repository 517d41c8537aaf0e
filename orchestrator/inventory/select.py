"""Choose targets: ``--hosts`` takes names, ranges, groups, containers and set operators."""

from __future__ import annotations

from orchestrator.errors import UsageError
from orchestrator.inventory.model import NONE, Inventory, Target
from orchestrator.inventory.nodeset import ALL, NodeSetError, evaluate, expand
from orchestrator.inventory.spelling import short, unknown


def select(inventory: Inventory, pattern: str | None = None) -> tuple[Target, ...]:
    """The targets that a pattern means, in the inventory's order; None means all of them.

    ``c500-[01-04],@h200`` names hosts, ``c500-01:sglang`` or ``@c500:sglang`` containers on them,
    ``c500-01:none`` the host itself; ``,`` ``&`` ``!`` ``^`` work from left to right. Raises
    UsageError for unknown names and for a selection that is empty.
    """
    usual = tuple(target for target in inventory.targets if not target.implied)
    if pattern is None:
        return usual
    if not pattern.strip():
        raise UsageError("the selection is empty: it names no host", hint=_HINT)
    chooser = _Chooser(inventory)
    try:
        chosen = evaluate(pattern, chooser.operand, {target.name for target in usual})
    except NodeSetError as error:
        raise UsageError(str(error), hint=_HINT) from None
    if not chosen:
        raise UsageError(
            f'"{short(pattern)}" selects no target', hint="`mxfleet hosts` lists all of them"
        )
    return tuple(target for target in inventory.targets if target.name in chosen)


_HINT = "write for example c500-[01-04],@h200 or c500-01:sglang"


class _Chooser:
    """Gives the names of the targets that a single operand means."""

    def __init__(self, inventory: Inventory) -> None:
        self.groups = inventory.groups
        self.places: dict[str, dict[str, str]] = {}  # host -> container -> target
        self.implied: dict[str, str] = {}  # host -> target
        for target in inventory.targets:
            containers = self.places.setdefault(target.host.name, {})
            if target.implied:
                self.implied[target.host.name] = target.name
            else:
                containers[target.container or NONE] = target.name

    def operand(self, text: str) -> set[str]:
        head, colon, tail = text.partition(":")
        hosts = self._hosts(head)
        if not colon:
            return {name for host in hosts for name in self.places[host].values()}
        if not tail:
            raise NodeSetError("a container is missing after the colon")
        found: set[str] = set()
        for container in expand(tail):
            if container == NONE:  # a place that every host has
                found |= {self.places[host].get(NONE) or self.implied[host] for host in hosts}
                continue
            having = [host for host in hosts if container in self.places[host]]
            # A group may hold hosts without the container; a host that is named may not.
            if not having or (len(having) < len(hosts) and not head.startswith("@")):
                lacking = head if not having else next(h for h in hosts if h not in having)
                known = {NONE, *(name for host in hosts for name in self.places[host])}
                message, hint = unknown("container", container, known - {container})
                raise UsageError(message, where=short(lacking), hint=hint)
            found |= {self.places[host][container] for host in having}
        return found

    def _hosts(self, text: str) -> list[str]:
        if not text:
            raise NodeSetError("a host or @group is missing before the colon")
        if not text.startswith("@"):
            names = expand(text)
            for name in names:
                if name not in self.places:
                    groups = [f"@{group}" for group in self.groups]
                    message, hint = unknown("host", name, self.places, groups)
                    if name in self.groups:
                        message, hint = f'"{name}" is a group', f"write it as @{name}"
                    raise UsageError(message, hint=hint)
            return names
        names = []
        for group in expand(text[1:]):
            if group in ALL:
                names += list(self.places)
            elif group in self.groups:
                names += self.groups[group]
            else:
                groups = [f"@{name}" for name in self.groups]
                message, hint = unknown("group", f"@{group}", groups, self.places)
                raise UsageError(message, hint=hint)
        return list(dict.fromkeys(names))
