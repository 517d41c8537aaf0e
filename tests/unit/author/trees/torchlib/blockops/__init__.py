"""Operators registered with torch.library, in plain torch."""

from blockops import quant, segments  # noqa: F401
