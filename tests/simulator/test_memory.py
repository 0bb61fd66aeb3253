"""Memory is bounded by the jobs that are active, not by the length of the trace."""

import gc
import tracemalloc
from pathlib import Path

import pytest

from gavel.config import Settings
from gavel.policies.inline import InlineRunner
from gavel.simulator import timeline
from gavel.simulator.compare import Comparison
from gavel.simulator.lean import LeanWorld
from gavel.simulator.outcome import Scenario
from gavel.simulator.setup import Workload, cluster_of, rates, survey

BYTES_PER_JOB_MAX = 60  # where a line lies in its file, and rounding up; the line itself has 500 bytes


def live_bytes() -> int:
    """What is in use but for the interpreter's memory of classes; a full collection empties its lists of tuples too."""
    gc.collect()
    seen = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(inclusive=False, filename_pattern="<frozen*")])
    return sum(each.size for each in seen.statistics("filename"))


def bytes_at_the_end(folder: Path, jobs: int) -> int:
    """What a whole trace left in memory, its results written; a dozen jobs are active at a time."""
    path = folder / f"{jobs}.csv"
    with path.open("w", encoding="utf-8") as lines:
        lines.write("submit_time_s,duration_s,num_gpus\n")
        lines.writelines(f"{60 * index},130,1\n" for index in range(jobs))
    tracemalloc.start()
    try:
        workload = Workload(text=str(path))
        scenario = Scenario(
            cluster=cluster_of("a100:16"),
            throughput=rates(survey(workload, None), None),
            settings=Settings(policy="equal_share", round_duration_s=600.0, solve_on="event"),
        )
        world = LeanWorld(workload.jobs(), scenario, InlineRunner())
        rounds = sum(1 for _ in world.rounds())
        comparison = Comparison(scenario={}, outcomes={"equal_share": world.result()}, tiers=["default"])
        with (folder / "results.json").open("w", encoding="utf-8") as file:
            file.writelines(comparison.as_json())
        comparison.as_html()
        assert world.completed == jobs and rounds > jobs / 20
        return live_bytes()
    finally:
        tracemalloc.stop()


@pytest.mark.full
def test_a_longer_trace_takes_a_few_bytes_a_job_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline, "POINTS_MAX", 32)  # bounded anyway, but this soon
    short, long = 100, 600
    bytes_at_the_end(tmp_path, short)  # what is imported and remembered once
    grown = bytes_at_the_end(tmp_path, long) - bytes_at_the_end(tmp_path, short)
    assert grown < BYTES_PER_JOB_MAX * (long - short)
