"""A day in virtual time: what the scheduler holds stays as it is, however many jobs have come and gone."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.soak.trend import growing, trend
from tests.soak.virtual_day import VirtualDay

HOURS, SAMPLES = 24.0, 144
ALLOWED = {"objects": 0.02, "memory_bytes": 0.05, "descriptors": 0.0, "database_bytes": 0.1}
ROWS = 0.1  # of a table's rows


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_a_day_of_short_jobs_leaves_everything_as_it_is(tmp_path: Path) -> None:
    day = VirtualDay(tmp_path)
    samples = list(day.run(HOURS, sample_every_s=3600.0 * HOURS / SAMPLES))
    day.close()
    assert day.jobs > 150 * HOURS and samples[-1]["unfinished_jobs"] < 50, "jobs come, and they end"
    allowed = ALLOWED | {name: ROWS for name in samples[0] if name.startswith("rows of ")}
    assert growing(samples, allowed) == {}


@given(st.integers(0, 2**32 - 1), st.floats(0.0, 3.0))
def test_a_leak_is_growth_and_noise_is_not(seed: int, noise: float) -> None:
    chance = np.random.default_rng(seed)
    level = 1000.0 + noise * chance.standard_normal(60)
    assert not growing([{"bytes": value} for value in level], {"bytes": 0.02})
    leak = level + np.arange(60.0)  # 4 % over the two thirds that count
    assert "bytes" in growing([{"bytes": value} for value in leak], {"bytes": 0.02})


def test_a_warm_up_and_what_is_collected_now_and_then_are_no_growth() -> None:
    warming = [*np.linspace(0.0, 100.0, 20), *[100.0] * 40]
    assert trend(warming).growth == 0.0
    sawtooth = [100.0 + index % 7 for index in range(60)]
    assert not growing([{"bytes": value} for value in sawtooth], {"bytes": 0.02})
