"""The benchmark harness: load a runner, verify it, measure it, record what happened.

Runs on the target, in its Python (3.10+), beside torch. Nothing here imports torch at module level
except ``base`` and ``checks``, which only runners pull in, so that ``--list`` answers at once.
"""
