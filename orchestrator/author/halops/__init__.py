"""Configs for a HALOps benchmark, written from what the checkout's own code says."""
