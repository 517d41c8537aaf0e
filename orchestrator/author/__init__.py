"""Author an operator's benchmark from its code, and lint benchmarks.

``facts`` is what is known of an operator and its unit test; ``cpp``, ``schema``, ``python_ops``,
``binary`` and ``locate`` read it from sources, ``trial`` from the unit test, ``emit`` writes config
and runner, ``check`` lints. Code is read, never imported or run.
"""
