"""Why there is no speed table."""

from __future__ import annotations


class Skip(Exception):
    """The machine lacks something; the text names it and what to do."""


class Failed(Exception):
    """The measuring itself went wrong; the text says where."""
