"""The functions that the library's own pybind module has."""

from stand_in import functions

globals().update(functions("mcoplib.op"))
