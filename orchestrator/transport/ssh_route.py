"""The way to a host: itself, or the jump hosts before it, each by its own SSH configuration."""

from __future__ import annotations

from orchestrator.errors import UnreachableError
from orchestrator.transport.endpoint import Endpoint
from orchestrator.transport.ssh_resolve import SshSettings, resolve

Hop = tuple[Endpoint, SshSettings]


def route(endpoint: Endpoint) -> tuple[Hop, ...]:
    """Return the hops to ``endpoint``, the one to dial first, ``endpoint`` itself last.

    Raises UnreachableError when a hop's configuration is wrong or the way leads in a circle.
    """
    hops: list[Hop] = []
    names: list[str] = []
    here: Endpoint | None = endpoint
    while here is not None:
        # All of it, because a host may be jumped through on different ways.
        if repr(here) in names:
            circle = " -> ".join(hop.name for hop, _ in hops)
            raise UnreachableError(
                f"the jump hosts lead in a circle ({circle} -> {here.name})",
                where=endpoint.name,
                hint="correct ProxyJump in the SSH configuration",
            )
        names.append(repr(here))
        try:
            settings = resolve(here)
        except UnreachableError as error:
            if here is endpoint:
                raise
            raise at_jump_host(error, here.name, endpoint.name) from error
        hops.append((here, settings))
        here = _jump_endpoint(here, settings) if settings.proxy_jump else None
    return tuple(reversed(hops))


def at_jump_host(error: UnreachableError, jump: str, target: str) -> UnreachableError:
    """Return ``error``, which happened at the jump host, as one of the target's."""
    place = "" if error.message.startswith("jump host") else f"jump host {jump}: "
    return UnreachableError(f"{place}{error.message}", where=target, hint=error.hint)


def _jump_endpoint(endpoint: Endpoint, settings: SshSettings) -> Endpoint:
    """Return the last jump host; the ones before it are its own jump hosts, as ssh -J has it."""
    *before, last = settings.proxy_jump
    last = last.removeprefix("ssh://")
    user, at, place = last.rpartition("@")
    host, colon, port = place.rpartition(":")
    if not colon or place.endswith("]") or (":" in host and not host.startswith("[")):
        host, port = place, ""
    return Endpoint(
        name=host.strip("[]"),
        port=int(port) if port else None,
        user=user if at else None,
        ssh_config=endpoint.ssh_config,
        host_keys=endpoint.host_keys,
        connect_timeout=endpoint.connect_timeout,
        options={"ProxyJump": ",".join(before)} if before else {},
    )
