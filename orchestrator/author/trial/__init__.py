"""Read how a unit test exercises an operator: a slicer over one test function, by ``ast`` only.

``reader`` chooses the test and writes the ``Trial``. ``source``, ``units``, ``parameters`` and
``callers`` read the file; ``dtypes``, ``select``, ``flatten`` (with ``inline``, ``rounds``,
``noise``), ``inputs`` and ``devices`` bring the test into one straight line; ``calls`` knows the
operator, ``compare`` (with ``ordering``, ``sides``) the comparisons; ``effects``, ``slices`` and
``assemble`` (with ``arguments``, ``outputs``) cut it; ``closure`` (with ``layers``,
``well_known``) collects the helpers. ``scopes`` and ``literals`` serve them all.
"""

from orchestrator.author.trial.reader import read_trial

__all__ = ["read_trial"]
