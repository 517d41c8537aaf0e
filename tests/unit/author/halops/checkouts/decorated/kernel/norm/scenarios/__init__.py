from .rms import Rms

SCENARIOS = {"rms_norm": Rms()}
