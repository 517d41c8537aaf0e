"""Whatever ends a job early: nothing of it is left, its lock is free, its rows are kept, and told.

The faults are in ``faults``; ``bench/faults.py`` makes a table of what they take. Here times are
only there to tell soon from never.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .conftest import LoopbackFleet
from .faults import FAULTS, Fault, asleep
from .observed import broken, intact, observe
from .scene import ground

GENEROUS = 4.0  # times as long as is promised: this machine may be busy


@pytest.fixture(scope="module")
def lone(fleet: LoopbackFleet) -> Iterator[LoopbackFleet]:
    """A host that may be broken. The other fleet is there first: it has the root file system."""
    with ground() as made:
        yield made


@pytest.mark.parametrize(
    "fault",
    [*FAULTS, asleep(12.0, dead_link=3.0)],
    ids=lambda fault: fault.name.replace(" ", "-"),
)
def test_a_fault_leaves_nothing_and_loses_nothing(lone: LoopbackFleet, fault: Fault) -> None:
    reason = fault.unfit()
    if reason is not None:
        pytest.skip(reason)
    with intact(lone):
        found = observe(fault, lone)
    assert broken(fault, found, GENEROUS) == [], found.said
