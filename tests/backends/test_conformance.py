"""The local backend shows what every backend must show."""

import pytest

from gavel.backends.conformance import CHECKS, Check
from tests.backends.clusters import LocalHarness


@pytest.mark.full(
    "a_thousand_names_on_a_thousand_nodes_are_one_batch",
    "a_capacity_is_never_exceeded",
    "instructions_repeated_and_reordered_come_to_the_same",
    "a_setup_runs_once_for_each_content",
    "a_node_that_returns_is_told_again_and_used_again",
    "a_lost_node_takes_its_gangs_and_names_along_and_no_others",
    "a_shrink_below_use_kills_nobody_and_starts_nobody",
    "a_packed_pair_shares_its_workers_and_nobody_else_does",
    "the_checkpoint_before_the_accepted_one_is_told",
    "a_name_that_nobody_renews_goes_at_the_end_of_its_lease",
    "a_gang_holds_all_its_workers_or_none",
    "a_gang_runs_in_a_copy_of_its_code",
    "gangs_that_race_for_the_same_workers_all_finish",
    "a_prepared_gang_is_not_there_before_its_launch",
    "a_running_gang_makes_room_for_a_partner_in_place",
    "what_a_job_writes_to_its_output_folder_stays",
    "a_program_can_know_how_long_gangs_of_its_size_last",
)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_local_backend_conforms(check: Check, harness: LocalHarness) -> None:
    check(harness)
