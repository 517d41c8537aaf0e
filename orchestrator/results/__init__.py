"""Records that came in: kept as a set, merged into the CSV of each device model."""
