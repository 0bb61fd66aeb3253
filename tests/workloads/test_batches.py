"""Batches that grow with the noise of gradients: the estimate, the choice, and gangs of real processes that resume."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gavel_runtime._batches import BETTER, PROMISING, Batches, State, state_of
from gavel_runtime._job import Job
from gavel_runtime._noise import Noise
from gavel_runtime._samples import micro_batches
from tests.workloads.gang import Gang
from workloads.training.elastic import EXAMPLES, Regression

BATCH = 8
# Where twice the batch brings less than PROMISING times the gain, no larger one brings more than this times it.
UNTRIED = 1 / (2 / PROMISING - 1)
POSITIVE = st.floats(1e-3, 1e3)
TRAIN = """
import json, os
from pathlib import Path
import numpy as np
from gavel_runtime import job

weight, updates = np.zeros(3), []


def save(folder):
    (folder / "state.json").write_text(json.dumps([weight.tolist(), updates]))


def load(folder):
    global weight
    kept, updates[:] = json.loads((folder / "state.json").read_text())
    weight = np.array(kept)


for step in job.steps(checkpoint=save, restore=load):
    own, samples = np.zeros(4), []
    for part in job.micro_batches(step, at_most=4):
        gradient = weight - 1 + np.mean([np.random.default_rng(n).standard_normal(3) for n in part.samples], axis=0) * 9
        own += part.weight * np.append(gradient, gradient @ gradient)
        samples += part.samples
    every = [json.loads(each) for each in job.all_gather(json.dumps([own.tolist(), samples]).encode())]
    total = np.sum([each for each, _ in every], axis=0)
    gain = job.gain(total[3], float(total[:3] @ total[:3]))
    weight = weight - 0.01 * gain * total[:3]
    updates.append([step, sum((each for _, each in every), []), gain])
if job.is_rank_zero:
    Path(os.environ["OUT"], "updates.json").write_text(json.dumps(updates))
