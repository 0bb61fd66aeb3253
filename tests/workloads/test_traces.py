import json
import os
from collections.abc import Iterator
from itertools import islice, pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gavel.errors import InvalidRequest
from gavel.types import Node, Tier
from workloads.traces import generators
from workloads.traces.history import Surroundings, surroundings
from workloads.traces.job import Lines, TraceJob
from workloads.traces.readers import read_trace
from workloads.traces.throughputs import (
    UNIT_KIND,
    ScaledRates,
    ThroughputTable,
    UnitRates,
    read_throughputs,
    with_kinds,
)

PUBLISHED = "LM (batch size 40)\tpython3 main.py\tlm\t--steps\t1\t120.25\t2\t1.0\t-1.000000\t36.5"
SACCT = "JobID|User|Submit|Elapsed|AllocTRES|State"
TABLE = ThroughputTable(
    rates={
        (kind, size, name): rate * size
        for kind in generators.KINDS
        for size in ((1,) if kind in ("A3C", "CycleGAN") else (1, 2, 4, 8))
        for name, rate in (("v100", 4.0), ("k80", 1.0))
    }
)


def jobs_of(path: Path, text: str, form: str = "", *, is_lenient: bool = False) -> tuple[list[TraceJob], list[str]]:
    path.write_text(text, encoding="utf-8")
    lines = Lines(path, is_lenient=is_lenient)
    return list(read_trace(lines, form)), lines.skipped


