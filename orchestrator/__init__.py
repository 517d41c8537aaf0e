"""mxfleet: run GPU operator benchmarks on a fleet of hosts, verified, supervised and merged."""

from __future__ import annotations

__version__ = "0.1.0"
