"""Which hosts there are and who is in which group: the names of the file, ranges expanded.

Hosts stand under ``hosts:``. In a file without that section they are the members of the groups,
so that a fleet of equal hosts is named once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import partial

from orchestrator.errors import ConfigError
from orchestrator.inventory.document import Document
from orchestrator.inventory.nodeset import ALL, MAX_NODES, NodeSetError, evaluate, expand, split
from orchestrator.inventory.schema import InventoryFile
from orchestrator.inventory.spelling import short, unknown
from orchestrator.inventory.values import HOST_NAME

Keys = Mapping[str, str | None]


def read_names(document: Document, file: InventoryFile) -> tuple[Keys, dict[str, tuple[str, ...]]]:
    """Hosts in the file's order with the key under ``hosts:`` each comes from, and the groups.

    The key is None for hosts that only groups name. Raises ConfigError with ``path:line`` for
    names that are none, stand twice or are unknown, and where there is no host at all.
    """
    _check_group_names(document, file)
    keys: dict[str, str | None] = {}
    keys.update(_host_keys(document, file))
    known: Collection[str] = keys
    if not keys:
        known = dict.fromkeys(_introduced(document, file))
        # @all and a leading `!` add no host of their own: they count once the hosts are known.
        sure = set().union(*_members(document, file, known, frozenset()).values())
        keys = {name: None for name in known if name in sure}
    if not keys:
        raise ConfigError(
            f'"hosts" is {"empty" if "hosts" in file.model_fields_set else "missing"}',
            where=document.where(("hosts",)),
            hint="name at least one host there, or in the `hosts` of a group",
        )
    found = _members(document, file, known, frozenset(keys))
    groups = {group: tuple(name for name in keys if name in some) for group, some in found.items()}
    return keys, groups


def _host_keys(document: Document, file: InventoryFile) -> dict[str, str]:
    """Every host name under ``hosts:`` with the key that it comes from."""
    found: dict[str, str] = {}
    for key in file.hosts:
        where = document.where(("hosts", key))
        try:
            operands = split(key)
            if any(operator != "," for operator, _ in operands):
                raise NodeSetError(f'"{key}" is no name or range')
            names = [name for _, operand in operands for name in expand(operand)]
        except NodeSetError as error:
            raise ConfigError(str(error), where=where) from None
        for name in names:
            _check_host_name(name, where)
            if name in found:
                raise ConfigError(
                    f'the host "{name}" stands twice',
                    where=where,
                    hint=f"it also comes from {document.where(('hosts', found[name]))}; "
                    "settings for some hosts of a range go into a group",
                )
            found[name] = key
        if len(found) > MAX_NODES:
            raise ConfigError(f"there are more than {MAX_NODES} hosts", where=where)
    return found


def _check_host_name(name: str, where: str) -> None:
    if name.startswith("@"):
        raise ConfigError(
            f'"{name}" is a group, not a host', where=where, hint="groups are set under `groups:`"
        )
    if not HOST_NAME.fullmatch(name) or len(name) > 253:
        raise ConfigError(
            f'"{short(name)}" cannot be a host\'s name',
            where=where,
            hint="use ASCII letters, digits, `_`, `.` and `-`; what to connect to goes into "
            "`address:`, the login into `user:`, the port into `port:`",
        )


def _check_group_names(document: Document, file: InventoryFile) -> None:
    for name in file.groups:
        if name in ALL or not HOST_NAME.fullmatch(name):
            raise ConfigError(
                f'"{name}" cannot be a group\'s name',
                where=document.where(("groups", name)),
                hint="@all always means every host"
                if name in ALL
                else "use ASCII letters, digits, `_`, `.` and `-`, without the @",
            )


def _introduced(document: Document, file: InventoryFile) -> Iterator[str]:
    """The host names that groups bring in, not those that they only take away or intersect."""
    count = 0
    for group, entry in file.groups.items():
        where = document.where(("groups", group, "hosts"))
        for text in entry.hosts:
            try:
                for operator, operand in split(text):
                    if operator not in ",^" or operand.startswith("@"):
                        continue
                    for name in expand(operand):
                        _check_host_name(name, where)
                        count += 1
                        yield name
            except NodeSetError as error:
                raise ConfigError(str(error), where=where) from None
            if count > MAX_NODES:
                raise ConfigError(f"the groups name more than {MAX_NODES} hosts", where=where)


def _members(
    document: Document, file: InventoryFile, known: Collection[str], everything: frozenset[str]
) -> dict[str, set[str]]:
    """The hosts of every group; ``known`` may be named, ``everything`` is what @all means."""
    done: dict[str, set[str]] = {}
    open_: list[str] = []

    def members(name: str) -> set[str]:
        if name in done:
            return done[name]
        where = document.where(("groups", name))
        if name in open_:
            ring = " -> ".join([*open_[open_.index(name) :], name])
            raise ConfigError(f"the groups contain each other: {ring}", where=where)
        if len(open_) > 50:
            raise ConfigError("the groups are nested too deeply", where=where)
        open_.append(name)
        result: set[str] = set()
        for text in file.groups[name].hosts:
            at = document.where(("groups", name, "hosts"))
            try:
                result |= evaluate(text, partial(operand, where=at), set(everything))
            except NodeSetError as error:
                raise ConfigError(str(error), where=at) from None
        open_.pop()
        done[name] = result
        return result

    def operand(text: str, where: str) -> set[str]:
        found: set[str] = set()
        is_group = text.startswith("@")
        for name in expand(text.removeprefix("@")):
            if is_group and name in ALL:
                found |= everything
            elif is_group and name in file.groups:
                found |= members(name)
            elif not is_group and name in known:
                found.add(name)
            else:
                raise _unknown(name, is_group, where)
        return found

    def _unknown(name: str, is_group: bool, where: str) -> ConfigError:
        groups = [f"@{group}" for group in file.groups]
        if is_group:
            message, hint = unknown("group", f"@{name}", groups, known)
        else:
            message, hint = unknown("host", name, known, groups)
        return ConfigError(message, where=where, hint=hint)

    return {name: members(name) for name in file.groups}
