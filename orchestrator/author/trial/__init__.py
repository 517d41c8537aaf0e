"""Read how a unit test exercises an operator: a slicer over one test function, by ``ast`` only.

``reader`` chooses the test and writes the ``Trial``; ``source``, ``units`` and ``parameters`` read
the file, ``select``, ``flatten``, ``inputs`` and ``devices`` bring the test into one straight line,
``calls``, ``compare``, ``ordering``, ``effects``, ``slices`` and ``assemble`` cut it, ``closure``
collects the helpers.
"""

from orchestrator.author.trial.reader import read_trial

__all__ = ["read_trial"]
