"""The one way to get a connection: choose the transport that an endpoint names.

Transports are imported when they are needed, so that ``local`` costs no SSH library.
"""

from __future__ import annotations

from orchestrator.errors import ConfigError
from orchestrator.transport.base import Connection
from orchestrator.transport.endpoint import Endpoint


def connect(endpoint: Endpoint) -> Connection:
    """Return an authenticated connection to ``endpoint``, within its ``connect_timeout``.

    Raises UnreachableError when the host cannot be reached or does not let us in, ConfigError when
    the inventory or the SSH configuration asks for what the transport cannot do.
    """
    if endpoint.transport == "local":
        from orchestrator.transport.local import LocalConnection

        return LocalConnection(endpoint.name)
    if endpoint.transport == "ssh":
        from orchestrator.transport.ssh import connect_ssh

        return connect_ssh(endpoint)
    if endpoint.transport == "openssh":
        from orchestrator.transport.openssh import connect_openssh

        return connect_openssh(endpoint)
    raise ConfigError(
        f"transport {endpoint.transport} reaches no host",
        where=endpoint.name,
        hint="use local, ssh or openssh",
    )
