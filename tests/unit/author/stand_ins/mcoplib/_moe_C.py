"""Registers what the library's own binary would."""

from stand_in import register

register("_moe_C")
