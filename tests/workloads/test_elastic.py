"""The program of the demo of elastic jobs: its gradient is that of its loss."""

from pathlib import Path

import numpy as np
import pytest

from workloads.training.elastic import AT_MOST, Regression, Run


def test_its_gradient_is_that_of_its_mean_loss() -> None:
    model, samples, by = Regression(seed=3), range(10, 26), 1e-6
    gradient = model.gradient_and_loss(samples)[:-1]
    for place in (0, 57, len(gradient) - 1):
        losses = []
        for sign in (1, -1):
            model.weights[place] += sign * by
            losses.append(model.gradient_and_loss(samples)[-1])
            model.weights[place] -= sign * by
        assert gradient[place] == pytest.approx((losses[0] - losses[1]) / (2 * by), rel=1e-4, abs=1e-7)


def test_a_step_is_that_of_the_whole_batch_and_a_resumed_training_goes_on(tmp_path: Path) -> None:
    batch = 3 * AT_MOST
    run, resumed = Run(seed=1, sample_s=0.0, update_s=0.0), Run(seed=1, sample_s=0.0, update_s=0.0)
    whole = Regression(seed=1).gradient_and_loss(range(batch))[-1]
    assert run.step(0, batch) == pytest.approx(whole, rel=1e-12)
    run.save(tmp_path)
    resumed.load(tmp_path)
    losses = [each.step(step, batch) for step in range(1, 6) for each in (run, resumed)]
    assert losses[::2] == losses[1::2] and losses[-1] < whole
    assert np.array(resumed.curve).shape == (6, 3)
