"""How often gangs are lost: counted with the worker hours of their tier, stated to the next gangs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gavel.mechanism.cluster.losses import PRIOR_WORKER_HOURS, time_to_loss_s
from gavel.ports import LaunchGang
from gavel.types import Usage
from tests.mechanism.test_lost_gangs import STATED, a_world, lose_its_node
from tests.mechanism.world import World


def launches(world: World, monkeypatch: pytest.MonkeyPatch) -> list[LaunchGang]:
    """The launches from now on."""
    seen: list[LaunchGang] = []
    execute = world.backend.execute

    def watched(instructions: list[object]) -> None:
        seen.extend(each for each in instructions if isinstance(each, LaunchGang))
        execute(instructions)  # type: ignore[arg-type]

    monkeypatch.setattr(world.backend, "execute", watched)
    return seen


def test_a_lost_gang_is_counted_and_the_next_one_learns_that_losses_are_more_frequent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = a_world(lost_backoff_s=1.0)
    launched = launches(world, monkeypatch)
    job_id = world.submit(400, **STATED)
    lose_its_node(world, job_id)
    world.run(lambda: world.is_done(job_id))
    (used,) = world.store.usage("1970-01")
    assert used.lost_gangs == 1 and used.worker_hours == pytest.approx(used.accelerator_hours)
    first, second = (each.time_to_loss_s for each in launched)
    assert first == pytest.approx(PRIOR_WORKER_HOURS * 3600.0)
    assert second == pytest.approx(first / 2, rel=0.01)


@given(
    losses=st.integers(0, 1000),
    hours=st.floats(0.0, 1e6),
    workers=st.integers(1, 4096),
)
def test_the_rate_is_that_of_all_tiers_together_and_grows_with_the_gang(
    losses: int, hours: float, workers: int
) -> None:
    parts = [Usage(tier="a", month="11", worker_hours=hours, lost_gangs=losses), Usage(tier="b", month="10")]
    one = time_to_loss_s(parts, 1)
    assert time_to_loss_s(parts, workers) == pytest.approx(one / workers)
    assert time_to_loss_s([*parts, Usage(tier="b", month="11", lost_gangs=1)], 1) < one
    assert time_to_loss_s([*parts, Usage(tier="b", month="11", worker_hours=1.0)], 1) > one


def test_what_was_seen_outweighs_what_was_assumed() -> None:
    seen = [Usage(tier="a", month="11", worker_hours=100_000.0, lost_gangs=1000)]
    assert time_to_loss_s(seen, 1) == pytest.approx(100 * 3600.0, rel=0.02)


def test_the_first_losses_change_what_was_assumed_and_a_gang_has_one_worker_at_least() -> None:
    used = [Usage(tier=tier, month="2026-01", worker_hours=500.0, lost_gangs=1) for tier in ("gold", "free")]
    assert time_to_loss_s((), 1) == 1000 * 3600.0
    assert [time_to_loss_s(used, workers) for workers in (0, 1, 4)] == [
        2000 * 3600.0 / 3,
        2000 * 3600.0 / 3,
        2000 * 3600.0 / 12,
    ]
