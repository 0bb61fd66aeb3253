"""Which samples ranks take: the same in each step at every size, whole gangs of real processes included."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gavel_runtime._job import Job
from gavel_runtime._samples import copy_of, micro_batches
from gavel_runtime._setting import setting_from
from tests.workloads.gang import Gang

TRAIN = """
import json, os
from pathlib import Path
import numpy as np
from gavel_runtime import job

weight, curve = np.ones(3), []


def save(folder):
    (folder / "state.json").write_text(json.dumps([weight.tolist(), curve]))


def load(folder):
    global weight
    kept, curve[:] = json.loads((folder / "state.json").read_text())
    weight = np.array(kept)


for step in job.steps(checkpoint=save, restore=load):
    own = np.zeros(4)
    for part in job.micro_batches(step, at_most=3, model_parallel_size=job.plan.get("tensor", 1)):
        rows = np.array([np.sin([n, 2 * n, 3 * n]) for n in part.samples])
        error = rows @ weight - rows.sum(axis=1) * 2
        own += part.weight * np.append(2 * rows.T @ error / len(rows), np.mean(error**2))
    every = [np.frombuffer(each) for each in job.all_gather(own.tobytes())]
    total = sum(every[:: job.plan.get("tensor", 1)])  # of one rank of each copy
    weight = weight - 0.1 * total[:3]
    curve.append(float(total[3]))
if job.is_rank_zero:
    Path(os.environ["OUT"], "curve.json").write_text(json.dumps(curve))
"""


@given(st.integers(1, 200), st.integers(1, 40), st.integers(0, 10**9), st.none() | st.integers(1, 50))
def test_the_ranks_share_out_each_sample_of_a_step_once(batch: int, ranks: int, step: int, at_most: int | None) -> None:
    parts = [
        part
        for rank in range(ranks)
        for part in micro_batches(step * batch, batch, rank=rank, world_size=ranks, at_most=at_most)
    ]
    assert [number for part in parts for number in part.samples] == list(range(step * batch, (step + 1) * batch))
    assert sum(part.weight for part in parts) == pytest.approx(1.0)
    assert all(0 < len(part.samples) <= (at_most or batch) for part in parts)


@given(st.integers(1, 200), st.integers(1, 40))
def test_ranks_differ_by_one_sample_at_most(batch: int, ranks: int) -> None:
    own = [
        sum(len(part.samples) for part in micro_batches(0, batch, rank=rank, world_size=ranks, at_most=None))
        for rank in range(ranks)
    ]
    assert max(own) - min(own) <= 1


def test_without_a_global_batch_the_refusal_says_what_to_give(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GAVEL_GANG_DIR", raising=False)
    with pytest.raises(ValueError, match="global_batch=N"):
        list(Job().micro_batches(0))
    with pytest.raises(ValueError, match="take one at least"):
        list(Job().micro_batches(0, at_most=0, global_batch=8))
    assert [part.samples for part in Job().micro_batches(2, global_batch=8)] == [range(16, 24)]


def curve_of(folder: Path, *sizes: int, **environment: str) -> list[float]:
    """The losses of 12 steps in gangs of these sizes, one after another, each for the same number of steps."""
    steps, start, checkpoint = 12 // len(sizes), 0, None
    for generation, size in enumerate(sizes, start=1):
        gang = Gang(folder, generation=generation)
        is_last = generation == len(sizes)
        stop_step = "inf" if is_last else str(start + steps)
        gang.start(
            TRAIN,
            ranks=range(size),
            total=12,
            start=start,
            checkpoint=checkpoint,
            GAVEL_GLOBAL_BATCH="10",
            GAVEL_STOP_STEP=stop_step,
            **environment,
        )
        codes, outputs = gang.finish()
        assert codes == [0 if is_last else 75] * size, outputs
        start += steps
        checkpoint = gang.checkpoints / f"{generation}-{start}"
    curve: list[float] = json.loads((folder / "curve.json").read_text())
    return curve


def test_gangs_of_changing_sizes_train_as_one_of_a_fixed_size(tmp_path: Path) -> None:
    fixed = curve_of(tmp_path / "fixed", 1)
    assert len(fixed) == 12 and fixed[-1] < fixed[0] / 2
    assert curve_of(tmp_path / "changing", 2, 1, 3) == pytest.approx(fixed, rel=1e-9)


def test_ranks_that_hold_one_copy_of_the_model_together_take_the_same_samples(tmp_path: Path) -> None:
    split = curve_of(tmp_path / "split", 4, 2, GAVEL_PLAN="tensor=2", GAVEL_PLAN_TENSOR="2")
    assert split == pytest.approx(curve_of(tmp_path / "fixed", 1), rel=1e-9)


def test_ranks_that_are_no_whole_number_of_copies_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [copy_of(rank, 6, 3) for rank in range(6)] == [(0, 2)] * 3 + [(1, 2)] * 3
    monkeypatch.delenv("GAVEL_GANG_DIR", raising=False)
    with pytest.raises(ValueError, match="model_parallel_size: 2 does not divide the 1 ranks"):
        Job().micro_batches(0, global_batch=8, model_parallel_size=2)


def test_a_program_sees_its_plan_in_a_gang_and_when_it_is_run_by_hand(tmp_path: Path) -> None:
    of_plan = {"GAVEL_PLAN": "wide", "GAVEL_PLAN_TENSOR": "2", "GAVEL_PLAN_PIPELINE_STAGES": "4"}
    by_hand = setting_from(of_plan)
    assert (by_hand.plan, by_hand.plan_parameters) == ("wide", {"tensor": 2, "pipeline_stages": 4})
    gang = {"GENERATION": "1", "RANK": "0", "WORLD_SIZE": "1", "GANG_DIR": str(tmp_path), "START_STEP": "0"}
    gang |= {"CHECKPOINT_DIR": str(tmp_path), "LEASE_EXPIRES_BOOTTIME_S": "1e9"}
    in_gang = setting_from({f"GAVEL_{name}": value for name, value in gang.items()} | of_plan)
    assert (in_gang.plan, in_gang.plan_parameters) == ("wide", {"tensor": 2, "pipeline_stages": 4})
    assert (Job().plan, Job().plan_name) == ({}, "")
