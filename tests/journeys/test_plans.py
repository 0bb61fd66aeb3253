"""A training goes on under other execution plans: what one has sharded another one loads.

With the real library: in `make test-full`, where `make frameworks-env` has installed it.
"""

from pathlib import Path

import pytest

from tests.journeys.journey import WITH_LIBRARIES, Journey

STEPS = 3 * (200 // 24)
TENSOR = {"tensor": 2}


@WITH_LIBRARIES
@pytest.mark.timeout(600)
def test_sharded_state_is_loaded_under_other_plans_and_the_losses_stay_the_same(tmp_path: Path) -> None:
    """1. Layers split over two ranks. 2. Whole layers, sharded over two. 3. Split over two ranks, and sharded over two
    such copies. 4. One rank. The state of Adam goes along."""
    alone, changing = Journey("plans", tmp_path / "alone"), Journey("plans", tmp_path / "changing")
    assert alone.run() == [0], alone.outputs
    for plan, size, stop in ((TENSOR, 2, 5), ({"tensor": 1}, 2, 10), (TENSOR, 4, 16)):
        changing.plan, changing.world_size = plan, size
        assert changing.run(stop) == [75] * size, changing.outputs
        assert changing.step == stop
    changing.plan, changing.world_size = {}, 1
    assert changing.run() == [0], changing.outputs
    assert len(alone.final()) == STEPS
    assert changing.final() == pytest.approx(alone.final(), rel=1e-9)
    assert alone.final()[-1] < 0.8 * alone.final()[0]
