"""The rules of a lease on its node, and what a node does with an order, as tables."""

from dataclasses import replace
from functools import partial

import pytest

from gavel.backends import machine
from gavel.backends.lease_rules import end_reason, extends, is_preemption, overdue_at_s
from gavel.backends.nodes.obeying import Action, action_of, is_refused, may_launch, raises_fence
from gavel.backends.nodes.protocol import ShardLaunch, ShardWanted, Slot
from gavel.ports import LaunchGang


def test_a_lease_is_extended_only_while_it_lasts_and_only_to_a_later_end() -> None:
    assert extends(1.0, 2.0, 3.0)
    assert not extends(2.0, 2.0, 3.0) and not extends(1.0, 2.0, 2.0) and not extends(1.0, 3.0, 2.0)


def test_a_lease_that_is_over_stays_over_for_the_reason_it_had() -> None:
    assert end_reason("", is_over=False, is_stopped=False) == ""
    assert end_reason("lease", is_over=False, is_stopped=True) == "lease"
    assert end_reason("", is_over=True, is_stopped=True) == "stop"
    assert end_reason("", is_over=True, is_stopped=False) == "lease"


@pytest.mark.parametrize(
    ("exit_code", "is_ending", "is_over", "expected"),
    [
        (75, False, True, True),
        (-15, False, True, True),
        (1, False, True, False),
        (0, False, True, False),
        (75, False, False, False),
    ],
)
def test_a_failure_after_the_lease_is_a_preemption_if_the_code_says_so(
    exit_code: int, is_ending: bool, is_over: bool, expected: bool
) -> None:
    assert is_preemption(exit_code, is_ending=is_ending, is_over=is_over) is expected
    assert is_preemption(exit_code, is_ending=True, is_over=is_over)


def test_boottime_is_asked_of_the_source_only_inside_its_block() -> None:
    with machine.boottime_from(lambda: 7.0):
        assert machine.boottime_s() == 7.0
    assert machine.boottime_s() > 7.0 or machine.boottime_s() == machine._kernel_boottime_s()
    assert overdue_at_s(5.0, float("inf"), 1.0) == 36.0


def launch(job_id: str, generation: int, shares_with: str | None) -> LaunchGang:
    return LaunchGang(
        job_id=job_id,
        generation=generation,
        user="ann",
        argv=("true",),
        env={},
        accelerator_type="fast",
        worker_ids=("fast-0",),
        resource="gavel/gang",
        lease_expires_at_s=1.0,
        start_step=0,
        total_steps=1,
        checkpoint=None,
        shares_with=shares_with,
    )


def part(job_id: str, generation: int, index: int = 0, shares_with: str | None = None) -> ShardLaunch:
    return ShardLaunch(
        instruction=launch(job_id, generation, shares_with),
        ranks=(0,),
        slots=(Slot(accelerator_type="fast", resource="gavel:fast", index=index),),
        node_of_rank=("node-0",),
        environment={},
        lease_grace_s=1.0,
        log_bytes=1,
        checkpoints="/none",
    )


def test_a_part_starts_unless_it_is_stale_late_or_its_slot_is_held() -> None:
    new = part("a", 3)
    assert may_launch(new, is_over=False, fence=3, live=[part("b", 1, index=1)])
    assert not may_launch(new, is_over=True, fence=3, live=[])
    assert not may_launch(new, is_over=False, fence=4, live=[])
    assert not may_launch(new, is_over=False, fence=0, live=[part("b", 1)])
    assert may_launch(part("a", 3, shares_with="b"), is_over=False, fence=0, live=[part("b", 1)])


def test_an_order_is_obeyed_by_what_is_there() -> None:
    assert is_refused(1, 2) and not is_refused(2, 2)
    keep = ShardWanted(key=("a", 1), lease_node_boottime_s=1.0, launch=part("a", 1))
    stop = ShardWanted(key=("a", 1), lease_node_boottime_s=1.0, stop=True, launch=part("a", 1))
    forget = ShardWanted(key=("a", 1), lease_node_boottime_s=0.0, forget=True)
    assert (raises_fence(keep), raises_fence(stop), raises_fence(forget)) == (False, True, True)
    obey = partial(action_of, is_of_this_boot=True)
    cases = {
        Action.LAUNCH: obey(keep, is_here=False, is_live=False, has_problem=False),
        Action.KEEP: obey(keep, is_here=True, is_live=True, has_problem=True),
        Action.STOP: obey(forget, is_here=True, is_live=True, has_problem=False),
        Action.FORGET: obey(forget, is_here=True, is_live=False, has_problem=False),
        Action.NOTHING: obey(stop, is_here=False, is_live=False, has_problem=False),
    }
    assert all(expected is given for expected, given in cases.items())
    assert obey(keep, is_here=False, is_live=False, has_problem=True) is Action.NOTHING


def test_a_lease_by_the_clock_of_another_boot_is_not_taken() -> None:
    """A gang may end and be forgotten by such an order: that takes no clock."""
    keep = ShardWanted(key=("a", 1), lease_node_boottime_s=1.0, launch=part("a", 1))
    stop, forget = replace(keep, stop=True), replace(keep, forget=True)
    obey = partial(action_of, has_problem=False, is_of_this_boot=False)
    assert obey(keep, is_here=False, is_live=False) is obey(keep, is_here=True, is_live=True) is Action.NOTHING
    assert obey(stop, is_here=True, is_live=True) is obey(forget, is_here=True, is_live=True) is Action.STOP
    assert obey(forget, is_here=True, is_live=False) is Action.FORGET
