"""The rules of the leadership: what follows a leader's row, and who may commit."""

import pytest

from gavel.errors import LeadershipLost
from gavel.store.leadership_rules import LeaderRow, check_leads, next_row

ROW = LeaderRow(database="d", generation=3, holder="a", beat=7, lease_s=2.0)


def test_the_row_after_a_leader_s_is_later_and_of_the_same_database() -> None:
    after = next_row("b", lease_s=5.0, seen=ROW)
    assert after == LeaderRow(database="d", generation=4, holder="b", beat=8, lease_s=5.0)


def test_the_first_leader_names_the_database_as_no_other_is_named() -> None:
    first, other = (next_row("a", lease_s=1.0, seen=LeaderRow()) for _ in range(2))
    assert (first.generation, first.beat) == (1, 1)
    assert len(first.database) == len(other.database) == 16 and first.database != other.database


def test_only_the_generation_that_leads_commits() -> None:
    check_leads(ROW, 3)
    check_leads(ROW, None)  # a process that never led is alone
    with pytest.raises(LeadershipLost, match=r"^generation 2 does not lead the scheduler any more"):
        check_leads(ROW, 2)
    with pytest.raises(LeadershipLost, match=r"^generation 3 "):
        check_leads(LeaderRow(database="d", generation=3, beat=7), 3)  # it resigned
