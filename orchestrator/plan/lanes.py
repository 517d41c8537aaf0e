"""Lanes: on which device of a target jobs run, one at a time, and what has to be locked for it.

Locks go by the device's place in the machine (its PCI bus id, else its UUID), never by an index,
which means another device in every container.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from orchestrator.errors import UnusableError
from orchestrator.inventory.model import Target
from orchestrator.transport.agent.gpus import normal_pci

CPU = "cpu"

# The variable by which a vendor's runtime shows a process some of the devices only.
_VISIBLE = {"nvidia": "CUDA_VISIBLE_DEVICES", "metax": "MACA_VISIBLE_DEVICES"}  # inferred: metax
_DEVICE_ZERO = ("--device", "0")  # the only one that the process sees


@dataclass(frozen=True)
class Lane:
    """One place of a target where one job runs at a time.

    ``locks`` are the ids of the devices that its jobs need for themselves; ``env`` goes over the
    target's own variables, and ``device`` are the words for our own harness that choose the device.
    """

    name: str
    locks: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    device: tuple[str, ...] = ()


def lanes_of(target: Target, gpus: Sequence[Mapping[str, Any]]) -> tuple[Lane, ...]:
    """The lanes of ``target``, whose agent sees ``gpus`` (the answer to its request ``gpus``).

    Without GPUs there is one lane on the CPU. An established checkout gets one lane that holds all
    the target's GPUs: its own config chooses the device. Raises ``UnusableError`` for a GPU that
    the inventory names and that is not there.
    """
    chosen = _chosen(target, gpus)
    if not chosen:
        return (Lane(CPU, (CPU,)),)
    if target.established:
        return (Lane("gpus", tuple(sorted({_lock(gpu) for gpu in chosen}))),)
    return tuple(_lane(gpu) for gpu in chosen)


def _lane(gpu: Mapping[str, Any]) -> Lane:
    # A MetaX runtime takes indices, as far as is known.  # inferred
    visible = gpu["uuid"] if gpu["vendor"] == "nvidia" and gpu["uuid"] else str(gpu["index"])
    env = {_VISIBLE[gpu["vendor"]]: visible}
    if visible == str(gpu["index"]) and gpu["vendor"] == "nvidia":
        env["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # as nvidia-smi counts; the default is by speed
    return Lane(f"gpu{gpu['index']}", (_lock(gpu),), env, _DEVICE_ZERO)


def _lock(gpu: Mapping[str, Any]) -> str:
    return str(gpu["pci"] or gpu["uuid"] or f"{gpu['vendor']}-{gpu['index']}")


def _chosen(target: Target, gpus: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The GPUs that the inventory lets jobs use, in the order in which the target counts them."""
    asked = list(target.gpus)
    if not asked:
        for vendor, variable in _VISIBLE.items():
            if variable in target.env:
                # Whoever sets it for the target's jobs has chosen as well.
                words = [word.strip() for word in target.env[variable].split(",")]
                shown = [word for word in words if word and word != "-1"]
                theirs = [gpu for gpu in gpus if gpu["vendor"] == vendor]
                chosen = [_find(target, gpus=theirs, name=word) for word in shown]
                return [gpu for gpu in theirs if gpu in chosen]
        return list(gpus)
    chosen = [_find(target, gpus, name) for name in asked]
    return [gpu for gpu in gpus if gpu in chosen]


def _find(target: Target, gpus: Sequence[Mapping[str, Any]], name: str) -> Mapping[str, Any]:
    pci = normal_pci(name)
    for gpu in gpus:
        if name == str(gpu["index"]) or (pci is not None and pci == gpu["pci"]):
            return gpu
        # The runtimes take the beginning of a UUID as well.
        if gpu["uuid"] and len(name) > 4 and gpu["uuid"].lower().startswith(name.lower()):
            return gpu
    there = ", ".join(f"{gpu['index']} ({gpu['pci'] or gpu['uuid']})" for gpu in gpus) or "none"
    raise UnusableError(
        f"there is no GPU {name}", where=target.name, hint=f"correct `gpus`; there are: {there}"
    )
