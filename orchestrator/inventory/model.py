"""Hosts and targets as everything else sees them: resolved, with no default left to look up.

A host says how to reach a machine; a target is a place on it where jobs run: the host itself or a
container, with its folders, env script, python and GPUs. The YAML side is in ``schema`` and
``load``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

TransportName = Literal["local", "ssh", "openssh", "scripted"]
HostKeyPolicy = Literal["accept-new", "strict"]

NONE = "none"  # how the file and selections write "no container", "no env script", "no limit"


@dataclass(frozen=True)
class Host:
    """How to reach a machine. What is None is left to ``ssh -G`` (user, port, keys, jump hosts)."""

    name: str
    transport: TransportName = "ssh"
    address: str | None = None
    port: int | None = None
    user: str | None = None
    identity_file: Path | None = None
    ssh_config: Path | None = None  # as ssh -F
    host_keys: HostKeyPolicy = "accept-new"
    connect_timeout: float = 15.0  # seconds
    python: tuple[str, ...] = ("python3", "python")  # candidates to run the agent on the host
    options: Mapping[str, str] = field(default_factory=dict)  # as ssh -o KEY=VALUE


@dataclass(frozen=True)
class SuiteSettings:
    """What a target sets for one suite (``mcoplib``, ``halops``)."""

    workdir: str | None = None
    sync: tuple[str, ...] = ()
    results: tuple[str, ...] = ()  # globs, relative to the suite's workdir


@dataclass(frozen=True)
class Timeouts:
    """Seconds; None never expires."""

    silence: float | None = None
    job: float | None = 3600.0
    run: float | None = None
    dead_link: float = 15.0
    reattach: float = 3.0
    detached: float = 43200.0


@dataclass(frozen=True)
class Target:
    """A place on a host where jobs run; ``name`` is ``host`` or ``host:container``."""

    name: str
    host: Host
    container: str | None = None
    workdir: str | None = None  # benchmark/ of an established checkout, absolute, in the container
    store: str | None = None  # where trees and jobs lie; None: the agent's default
    lock_folder: str | None = None  # locks on the host's devices; None: the agent's default
    env_script: str | None = None  # relative to the workdir or the tree's benchmark/; None: none
    python: str = "python3"
    env: Mapping[str, str] = field(default_factory=dict)
    path: tuple[str, ...] = ()  # appended to PATH after the env script
    ld_library_path: tuple[str, ...] = ()
    docker_command: tuple[str, ...] = ("docker",)
    docker_user: str | None = None  # docker exec --user
    gpus: tuple[str, ...] = ()  # UUIDs, PCI bus ids or indices; empty: all
    model: str | None = None  # device model the target is expected to have
    # Peaks of GPU models: {"C600": {"bandwidth": 2e12, "flops": {"bfloat16": 3e14}, "source": …}}
    gpu_specs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    library: tuple[str, ...] = ()  # operator libraries that serve: NAME, path, NAMESPACE=either
    timeouts: Timeouts = field(default_factory=Timeouts)
    retries: int = 2  # after a lost link
    suites: Mapping[str, SuiteSettings] = field(default_factory=dict)
    implied: bool = False  # the host itself beside its containers: in no selection but host:none

    @property
    def established(self) -> bool:
        """Whether jobs run in an established checkout instead of a pushed tree."""
        return self.workdir is not None


@dataclass(frozen=True)
class PushSettings:
    """What of the working folder is pushed: further globs to leave out, and what links become."""

    exclude: tuple[str, ...] = ()
    symlinks: Literal["keep", "follow", "refuse"] = "keep"


@dataclass(frozen=True)
class Inventory:
    """All targets of a working folder, in the order of the file, and the groups of host names.

    ``targets`` has every host's own place as well, ``implied`` where the file only lists
    containers; ``select`` tells which of them are meant.
    """

    path: Path
    hosts: Mapping[str, Host]
    targets: tuple[Target, ...]
    groups: Mapping[str, tuple[str, ...]]
    push: PushSettings = PushSettings()

    @property
    def folder(self) -> Path:
        """The working folder: where the inventory, ``benchmark/``, ``env/`` and ``runs/`` lie."""
        return self.path.parent
