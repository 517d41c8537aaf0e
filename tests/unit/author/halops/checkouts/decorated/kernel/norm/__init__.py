from core.registry import op

from .scenarios import SCENARIOS as table


@op("norm")
class Norm:
    SCENARIOS = table
