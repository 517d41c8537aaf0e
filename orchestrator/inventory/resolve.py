"""From the checked file to hosts and targets: settings merged, places of jobs made of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from orchestrator.errors import ConfigError
from orchestrator.inventory.document import Document, Place
from orchestrator.inventory.model import (
    NONE,
    Host,
    Inventory,
    PushSettings,
    SuiteSettings,
    Target,
    Timeouts,
)
from orchestrator.inventory.names import read_names
from orchestrator.inventory.schema import InventoryFile, Settings

_TREE_ENV_SCRIPT = "../env/env.sh"
_CHECKOUT_ENV_SCRIPT = "../env.sh"
_SSH_ONLY = (
    "address",
    "port",
    "user",
    "identity_file",
    "ssh_config",
    "host_keys",
    "connect_timeout",
    "options",
)

Layer = dict[str, Any]


def resolve(document: Document, file: InventoryFile) -> Inventory:
    """Resolve a checked file; ConfigError names the line of what does not go together."""
    _check_pairs(document, file)
    keys, groups = read_names(document, file)
    host_layers = {key: host.model_dump(exclude_unset=True) for key, host in file.hosts.items()}
    defaults = file.defaults.model_dump(exclude_unset=True)
    group_layers = {
        name: group.model_dump(exclude_unset=True, exclude={"hosts"})
        for name, group in file.groups.items()
    }
    memberships: dict[str, list[str]] = {name: [] for name in keys}
    for group, members in groups.items():
        for name in members:
            memberships[name].append(group)

    # The hosts of a range mostly share all their settings.
    merged_once: dict[tuple[str | None, ...], Layer] = {}
    hosts: dict[str, Host] = {}
    targets: list[Target] = []
    folder = document.path.absolute().parent
    for name, key in keys.items():
        signature = (key, *memberships[name])
        if signature not in merged_once:
            of_groups = [group_layers[group] for group in memberships[name]]
            own = [] if key is None else [host_layers[key]]
            merged_once[signature] = _merge([defaults, *of_groups, *own])
        settings = merged_once[signature]
        hosts[name] = _host(name, settings, folder)
        targets.extend(_targets(hosts[name], settings))
    push = PushSettings(exclude=file.push.exclude, symlinks=file.push.symlinks)
    return Inventory(document.path.absolute(), hosts, tuple(targets), groups, push)


def _check_pairs(document: Document, file: InventoryFile) -> None:
    """Refuse keys that exclude each other where they stand side by side."""
    places: list[tuple[Place, Settings]] = [(("defaults",), file.defaults)]
    places += [(("groups", name), group) for name, group in file.groups.items()]
    places += [(("hosts", name), host) for name, host in file.hosts.items()]
    for at, entry in places:
        said = entry.model_fields_set
        if {"container", "containers"} <= said:
            raise ConfigError(
                '"container" and "containers" stand side by side',
                where=document.where((*at, "containers")),
                hint="keep one of them",
            )
        idle = [key for key in _SSH_ONLY if key in said]
        if at[0] == "hosts" and "transport" in said and entry.transport == "local" and idle:
            raise ConfigError(
                f'"{idle[0]}" means nothing with `transport: local`',
                where=document.where((*at, idle[0])),
                hint="remove one of the two",
            )
        names = [container.name for container in entry.containers]
        for index, name in enumerate(names):
            if name in names[:index]:
                raise ConfigError(
                    f'the container "{name}" stands twice',
                    where=document.where((*at, "containers", index)),
                    hint="remove one of the two",
                )


def _merge(layers: list[Layer]) -> Layer:
    """Later layers win; mappings merge key by key, lists and single values replace."""
    result: Layer = {}
    for layer in layers:
        if "container" in layer or "containers" in layer:
            result.pop("container", None)
            result.pop("containers", None)
        for key, value in layer.items():
            old = result.get(key)
            if isinstance(value, Mapping) and isinstance(old, Mapping):
                value = _merge([dict(old), dict(value)])
            result[key] = value
    return result


def _host(name: str, settings: Layer, folder: Path) -> Host:
    known: Layer = {
        key: settings[key]
        for key in ("transport", "address", "port", "user", "host_keys", "connect_timeout")
        if key in settings
    }
    for key in ("identity_file", "ssh_config"):
        if key in settings:
            known[key] = folder / Path(settings[key]).expanduser()
    if "host_python" in settings:
        known["python"] = tuple(settings["host_python"])
    return Host(name=name, options=settings.get("options", {}), **known)


def _targets(host: Host, settings: Layer) -> list[Target]:
    containers = settings.get("containers") or ({"name": settings.get("container", NONE)},)
    targets = []
    for container in containers:
        own = _merge([settings, {key: container[key] for key in container if key != "name"}])
        name = host.name if len(containers) == 1 else f"{host.name}:{container['name']}"
        targets.append(_target(name, host, container["name"], own))
    if all(target.container is not None for target in targets):
        itself = _target(f"{host.name}:{NONE}", host, NONE, settings)
        targets.append(replace(itself, implied=True))
    return targets


def _target(name: str, host: Host, container: str, settings: Layer) -> Target:
    workdir = _none(settings.get("workdir"))
    env_script = settings.get("env_script", _CHECKOUT_ENV_SCRIPT if workdir else _TREE_ENV_SCRIPT)
    plain = {
        key: settings[key]
        for key in (
            "store",
            "lock_folder",
            "python",
            "env",
            "path",
            "ld_library_path",
            "docker_command",
            "docker_user",
            "gpus",
            "model",
            "gpu_specs",
            "library",
            "retries",
        )
        if key in settings
    }
    return Target(
        name=name,
        host=host,
        container=_none(container),
        workdir=workdir,
        env_script=_none(env_script),
        timeouts=Timeouts(**settings.get("timeouts", {})),
        suites={
            suite: SuiteSettings(**{**values, "workdir": _none(values.get("workdir"))})
            for suite, values in settings.get("suites", {}).items()
        },
        **plain,
    )


def _none(value: str | None) -> str | None:
    return None if value == NONE else value
