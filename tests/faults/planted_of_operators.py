"""Bugs to plant in what operators put in force, and in the order of jobs."""

from typing import Any

from gavel.mechanism.jobs import admission_holds
from gavel.mechanism.planning.reservations import Reservations
from gavel.types.copying import changed
from tests.faults.planting import instead, planted


@planted
def a_job_does_not_wait_for_those_that_come_first() -> Any:
    return instead(admission_holds, "release", lambda job, states, now_s: (changed(job, waits_for=()), None))


@planted
def a_tier_goes_on_when_its_month_is_used() -> Any:
    return instead(admission_holds, "spent_tiers", lambda tiers, usage, now_s: {})


@planted
def reservations_count_with_the_rounds_of_the_settings() -> Any:
    return instead(Reservations, "_round_s", lambda self, commitments: self.settings.round_duration_s)
