"""What a runner's methods would do, told without running them: an abstract interpreter.

``values`` is what it computes with, ``torch_model`` what torch's functions do to tensors;
``expressions``, ``calls`` and ``interpret`` evaluate, and ``trace`` has the phases of a benchmark
(data, launch, metrics, verification) that rules look at. What cannot be told is ``Opaque``, and a
rule then keeps silent.
"""
