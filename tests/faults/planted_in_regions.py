"""Bugs in what several regions need beside their own backends."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gavel.backends.several.copies import Copies
from gavel.backends.several.region import Region
from gavel.backends.several.whereabouts import Whereabouts
from tests.faults.planting import PLANTED, instead, planted


@planted
def a_gang_starts_while_an_earlier_one_may_run_in_another_region() -> Any:
    return instead(Whereabouts, "may_live_elsewhere", lambda self, job_id, region: "")


@planted
def gangs_of_a_region_that_does_not_answer_are_lost_at_once() -> Any:
    return instead(Whereabouts, "may_live", lambda self, gang: False)


@planted
def where_gangs_are_is_not_stored() -> Any:
    return instead(Whereabouts, "store", lambda self: None)


@planted
def a_gang_starts_before_its_checkpoint_is_there() -> Any:
    return instead(Copies, "held", lambda self, launch, region: None)


@planted
def what_could_not_be_delivered_is_dropped() -> Any:
    return instead(Region, "_keep", lambda self, instructions: None)


@planted
def nobody_waits_for_the_leases_of_a_region_that_does_not_answer() -> Any:
    """Neither the record of where gangs are, nor the stored plans."""

    @contextmanager
    def both() -> Iterator[None]:
        with (
            instead(Whereabouts, "may_live", lambda self, gang: False),
            PLANTED["a_gang_on_a_node_that_is_away_is_forgotten"](),
        ):
            yield

    return both()
