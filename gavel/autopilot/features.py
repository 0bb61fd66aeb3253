"""The features of a situation that the simulator's error may hang on, as numbers around 0 to 10."""

from collections.abc import Sequence

import numpy as np

from gavel.autopilot.futures import HISTORY, Arrival
from gavel.simulator.active import Active, ActiveState
from gavel.types import SECONDS_PER_HOUR, FloatArray

NAMES = (
    "constant",
    "ln(1 + arrivals an hour)",
    "ln(1 + jobs)",
    "demand over workers",
    "ln(1 + hours left), median",
    "ln(1 + hours left), spread",
    "ln(workers), spread",
)
"""What each feature is, for people."""
COUNT = len(NAMES)


def features(state: ActiveState, history: Sequence[Arrival], workers: int) -> FloatArray:
    """Return the features, (COUNT,), in the order of NAMES."""
    active = Active.of(state)
    left_s = _left_s(active)
    sizes = active.scale_factor.astype(float)
    logs = np.log1p(left_s / SECONDS_PER_HOUR) if len(left_s) else np.zeros(1)
    return np.array(
        [
            1.0,
            ln_rate(history),
            np.log1p(len(left_s)),
            float(sizes.sum()) / max(1, workers),
            float(np.median(logs)),
            float(logs.std()),
            float(np.log(sizes).std()) if len(sizes) else 0.0,
        ]
    )


def ln_rate(history: Sequence[Arrival]) -> float:
    """Return ln(1 + arrivals an hour) over the last arrivals; 0 where there are too few."""
    last = history[-HISTORY:]
    span_s = last[-1].job.submitted_at_s - last[0].job.submitted_at_s if last else 0.0
    return float(np.log1p(len(last) * SECONDS_PER_HOUR / span_s)) if span_s > 0 else 0.0


def _left_s(active: Active) -> FloatArray:
    if not active.jobs:
        return np.zeros(0)
    stated = np.maximum(active.stated_steps - active.steps_done, 1.0)
    return np.asarray(stated / active.fastest_rate)
