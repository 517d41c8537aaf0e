from core.registry import op

from . import scenarios


@op("attention")
class Attention:
    SCENARIOS = scenarios.SCENARIOS
