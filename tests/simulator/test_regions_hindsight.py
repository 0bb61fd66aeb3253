"""The placement in hindsight that moves between regions are compared with."""

from dataclasses import replace

import pytest

from benchmarks.regions_hindsight import Hindsight
from tests.mechanism.test_relocating import GB, RATES, job
from workloads.traces.job import TraceJob

CLUSTER, REGIONS = "v100:1@eu,v100:1@us", ("eu", "us")


def two(gigabytes: int) -> list[TraceJob]:
    """Two jobs of an hour, at once, with data in eu."""
    return [job(name, data_region="eu", data_bytes=gigabytes * GB) for name in "ab"]


def searched(jobs: list[TraceJob], gbit_s: float = 8.0) -> tuple[int, ...]:
    return Hindsight(jobs, CLUSTER, REGIONS, RATES, gbit_s).searched(50)


def test_two_jobs_are_put_apart_where_the_copy_is_short_and_stay_where_it_is_long() -> None:
    assert sorted(searched(two(100))) == [0, 1]
    assert searched(two(100_000)) == (0, 0)


def test_a_job_that_its_region_cannot_run_is_put_elsewhere() -> None:
    gang = replace(two(1)[0], spec=replace(two(1)[0].spec, scale_factor=2))
    model = Hindsight([gang], "v100:1@eu,v100:2@us", REGIONS, RATES, 8.0)
    assert model.searched(0) == (1,)


def test_jobs_share_a_region_in_the_fluid_model() -> None:
    """Two hours for both at half the speed; apart one hour each, and the copy."""
    model = Hindsight(two(100), CLUSTER, REGIONS, RATES, 8.0)
    assert model._total_s((0, 0), 0) == pytest.approx(2 * 7200)
    assert model._total_s((0, 1), 0) + model._total_s((0, 1), 1) == pytest.approx(2 * 3600 + 100)
