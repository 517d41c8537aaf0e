"""What ``--strict`` adds to a verdict: nothing that is undecided or measured elsewhere is well."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.errors import ExitCode, UnusableError, combine
from orchestrator.inventory.model import Target
from orchestrator.records import Record, Status
from orchestrator.results.model_name import model_name
from orchestrator.workflows.interpret import Verdict


def device_mismatch(record: Record, target: Target) -> str | None:
    """Why the device of ``record`` is not the one that config or inventory expect; None if it is.

    What a harness found itself counts for the config.
    """
    noted = record.environment.get("device_expected")
    if record.device is None:
        return None
    if isinstance(noted, str) and noted:
        return noted
    name, kind = record.device.name, record.device.kind
    if target.model is not None and model_name(name, kind) != model_name(target.model):
        return f"measured on {name}, but the inventory expects model {target.model} here"
    return None


def strictly(verdict: Verdict, target: Target) -> Verdict:
    """``verdict`` with the exit codes of ``--strict``: 3 for another device, 6 for UNVERIFIED."""
    found = [device_mismatch(record, target) for record in verdict.records]
    odd = next((text for text in found if text is not None), None)
    unverified = any(record.status is Status.UNVERIFIED for record in verdict.records)
    codes = [
        verdict.code,
        *([ExitCode.TARGET] if odd else []),
        *([ExitCode.UNDECIDED] if unverified else []),
    ]
    refused = verdict.refused
    if odd is not None and refused is None:
        refused = UnusableError(odd, where=target.name)
    return replace(verdict, code=combine(codes), refused=refused)
