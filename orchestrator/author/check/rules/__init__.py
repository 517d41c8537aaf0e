"""The rules, a module for each subject; importing one registers its rules."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules


def load_rules() -> None:
    """Import all modules of this package, in the order of their names."""
    for module in sorted(iter_modules(__path__), key=lambda found: found.name):
        import_module(f"{__name__}.{module.name}")
