"""Where a connection goes and how: what a transport has to know about a host, and no more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal


@dataclass(frozen=True)
class Endpoint:
    """One host to reach. What is None is left to ``ssh -G`` (address, user, port, keys, jumps)."""

    name: str
    transport: Literal["local", "ssh", "openssh", "scripted"] = "ssh"
    address: str | None = None
    port: int | None = None
    user: str | None = None
    identity_file: Path | None = None
    ssh_config: Path | None = None  # as ssh -F
    host_keys: Literal["accept-new", "strict"] = "accept-new"
    connect_timeout: float = 15.0  # seconds for the whole connect: name, TCP, banner, keys, login
    options: Mapping[str, str] = field(default_factory=dict)  # as ssh -o KEY=VALUE