"""


def trained(seed: int, rate: float, steps: int, largest: int | None, *, ranks: int = 1) -> tuple[float, int]:
    """The mean loss over all examples after so many steps, and the updates that they took; an update costs 1 + k/10."""
    model, batches, step, updates = Regression(seed), Batches(BATCH, largest), 0, 0
    while step < steps:
        samples = batches.samples(16, ranks) if batches.may_grow else (step * BATCH, BATCH, 16)
        first, count, at_most = samples
        parts = [
            part
            for rank in range(ranks)
            for part in micro_batches(first, count, rank=rank, world_size=ranks, at_most=at_most)
        ]
        gradients = [model.gradient_and_loss(part.samples)[:-1] for part in parts]
        whole = sum(part.weight * each for part, each in zip(parts, gradients, strict=True))
        squares = sum(part.weight * float(each @ each) for part, each in zip(parts, gradients, strict=True))
        model.weights -= rate * batches.gain(squares, float(whole @ whole)) * whole
        step += batches.update_done()
        batches.took(1 + 0.1 * count / BATCH)
        updates += 1
    return float(model.gradient_and_loss(range(EXAMPLES))[-1]), updates


def test_the_noise_of_gradients_is_found_from_the_norms_of_parts() -> None:
    draw = np.random.default_rng(0)
    truth, spread, noise = np.array([0.3, -0.2]), np.array([2.0, 1.0]), Noise()
    for _ in range(20_000):
        gradients = truth + spread * draw.standard_normal((12, 2))
        parts = [gradients[:5], gradients[5:9], gradients[9:]]
        squares = sum(len(part) / 12 * float(np.sum(part.mean(axis=0) ** 2)) for part in parts)
        whole = float(np.sum(gradients.mean(axis=0) ** 2))
        noise = noise.seen(squares=squares, whole=whole, samples=12, parts=3, batches=1)
    assert noise.variance / noise.weight == pytest.approx(5.0, rel=0.1)
    assert noise.square / noise.weight == pytest.approx(0.13, rel=0.5)


@given(POSITIVE, POSITIVE, st.integers(1, 512), st.integers(1, 64))
def test_a_gain_is_between_one_and_the_batches_of_the_update(
    variance: float, square: float, batch: int, batches: int
) -> None:
    gain = Noise(variance, square, 1.0).gain(batch, batches)
    assert 1.0 <= gain <= batches
    assert Noise(variance, 0.0, 1.0).gain(batch, batches) == pytest.approx(batches)
    assert Noise(0.0, square, 1.0).gain(batch, batches) == 1.0


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_gradient_that_overflows_tells_nothing(bad: float) -> None:
    noise = Noise(4.0, 1.0, 0.5)
    assert noise.seen(squares=bad, whole=1.0, samples=8, parts=2, batches=1) == noise
    assert noise.seen(squares=2.0, whole=bad, samples=8, parts=2, batches=1) == noise
    assert noise.seen(squares=2.0, whole=1.0, samples=8, parts=1, batches=1) == noise


@given(st.lists(st.tuples(POSITIVE, POSITIVE), min_size=1, max_size=60), st.integers(1, 3), st.integers(2, 16))
def test_samples_follow_one_another_and_steps_are_the_gains(
    norms: list[tuple[float, float]], ranks: int, most: int
) -> None:
    batches, next_sample, steps, gains = Batches(BATCH, BATCH * most), 0, 0, 0.0
    for squares, whole in norms:
        first, count, _ = batches.samples(4, ranks)
        assert first == next_sample and count % BATCH == 0 and BATCH <= count <= BATCH * most
        next_sample += count
        gains += batches.gain(squares, whole)
        brought = batches.update_done()
        assert brought >= 1
        steps += brought
        batches.took(1.0)
        assert state_of(batches.order()).text() == batches.order()
    assert steps == pytest.approx(gains, abs=1.0)


@example(fixed_s=29.0, batch_s=0.03125, variance=1.5, most=64)  # twice the batch is not tried, 16 times would be best
@given(st.floats(0.01, 100), st.floats(0.01, 10), POSITIVE, st.sampled_from([1, 2, 8, 64]))
def test_the_multiple_chosen_is_nearly_the_best(fixed_s: float, batch_s: float, variance: float, most: int) -> None:
    noise, batches = Noise(variance, 1.0, 1.0), Batches(BATCH, BATCH * most)
    if most == 1:
        assert not batches.may_grow
        return
    state = State(noise=noise)
    for _ in range(400):
        batches.follow(State(state_of(batches.order()).multiple, state.taken, 0.0, noise).text())
        batches.samples(None, 2)
        batches.gain(float("nan"), float("nan"))  # the noise stays what it is
        multiple = state_of(batches.order()).multiple
        batches.update_done()
        batches.took(fixed_s + batch_s * multiple)
    worth = {k: noise.gain(BATCH, k) / (fixed_s + batch_s * k) for k in (1, 2, 4, 8, 16, 32, 64) if k <= most}
    assert worth[state_of(batches.order()).multiple] >= max(worth.values()) / (UNTRIED * BETTER) - 1e-12


def test_a_program_that_asks_for_no_gain_keeps_its_batch() -> None:
    batches = Batches(BATCH, 64 * BATCH)
    for update in range(100):
        assert batches.samples(None, 2)[:2] == (update * BATCH, BATCH)
        assert batches.update_done() == 1
        batches.took(1.0)


def test_without_a_largest_batch_the_gain_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GAVEL_GANG_DIR", raising=False)
    assert Job().gain(3.0, 1.0) == 1.0


@pytest.mark.parametrize("ranks", [1, 3])
def test_as_much_is_learned_in_fewer_updates(ranks: int) -> None:
    loss, updates = trained(0, 0.01, 2000, None, ranks=ranks)
    larger_loss, fewer = trained(0, 0.01, 2000, 16 * BATCH, ranks=ranks)
    start = float(Regression(0).gradient_and_loss(range(EXAMPLES))[-1])
    assert updates == 2000 and fewer < 600
    assert abs(larger_loss - loss) < 0.05 * (start - loss)


def test_a_checkpoint_without_a_state_was_written_where_each_batch_was_a_step(tmp_path: Path) -> None:
    batches = Batches(BATCH, 4 * BATCH)
    batches.load(tmp_path, 30)
    assert batches.samples(None, 1)[:2] == (30 * BATCH, BATCH)
    (tmp_path / "gavel-batches.json").write_text('{"multiple": 64, "taken": 50, "left": 0.5, "noise": {}}')
    batches.load(tmp_path, 30)
    assert batches.samples(None, 1)[:2] == (50 * BATCH, 4 * BATCH)


@pytest.mark.parametrize(
    "spoilt",
    [
        "",
        "[]",
        '{"multiple": 0, "taken": 5, "left": 0.0, "noise": {}}',
        '{"multiple": 2, "taken": -5, "left": 0.0, "noise": {}}',
        '{"multiple": 2, "taken": 5, "left": NaN, "noise": {}}',
        '{"multiple": 2, "taken": 5, "left": 0.0, "noise": {"variance": "much"}}',
        '{"multiple": 2, "taken": 5, "left": 0.0, "noise": {"variance": 1.0, "square": 1.0, "weight": Infinity}}',
        '{"multiple": 1e999, "taken": 5, "left": 0.0, "noise": {}}',
    ],
)
def test_a_state_that_is_spoilt_counts_as_none(tmp_path: Path, spoilt: str) -> None:
    (tmp_path / "gavel-batches.json").write_text(spoilt)
    batches = Batches(BATCH, 4 * BATCH)
    batches.load(tmp_path, 30)
    assert batches.samples(None, 1)[:2] == (30 * BATCH, BATCH)
    assert batches.gain(2.0, 1.0) == 1.0 and batches.update_done() == 1


def test_gangs_of_changing_sizes_go_on_where_the_samples_and_the_noise_were(tmp_path: Path) -> None:
    start, checkpoint = 0, None
    for generation, size in enumerate((2, 1, 3), start=1):
        gang = Gang(tmp_path, generation=generation)
        is_last = generation == 3
        batch = {"GAVEL_GLOBAL_BATCH": "12", "GAVEL_MAX_GLOBAL_BATCH": "96"}
        stop = "inf" if is_last else str(150 * generation)
        gang.start(
            TRAIN, ranks=range(size), total=450, start=start, checkpoint=checkpoint, GAVEL_STOP_STEP=stop, **batch
        )
        codes, outputs = gang.finish()
        assert codes == [0 if is_last else 75] * size, outputs
        start = gang.reports()[-1]["step"]
        checkpoint = gang.checkpoints / f"{generation}-{start}"
    updates = json.loads((tmp_path / "updates.json").read_text())
    assert [number for _, samples, _ in updates for number in samples] == list(range(sum(len(u[1]) for u in updates)))
    assert len(updates) < 450 and max(len(samples) for _, samples, _ in updates) > 12
    assert start == 450 and all(step < 450 for step, _, _ in updates)
    assert gang.reports()[-1]["metrics"]["batch_size"] in (12, 24, 48, 96)
