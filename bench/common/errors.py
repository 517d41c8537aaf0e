"""Why a speed table cannot be made here."""

from __future__ import annotations


class Skip(Exception):
    """The machine lacks something; the text names it and what to do."""
