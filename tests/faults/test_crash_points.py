"""A process dies at every commit and in every exchange of a scenario, one run for each: everything holds each time."""

import os
from dataclasses import replace

import pytest

from gavel.faults.crash_points import CrashCounter, crash_points
from gavel.faults.search import silenced
from gavel.faults.world import run
from tests.faults.scenes import SCENES

IS_FULL = os.environ.get("GAVEL_TEST_PROFILE") == "full"
ON_FILE = ("a job", "a cancellation")
CASES = [*((name, False) for name in SCENES), *((name, True) for name in ON_FILE)] if IS_FULL else [("a job", False)]


@pytest.mark.timeout(1800 if IS_FULL else 400)
@pytest.mark.parametrize(("name", "is_durable"), CASES)
def test_a_crash_at_any_point_breaks_nothing(name: str, is_durable: bool) -> None:
    """1. Count. 2. Strike each point once; the crash strikes exactly there, and everything holds and ends."""
    scenario = replace(SCENES[name], is_durable=is_durable)
    with silenced():
        whole, again = CrashCounter(), CrashCounter()
        assert run(scenario, crashes=whole).violation is None
        assert run(scenario, crashes=again).violation is None and again.counts == whole.counts
        assert whole.counts["before_commit"] == whole.counts["after_commit"] >= 3 and whole.counts["in_exchange"] >= 3
        points = list(crash_points(whole.counts))
        assert len(points) == 3 * whole.counts["after_commit"] + whole.counts["in_exchange"]
        for point in points:
            counter = CrashCounter(point)
            outcome = run(scenario, crashes=counter)
            assert (outcome.violation, point) == (None, point)
            assert counter.struck >= 1, point