@pytest.fixture
def data() -> Iterator[Path]:
    folder = os.environ.get("GAVEL_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("GAVEL_DATA names no folder with the published traces")
    yield Path(folder)


# --- each form --------------------------------------------------------------------------------------------------


def test_a_published_line_is_read_and_a_real_number_of_steps_is_rounded_up(tmp_path: Path) -> None:
    (job,), _ = jobs_of(tmp_path / "t.trace", PUBLISHED)
    assert (job.submitted_at_s, job.spec.kind, job.spec.total_steps) == (36.5, "LM (batch size 40)", 121)
    assert (job.spec.scale_factor, job.spec.weight, job.spec.argv) == (2, 1.0, ())


def test_a_csv_of_durations_gives_jobs_of_one_step_a_second(tmp_path: Path) -> None:
    text = "submit_time_s,duration_s,num_gpus,user,deadline_s\n0,60,1,ann,\n5,90.5,16,bob,200\n"
    (first, second), _ = jobs_of(tmp_path / "t.csv", text)
    assert (first.spec.kind, first.spec.total_steps, first.spec.user) == (UNIT_KIND, 60, "ann")
    assert (second.spec.total_steps, second.spec.scale_factor, second.spec.deadline_at_s) == (91, 16, 200.0)
    assert first.spec.deadline_at_s is None
    assert UnitRates()[UNIT_KIND, 16, "any"] == 1.0


def test_a_slurm_export_is_sorted_and_only_jobs_that_held_gpus_are_kept(tmp_path: Path) -> None:
    text = "\n".join(
        [
            SACCT,
            "7|ann|2026-01-02T00:01:00|1-00:00:10|billing=8,gres/gpu:a100=2,gres/gpu=2,mem=64G|COMPLETED",
            "7.batch||2026-01-02T00:01:00|1-00:00:10|gres/gpu=2|COMPLETED",
            "5|bob|2026-01-02T00:00:00|00:10:00|cpu=4,gres/gpu:v100=1|FAILED",
            "6|bob|2026-01-02T00:00:30|00:10:00|cpu=4|COMPLETED",
            "8|bob|2026-01-02T00:02:00|00:00:00|gres/gpu=1|CANCELLED",
        ]
    )
    jobs, _ = jobs_of(tmp_path / "export.txt", text)
    assert [(j.spec.name, j.submitted_at_s, j.spec.total_steps, j.spec.scale_factor) for j in jobs] == [
        ("5", 0.0, 600, 1),
        ("7", 60.0, 86_410, 2),
    ]


def test_the_services_own_history_is_read_back(tmp_path: Path) -> None:
    row = {
        "submitted_at_s": 3.5,
        "kind": "mlp-b256",
        "user": "ann",
        "tier": "gold",
        "total_steps": 500,
        "scale_factor": 2,
        "weight": 2.0,
        "deadline_at_s": 99.0,
        "throughput_steps_per_s": {"fast": 7.5},
    }
    (job,), _ = jobs_of(tmp_path / "h.jsonl", json.dumps(row) + "\n")
    assert (job.submitted_at_s, job.spec.tier, job.spec.deadline_at_s) == (3.5, "gold", 99.0)
    assert job.spec.throughput_steps_per_s == {"fast": 7.5}


FIRST_LINE = {
    "cluster": {
        "nodes": [{"name": "n0", "cpu_cores": 8, "memory_bytes": 64}],
        "workers": [{"id": "w0", "node": "n0", "accelerator_type": "fast", "price_usd_per_hour": 2.5}],
    },
    "tiers": [{"name": "gold", "weight": 2.0, "objective": "fifo", "cap": 0.5}],
}


def test_a_history_says_which_cluster_and_tiers_its_jobs_had(tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl"
    job = {"submitted_at_s": 0, "kind": "mlp", "total_steps": 5}
    (read,), _ = jobs_of(path, f"{json.dumps(FIRST_LINE)}\n{json.dumps(job)}\n")
    surrounding = surroundings(path)
    assert read.spec.kind == "mlp" and surrounding.cluster is not None
    assert surrounding.cluster.nodes == (Node(name="n0", cpu_cores=8, memory_bytes=64),)
    assert surrounding.cluster.workers[0].price_usd_per_hour == 2.5
    assert surrounding.tiers == (Tier(name="gold", weight=2.0, objective="fifo", cap=0.5),)


@pytest.mark.parametrize("text", ["", "submit_time_s,duration_s,num_gpus\n", '{"submitted_at_s": 0, "kind": "mlp"}\n'])
def test_other_traces_say_nothing_of_a_cluster(tmp_path: Path, text: str) -> None:
    (path := tmp_path / "t").write_text(text)
    assert surroundings(path) == Surroundings()


def test_a_first_line_that_no_cluster_is_like_is_refused(tmp_path: Path) -> None:
    (path := tmp_path / "h.jsonl").write_text(json.dumps({"cluster": {"workers": [{"name": "w0"}]}}))
    with pytest.raises(InvalidRequest, match=r"h.jsonl, line 1: its cluster or tiers cannot be read"):
        surroundings(path)


# --- lines that cannot be used ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (PUBLISHED + "\n" + PUBLISHED[:20], r"line 2: has 2 columns between tabs; wanted 10"),
        (PUBLISHED.replace("120.25", "many"), r"line 1: total steps is 'many'; give a number"),
        (PUBLISHED.replace("\t2\t", "\t1.5\t"), r"line 1: scale factor is 1.5; give a whole number"),
        (PUBLISHED.replace("36.5", "nan"), r"line 1: arrival is nan; give a finite number"),
        ("submit_time_s,duration_s,num_gpus\n0,60,0\n", r"line 2: num_gpus is 0; give a finite number of at least 1"),
        ("submit_time_s,duration_s,num_gpus\n0,60\n", r"line 2: has 2 columns; the header has 3"),
        ("submit_time_s,duration_s\n0,60\n", r"line 1: has no column num_gpus"),
        (SACCT + "\n1|a|yesterday|00:00:10|gres/gpu=1|C", r"line 2: Submit is 'yesterday'; wanted an instant like"),
        (SACCT + "\n1|a|2026-01-02T00:00:00|10|gres/gpu=1|C", r"line 2: Elapsed is '10'; wanted \[days-\]hours"),
        ("JobID|Submit|AllocTRES\n", r"line 1: has no column ElapsedRaw or Elapsed"),
        ('{"kind": "x"\n', r"line 1: is no JSON"),
        ("hello\n", r"line 1: is none of history, sacct, published, csv"),
    ],
)
def test_a_line_that_cannot_be_used_is_named_with_the_reason(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        jobs_of(tmp_path / "t", text)


def test_lenient_reading_counts_what_it_skips(tmp_path: Path) -> None:
    text = "submit_time_s,duration_s,num_gpus\n0,60,1\n1,long,1\n2,60,1\n"
    jobs, skipped = jobs_of(tmp_path / "t.csv", text, is_lenient=True)
    assert [job.submitted_at_s for job in jobs] == [0.0, 2.0]
    assert skipped == ["line 3: duration_s is 'long'; give a number"]


def test_a_trace_out_of_order_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"job job-3: arrives at 1 s, before the one above it at 5 s"):
        jobs_of(tmp_path / "t.csv", "submit_time_s,duration_s,num_gpus\n5,60,1\n1,60,1\n")


def test_a_form_nobody_knows_is_refused_with_the_choices(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="published, csv, sacct, history"):
        jobs_of(tmp_path / "t", "x", "pbs")


def test_reading_is_lazy(tmp_path: Path) -> None:
    """The bad line at the end is reached only by who reads that far."""
    path = tmp_path / "t.trace"
    path.write_text(PUBLISHED + "\nbad\n", encoding="utf-8")
    assert next(read_trace(Lines(path))).spec.scale_factor == 2


# --- throughputs ------------------------------------------------------------------------------------------------


