"""Why an operator that only moves data stays below the memory's bandwidth, where that is known."""

REASONS: dict[str, str] = {}
