"""What the tests of the crash points share: the acts of a scenario, and a run for each of its points."""

import os
from itertools import islice

from gavel.faults.crash_points import CrashCounter, crash_points
from gavel.faults.scenario import Scenario
from gavel.faults.search import silenced
from gavel.faults.stores import OpenStores
from gavel.faults.world import run
from tests.faults.scenes import SCENES

IS_FULL = os.environ.get("GAVEL_TEST_PROFILE") == "full"
STRUCK = list(SCENES) if IS_FULL else ["a job"]
"""The scenarios of which points are struck."""


def counted(scenario: Scenario, open_stores: OpenStores) -> CrashCounter:
    """The acts of a run without a crash."""
    whole = CrashCounter()
    assert run(scenario, crashes=whole, open_stores=open_stores).violation is None
    return whole


def strike(scenario: Scenario, open_stores: OpenStores, *, one_in: int) -> None:
    """Strike every point once, in the small profile one in so many: it strikes exactly there, and everything holds."""
    with silenced():
        whole = counted(scenario, open_stores)
        for point in islice(crash_points(whole), 0, None, 1 if IS_FULL else one_in):
            counter = CrashCounter(point)
            outcome = run(scenario, crashes=counter, open_stores=open_stores)
            assert (outcome.violation, point) == (None, point)
            assert counter.struck >= 1, point
