"""``python -m orchestrator`` is ``mxfleet``."""

from __future__ import annotations

from orchestrator.cli.main import main

main()
