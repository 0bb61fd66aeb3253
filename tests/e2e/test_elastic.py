"""An elastic job with real processes: its gang grows while it trains, and the training is that of one fixed gang."""

import io
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gavel.client import Client, Job
from gavel.demo.service import ServiceProcess, wait_until
from workloads.training.elastic import CURVE_FILE

LIMIT_S = 120
STEPS, BATCH = 800, 48
SETTINGS = {"GAVEL_ROUND_DURATION_S": "2", "GAVEL_LEASE_GRACE_S": "2"}
PROGRAM = """
import json, time
import numpy as np
from gavel_runtime import job

data = np.random.default_rng(7)
features, truth = data.normal(size=(1000, 4)), np.array([1.0, -2.0, 0.5, 3.0])
labels = features @ truth + 0.1 * data.normal(size=1000)
weights, curve, sizes = np.zeros(4), [], []


def save(folder):
    (folder / "state.json").write_text(json.dumps([weights.tolist(), curve, sizes]))


def load(folder):
    global weights
    kept, curve[:], sizes[:] = json.loads((folder / "state.json").read_text())
    weights = np.array(kept)


def summed(own):
    return sum(np.frombuffer(each) for each in job.all_gather(own.tobytes()))


for step in job.steps(checkpoint=save, restore=load):
    total = np.zeros(5)
    for part in job.micro_batches(step, at_most=10):
        time.sleep(0.0008 * len(part.samples))
        rows = np.array(part.samples) % 1000
        error = features[rows] @ weights - labels[rows]
        total += part.weight * np.append(2 * features[rows].T @ error / len(rows), np.mean(error**2))
    total = summed(total)
    weights = weights - 0.02 * total[:4]
    curve.append(total[4])
    sizes.append(job.world_size)
    job.report(loss=total[4])
if job.is_rank_zero:
    (job.output_dir / "result.json").write_text(json.dumps([curve, sizes]))
"""


def fixed_curve() -> list[float]:
    """The losses of the same training in one process, whole batches at a time."""
    data = np.random.default_rng(7)
    features, truth = data.normal(size=(1000, 4)), np.array([1.0, -2.0, 0.5, 3.0])
    labels = features @ truth + 0.1 * data.normal(size=1000)
    weights, curve = np.zeros(4), []
    for step in range(STEPS):
        rows = np.arange(step * BATCH, (step + 1) * BATCH) % 1000
        error = features[rows] @ weights - labels[rows]
        curve.append(float(np.mean(error**2)))
        weights = weights - 0.02 * 2 * features[rows].T @ error / BATCH
    return curve


def result_of(client: Client, job: Job) -> tuple[list[float], list[int]]:
    curve, sizes = json.loads(b"".join(client.read_file(job["id"], "result.json")))
    return curve, sizes


@pytest.mark.full
@pytest.mark.timeout(300)
def test_a_gang_that_grows_trains_as_one_of_a_fixed_size(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    with ServiceProcess(tmp_path / "state", SETTINGS) as running, Client(running.url, running.operator_token) as client:
        assert wait_until(lambda: bool(client.cluster()["workers"]), LIMIT_S)
        program = [sys.executable, "-u", str(tmp_path / "train.py")]
        job = client.submit(argv=program, total_steps=STEPS, sizes=[2, 1], global_batch=BATCH)
        assert (job["sizes"], job["global_batch"], job["scale_factor"]) == ([1, 2], BATCH, 1)
        assert wait_until(lambda: client.job(job["id"])["scale_factor"] == 2, 60), client.job(job["id"])
        assert "of the sizes 1, 2" in client.explain(job["id"])["message"]
        done = client.wait(job["id"], timeout_s=LIMIT_S)
        assert (done["state"], done["steps_done"]) == ("COMPLETED", STEPS), (done["message"], done["log_tail"])
        curve, sizes = result_of(client, job)
    assert set(sizes) == {1, 2} and len(curve) == STEPS
    assert np.allclose(curve, fixed_curve(), rtol=1e-9, atol=1e-12)


@pytest.mark.full
@pytest.mark.timeout(300)
def test_updates_that_grow_with_the_noise_train_as_well_in_less_time(tmp_path: Path) -> None:
    """Of two jobs alike, one whose updates may grow: it makes far fewer of them, and its model is as good."""
    program = [sys.executable, "-u", "-m", "workloads.training.elastic", "--sample-ms", "0.1", "--update-ms", "8"]
    wanted: dict[str, Any] = {"argv": program, "total_steps": 2500, "sizes": [1, 2], "global_batch": 8}
    with ServiceProcess(tmp_path / "state", SETTINGS) as running, Client(running.url, running.operator_token) as client:
        assert wait_until(lambda: bool(client.cluster()["workers"]), LIMIT_S)
        curves = []
        for largest in (None, 128):
            job = client.submit(**wanted, max_global_batch=largest)
            done = client.wait(job["id"], timeout_s=LIMIT_S)
            assert (done["state"], done["steps_done"]) == ("COMPLETED", 2500), (done["message"], done["log_tail"])
            curves.append(np.load(io.BytesIO(b"".join(client.read_file(job["id"], CURVE_FILE)))))
        grown = client.job(job["id"])["metrics"]
    same, fewer = curves
    assert len(same) == 2500 and len(fewer) < 1000
    assert grown["batch_size"] in (16, 32, 64, 128) and 0 < grown["statistical_efficiency"] <= 1
    start, end, larger_end = same[:20, 0].mean(), same[-200:, 0].mean(), fewer[-20:, 0].mean()
    assert larger_end - end < 0.1 * (start - end), (start, end, larger_end)
