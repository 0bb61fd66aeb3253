"""The suite of workloads of tasks: its load, its tasks and its seeds are as stated, and a written trace reads back."""

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from benchmarks.suite import FOUR, Cell, gains
from gavel.cli import app
from gavel.errors import InvalidRequest
from gavel.mechanism.cluster.feasibility import Feasibility
from gavel.simulator import setup
from gavel.simulator.lean import simulate
from gavel.simulator.outcome import Scenario
from tests.simulator.test_lean import a_scenario
from workloads.traces.suite import GRAINS, LOAD, WORKLOADS, cluster, offered_s, suite, task_sets

FULL = os.environ.get("GAVEL_TEST_PROFILE") == "full"


@settings(max_examples=300 if FULL else 30)
@given(workload=st.sampled_from(WORKLOADS), jobs=st.integers(2, 60), seed=st.integers(0, 10**6))
def test_load_tasks_and_order_are_as_stated(workload: str, jobs: int, seed: int) -> None:
    arrivals_s, sets = zip(*task_sets(workload, jobs=jobs, seed=seed), strict=True)
    assert len(sets) == jobs and arrivals_s[0] == 0.0 and list(arrivals_s) == sorted(arrivals_s)
    if workload.endswith("batch"):
        assert arrivals_s[-1] == 0.0
    else:
        assert LOAD[0] <= offered_s(list(sets)) / arrivals_s[-1] <= LOAD[1]
    grain = workload.partition("-")[0]
    for each in sets:
        fitting = GRAINS.values() if grain == "mixed" else [GRAINS[grain]]
        assert any(
            of.tasks[0] <= len(each.durations_s) <= of.tasks[1]
            and of.task_s[0] <= min(each.durations_s)
            and max(each.durations_s) <= of.task_s[1]
            for of in fitting
        )


@settings(max_examples=60 if FULL else 10)
@given(workload=st.sampled_from(WORKLOADS), seed=st.integers(0, 10**6))
def test_a_seed_gives_the_same_tasks_again_and_each_fits_every_node(workload: str, seed: int) -> None:
    tasks, again, others = (list(suite(workload, jobs=5, seed=each)) for each in (seed, seed, seed + 1))
    assert tasks == again and tasks != others
    ranks = [Feasibility(cluster()).ranks(task.spec.needs)["cpu"] for task in tasks]
    assert min(ranks) >= len(cluster().nodes)
    assert all(not task.spec.preemptible and task.spec.scale_factor == 1 for task in tasks)


def test_cpu_heavy_work_is_short_of_cores_and_memory_heavy_work_of_memory() -> None:
    for mix, resource in (("cpu", 0), ("memory", 1)):
        for _, each in task_sets(f"coarse-{mix}", jobs=30, seed=1):
            assert each.part_of_cluster_s()[resource] == max(each.part_of_cluster_s())


def test_an_unknown_workload_and_wrong_parameters_are_refused_with_what_there_is() -> None:
    with pytest.raises(InvalidRequest, match="did you mean fine-memory"):
        task_sets("fine-memry", jobs=3, seed=0)
    for text in ("suite", "suite?workload=fine-cpu", "suite?workload=fine-cpu&jobs=3&load=1"):
        with pytest.raises(InvalidRequest, match="suite takes jobs, workload"):
            list(setup.Workload(text=text).jobs())
    with pytest.raises(InvalidRequest, match="cannot read"):
        list(setup.Workload(text="suite?workload=fine-cpu&jobs=some").jobs())


def test_a_written_workload_reads_back_as_the_generator_has_it(tmp_path: Path) -> None:
    file = tmp_path / "tasks.jsonl"
    written = CliRunner().invoke(app, ["suite", "write", "fine-bursty", str(file), "--jobs", "4", "--seed", "7"])
    assert written.exit_code == 0, written.output
    read, generated = (setup.Workload(text=text, seed=7) for text in (str(file), "suite?workload=fine-bursty&jobs=4"))
    assert list(read.jobs()) == list(generated.jobs())
    assert read.surroundings().cluster == generated.surroundings().cluster == cluster()
    listed = CliRunner().invoke(app, ["suite", "list"])
    assert listed.output.split() == list(WORKLOADS)


@pytest.mark.small("fifo")
@pytest.mark.parametrize("policy", ["fifo", "least_remaining_work", "fair_by_memory?among=users"])
def test_tasks_run_to_their_end_without_a_preemption_within_the_cores_and_memory_of_the_nodes(policy: str) -> None:
    jobs = list(suite("fine-both", jobs=4, seed=3))
    rates = {(jobs[0].spec.kind, 1, "cpu"): jobs[0].spec.throughput_steps_per_s["cpu"]}
    plain = a_scenario(cluster(), policy, round_duration_s=2.0, backfill=True)
    rows = simulate(jobs, Scenario(cluster=plain.cluster, throughput=rates, settings=plain.settings)).rows
    assert len(rows) == len(jobs) and not any(row.preemptions for row in rows)
    spans = [(row.finished_at_s - row.fastest_s, row.finished_at_s, jobs[i].spec) for i, row in enumerate(rows)]  # type: ignore[operator]
    for at_s, _, _ in spans:
        running = [spec for begin_s, end_s, spec in spans if begin_s <= at_s + 1e-6 < end_s]
        assert sum(spec.cpu_cores for spec in running) <= 40
        assert sum(spec.memory_bytes for spec in running) <= 5 * 16 * 2**30


def test_what_the_best_policy_of_each_workload_brings_is_over_the_best_single_one() -> None:
    """Fair memory is best by geometric mean; FIFO takes half of it on the first workload, and twice on the second."""
    cells = {(name, policy): Cell(name, 0, 8, policy) for name in ("coarse-cpu", "fine-cpu") for policy in FOUR}
    results = {cell: (100.0, 1.0, 1.0) for cell in cells.values()}
    results[cells["coarse-cpu", "FIFO"]] = (45.0, 1.0, 1.0)
    results[cells["fine-cpu", "FIFO"]] = (180.0, 1.0, 1.0)
    results[cells["coarse-cpu", "fair memory"]] = (90.0, 1.0, 1.0)
    results[cells["fine-cpu", "fair memory"]] = (89.0, 1.0, 1.0)
    gained, most, wrong = gains(results, "the four", list(FOUR), "mean JCT")
    assert gained.name.endswith("over fair memory")
    assert (gained.value, most.value) == pytest.approx((100 * (1 - 0.5**0.5), 50.0))
    assert wrong.value == pytest.approx((100 / 45 * 180 / 89) ** 0.5)


def test_a_run_of_the_suite_counts_a_set_until_its_last_task() -> None:
    jct_s, slowdown, p95_slowdown = Cell("coarse-cpu", 0, 1, "FIFO").measured()
    (_, alone) = task_sets("coarse-cpu", jobs=1, seed=0)[0]
    assert jct_s >= alone.alone_s()
    assert slowdown == p95_slowdown == pytest.approx(jct_s / alone.alone_s())
