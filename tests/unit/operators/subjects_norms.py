"""RMS norms computed with numpy in float64, row by row."""

from faults import Subject

SUBJECTS: list[Subject] = []