def test_a_throughput_table_keeps_spread_gangs_apart(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    content = {"v100": {"('LM', 2)": {"null": 3.0}}, "v100_unconsolidated": {"('LM', 2)": {"null": 1.0}}}
    path.write_text(json.dumps(content), encoding="utf-8")
    table = read_throughputs(path)
    assert table.rates == {("LM", 2, "v100"): 3.0}
    assert table.spread == {("LM", 2, "v100"): 1.0}
    assert (table.kinds, table.accelerator_types) == (("LM",), ("v100",))


def test_rates_of_gangs_that_share_workers_are_read_beside_those_alone(tmp_path: Path) -> None:
    """Zero means that the two do not fit together; a pair is of one scale factor."""
    path = tmp_path / "t.json"
    pairs = {"('A3C', 1)": [2.0, 1.5], "('LM', 1)": [0.0, 0.0], "('LM', 2)": [1.0, 1.0]}
    path.write_text(json.dumps({"v100": {"('LM', 1)": {"null": 3.0, **pairs}}}), encoding="utf-8")
    assert read_throughputs(path).colocated == {("LM", "A3C", 1, "v100"): 2.0}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"v100": {"(\'LM\', 1)": {"null": 3, "(\'LM\', 1)": [1]}}}', r"v100: .*LM.* is \[1\]; give two rates"),
        ('{"v100": {"(\'LM\', 1)": {"null": 3, "(\'LM\', 1)": [1, -1]}}}', r"is \[1, -1\]; give two rates"),
        ('{"v100": {"LM": {"null": 3}}}', "v100: key 'LM' is not"),
        ('{"v100": {"(\'LM\', 1)": {"null": -1}}}', '"null" is -1; give steps/s'),
        ("{", "line 1: is no JSON"),
    ],
)
def test_a_broken_throughput_table_is_named(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "t.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(InvalidRequest, match=message):
        read_throughputs(path)


def test_gangs_of_unknown_sizes_run_in_proportion_to_the_next_smaller() -> None:
    rates = ScaledRates(TABLE)
    assert rates["LM (batch size 5)", 3, "v100"] == pytest.approx(4.0 * 2 * 3 / 2)
    assert rates["LM (batch size 5)", 16, "k80"] == pytest.approx(16.0)
    assert rates.get(("unknown", 1, "v100"), 0.0) == 0.0


def test_jobs_without_a_kind_get_one_and_keep_their_duration_on_the_best_type(tmp_path: Path) -> None:
    bare, _ = jobs_of(tmp_path / "t.csv", "submit_time_s,duration_s,num_gpus\n0,1000,1\n1,1000,16\n")
    drawn = list(with_kinds(bare, TABLE, seed=3))
    assert drawn == list(with_kinds(bare, TABLE, seed=3))
    for job in drawn:
        best = ScaledRates(TABLE)[job.spec.kind, job.spec.scale_factor, "v100"]
        assert job.spec.total_steps / best == pytest.approx(1000, rel=0.01)


# --- generators -------------------------------------------------------------------------------------------------


@settings(max_examples=15)
@given(seed=st.integers(0, 1000), has_gangs=st.booleans())
def test_generated_workloads_are_ordered_runnable_and_the_same_for_a_seed(seed: int, has_gangs: bool) -> None:
    jobs = list(generators.published(40, TABLE, per_hour=5.0, seed=seed, has_gangs=has_gangs))
    assert jobs == list(generators.published(40, TABLE, per_hour=5.0, seed=seed, has_gangs=has_gangs))
    times = [job.submitted_at_s for job in jobs]
    assert times[0] == 0.0 and times == sorted(times)
    assert all((job.spec.kind, job.spec.scale_factor, "v100") in TABLE.rates for job in jobs)
    assert has_gangs or {job.spec.scale_factor for job in jobs} == {1}


def test_a_bursty_workload_comes_from_many_users_in_runs_of_one_kind() -> None:
    jobs = list(generators.bursty(400, TABLE, per_hour=20.0, seed=1))
    assert len(jobs) == 400 and jobs == list(generators.bursty(400, TABLE, per_hour=20.0, seed=1))
    assert [j.submitted_at_s for j in jobs] == sorted(j.submitted_at_s for j in jobs)
    assert len({job.spec.user for job in jobs}) >= 6
    same = sum(a.spec.kind == b.spec.kind and a.spec.user == b.spec.user for a, b in pairwise(jobs))
    assert same > 300
    assert 0.5 < len(jobs) / (jobs[-1].submitted_at_s / 3600) / 20.0 < 2.0


@pytest.mark.parametrize(
    ("name", "per_hour", "has_gangs"),
    [("small_single_seed0", 5.2 / 3, False), ("small_multiple_seed0", 2.6 / 3, True)],
)
def test_the_generator_reproduces_the_published_trace_field_by_field(
    data: Path, name: str, per_hour: float, has_gangs: bool
) -> None:
    table = read_throughputs(data / "gavel" / "simulation_throughputs.json")
    recorded = list(read_trace(Lines(data / "gavel" / f"{name}.trace")))
    drawn = list(generators.published(len(recorded), table, per_hour=per_hour, seed=0, has_gangs=has_gangs))
    assert [job.spec for job in drawn] == [job.spec for job in recorded]
    assert [job.submitted_at_s for job in drawn] == pytest.approx([job.submitted_at_s for job in recorded], abs=0.2)


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("gavel/max_min_fairness.trace", 96),
        ("gavel/static_multiple_300_seed0.trace", 300),
        ("philly_busiest_2weeks.csv", 26_960),
        ("itp2021_cluster02.csv", 5778),
        ("elasticflow_philly_vc103959.csv", 876),
    ],
)
def test_every_file_of_the_data_is_read_to_its_end(data: Path, name: str, count: int) -> None:
    jobs = list(read_trace(Lines(data / name)))
    assert len(jobs) == count
    assert "elasticflow" not in name or all(job.spec.deadline_at_s for job in islice(jobs, 1, None))
