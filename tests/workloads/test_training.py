"""The training programs: their gradients are right, they learn, and they resume exactly."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.workloads.gang import Gang, until
from workloads.training.cnn import Convolutional
from workloads.training.loop import STATE_FILE, Model, Trainer, Vector
from workloads.training.mlp import Perceptron
from workloads.training.recsys import Factorisation
from workloads.training.rl import GOAL, SIDE, GridWorld, move
from workloads.training.rnn import Recurrent

SUPERVISED = [Perceptron, Recurrent, Convolutional, Factorisation]
CHECKPOINT_BYTES_MAX = 8 << 20


@pytest.mark.parametrize("build", SUPERVISED)
def test_gradients_agree_with_finite_differences(build: Callable[[int], Model]) -> None:
    """Along the gradient itself, the loss changes by the gradient's length."""
    model = build(3)
    parameters, gradients, unused = Vector(model.shapes), Vector(model.shapes), Vector(model.shapes)
    model.initialise(parameters, np.random.default_rng(3))
    rows = np.arange(32)
    model.loss_and_gradients(parameters, gradients, rows)
    start, length = parameters.flat.copy(), float(np.linalg.norm(gradients.flat))
    distance = min(0.05, 0.01 / length)

    def loss_at(offset: float) -> float:
        parameters.flat[:] = start + np.float32(offset / length) * gradients.flat
        return model.loss_and_gradients(parameters, unused, rows)

    slope = (loss_at(distance) - loss_at(-distance)) / (2 * distance)
    assert slope == pytest.approx(length, rel=0.03)


@pytest.mark.small("Factorisation-2048-80-0.9")
@pytest.mark.parametrize(
    ("build", "batch_size", "steps", "factor"),
    [
        (Perceptron, 32, 30, 0.6),
        (Recurrent, 8, 60, 0.7),
        (Convolutional, 8, 80, 0.8),
        (Factorisation, 2048, 80, 0.9),
        (GridWorld, 16, 300, 0.98),
    ],
)
def test_the_loss_goes_down(build: Callable[[int], Model], batch_size: int, steps: int, factor: float) -> None:
    trainer = Trainer(build(0), batch_size=batch_size, seed=0)
    losses = [trainer.step(step) for step in range(steps)]
    tenth = steps // 10
    assert np.mean(losses[-tenth:]) < factor * np.mean(losses[:tenth])


@pytest.mark.small("Convolutional", "Factorisation")
@pytest.mark.parametrize("build", [*SUPERVISED, GridWorld])
def test_a_restored_trainer_goes_on_with_the_same_bits(build: Callable[[int], Model], tmp_path: Path) -> None:
    whole, first, second = (Trainer(build(5), batch_size=8, seed=5) for _ in range(3))
    for step in range(6):
        whole.step(step)
    for step in range(3):
        first.step(step)
    first.save(tmp_path)
    assert (tmp_path / STATE_FILE).stat().st_size < CHECKPOINT_BYTES_MAX
    second.load(tmp_path)
    for step in range(3, 6):
        second.step(step)
    assert second.parameters.flat.tobytes() == whole.parameters.flat.tobytes()


def final_bytes(gang: Gang, total: int) -> bytes:
    with np.load(gang.checkpoints / f"{gang.generation}-{total}" / STATE_FILE) as state:
        return bytes(state["parameters"].tobytes() + state["velocity"].tobytes())


PROGRAM = ("-m", "workloads.training.rnn", "--batch-size", "4")


@pytest.mark.full
@pytest.mark.parametrize("world_size", [1, 2])
def test_an_interrupted_gang_ends_with_the_same_bits_as_one_that_was_not(tmp_path: Path, world_size: int) -> None:
    ranks = range(world_size)
    whole, first, second = (
        Gang(tmp_path / name, generation=generation) for generation, name in enumerate(("a", "b", "b"), start=1)
    )
    try:
        first.start(*PROGRAM, total=1_000_000, ranks=ranks)
        until(lambda: any(report["steps"] for report in first.reports()))
        first.lease(600, stop=True)
        codes, outputs = first.finish()
        assert codes == [75] * world_size, outputs
        done = int(first.reports()[-1]["step"])
        total = done + 200
        stopped = first.checkpoints / f"2-{done}"
        second.start(*PROGRAM, total=total, ranks=ranks, start=done, checkpoint=stopped)
        whole.start(*PROGRAM, total=total, ranks=ranks)
        assert second.finish()[0] == whole.finish()[0] == [0] * world_size
        assert final_bytes(second, total) == final_bytes(whole, total)
        assert second.reports()[-1]["metrics"]["loss"] == whole.reports()[-1]["metrics"]["loss"]
    finally:
        for gang in (whole, first, second):
            gang.stop()


def test_more_ranks_train_the_same_model(tmp_path: Path) -> None:
    """Not the same bits, since sums are grouped otherwise; the same parameters but for rounding."""
    gangs = [Gang(tmp_path / str(ranks)).start(*PROGRAM, total=20, ranks=range(ranks)) for ranks in (1, 3)]
    try:
        assert [gang.finish()[0] for gang in gangs] == [[0], [0, 0, 0]]
        alone, together = (np.frombuffer(final_bytes(gang, 20), dtype=np.float32) for gang in gangs)
        np.testing.assert_allclose(together, alone, atol=1e-4)
    finally:
        for gang in gangs:
            gang.stop()


def test_a_batch_too_small_for_its_gang_is_refused(tmp_path: Path) -> None:
    gang = Gang(tmp_path).start("-m", "workloads.training.rl", "--batch-size", "1", ranks=range(2))
    codes, outputs = gang.finish()
    assert codes == [1, 1]
    assert "--batch-size: 1 examples are too few for a gang of 2" in outputs[0]


def test_the_grid_has_walls() -> None:
    assert [move(0, action) for action in range(4)] == [1, SIDE, 0, 0]
    assert [move(GOAL, action) for action in range(4)] == [GOAL, GOAL, GOAL - 1, GOAL - SIDE]
