"""Finish-time fairness rho: how much later a job ends than with its own slice of the cluster.

    rho = (time since submission + time left) / (t_iso + R / T_iso),   D = time since submission - t_iso
    T_iso = sum_j T_j X_j,  X_j = (f N_j / s) / max(1, sum_k f N_k / s) over the types k that the job can use, else 0
    T_iso = max { sum_c x_c T_c : x >= 0, sum_c x_c <= 1, sum_{c of j} n_c x_c <= f N_j } for an elastic job

T_j: steps/s on type j, N_j: its workers, s: scale factor, R: steps left, t_iso: what the done steps would have taken at
T_iso. The slice f is 1/n where n jobs may be served. An elastic job has a choice of configurations c, each a type and a
number of workers n_c, and is at least as fast as a rigid job of each of its sizes. Themis (NSDI '20), section 3, on
several accelerator types as in Gavel (OSDI '20), section 4.2. The policy, the accounting and the simulator all ask
here; docs/policies.md explains.
"""

import math

import numpy as np

from gavel.types import BoolArray, Configurations, FloatArray, IntArray

LATE_RHO = 1.25  # from which on a job is late, where nothing else is stated


def slice_of_each_type(usable: BoolArray, workers: IntArray, scale_factor: IntArray, share: FloatArray) -> FloatArray:
    """Return the part of its time that each job spends on each type with a slice of the cluster to itself, (n, m).

    `usable` (n, m): where each job can run; `workers` (m,); `scale_factor` (n,); `share` (n,): the fraction of every
    type that a job has. Rows sum to at most 1: what a job cannot fill is not given to it.
    """
    fractions = usable * (share / scale_factor)[:, None] * workers
    limited: FloatArray = fractions / np.maximum(1.0, fractions.sum(axis=1, keepdims=True))
    return limited


def isolated_rate(
    rates: FloatArray,
    workers: IntArray,
    scale_factor: IntArray,
    share: FloatArray,
    configurations: Configurations | None = None,
) -> FloatArray:
    """Return T_iso of each job, (n,), in steps per second; 0 for one that can run nowhere.

    `rates` (n, m): steps per second of the whole gang on each type, 0 where it cannot run; the rest as above.
    `configurations`: those of the elastic jobs among the n; None: all are rigid.
    """
    together: FloatArray = (rates * slice_of_each_type(rates > 0, workers, scale_factor, share)).sum(axis=1)
    if configurations is not None:
        jobs = configurations.jobs
        together[jobs] = _over_sizes(configurations.steps_per_s, configurations.sizes, workers, share[jobs])
    return together


def _over_sizes(speed: FloatArray, sizes: IntArray, workers: IntArray, share: FloatArray) -> FloatArray:
    """T_iso of e elastic jobs, (e,): `speed` (e, m, k) in k `sizes` (k,) on m types with `workers` (m,).

    On one type the most steps of so much time are a concave curve through the corners (f N / n, f N T_n / n): a slice
    that is spent in size n alone. Its pieces of all types, the steepest first, fill the time.
    """
    pieces = _pieces(np.where(sizes <= workers[:, None], speed, 0.0), sizes)
    slice_of = (share[:, None] * workers)[:, :, None]
    longest, slopes = ((slice_of * pieces[0]).reshape(len(speed), -1), pieces[1].reshape(len(speed), -1))
    order = np.argsort(-slopes, axis=1, kind="stable")
    length = np.take_along_axis(longest, order, axis=1)
    before = np.cumsum(length, axis=1) - length
    spent = np.clip(1.0 - before, 0.0, length)
    most: FloatArray = (spent * np.take_along_axis(slopes, order, axis=1)).sum(axis=1)
    return most


def _pieces(speed: FloatArray, sizes: IntArray) -> tuple[FloatArray, FloatArray]:
    """Time and slope of the pieces of each type's curve, (e, m, k), for a slice of one worker; slopes fall, then 0."""
    time = np.where(speed > 0, 1.0 / np.maximum(1, sizes), 0.0)
    steps = speed * time
    lengths, slopes = np.zeros(speed.shape), np.zeros(speed.shape)
    here = there = np.zeros(speed.shape[:2])
    for piece in range(speed.shape[2]):
        longer = time - here[:, :, None]
        with np.errstate(divide="ignore", invalid="ignore"):
            slope = np.where(longer > 0, (steps - there[:, :, None]) / longer, 0.0)
        corner = slope.argmax(axis=2)[:, :, None]
        slopes[:, :, piece] = np.take_along_axis(slope, corner, axis=2)[:, :, 0]
        rises = slopes[:, :, piece] > 0
        lengths[:, :, piece] = np.where(rises, np.take_along_axis(longer, corner, axis=2)[:, :, 0], 0.0)
        here = np.where(rises, np.take_along_axis(time, corner, axis=2)[:, :, 0], here)
        there = np.where(rises, np.take_along_axis(steps, corner, axis=2)[:, :, 0], there)
    return lengths, slopes


def finish_time_fairness(elapsed_s: float, isolated_s: float) -> float | None:
    """Return rho of a job after `elapsed_s`, or None while nothing is known of its isolated time."""
    if isolated_s <= 0:
        return None
    rho = elapsed_s / isolated_s
    return rho if math.isfinite(rho) else None


def is_late(deficit_s: FloatArray, isolated_s: FloatArray, rho_limit: float = LATE_RHO) -> BoolArray:
    """Return which jobs reach a rho of `rho_limit` even at their isolated rates from now on, (n,).

    `deficit_s` (n,) is D; `isolated_s` (n,), t_iso + R / T_iso: a job for which that is infinite is not late.
    """
    late: BoolArray = (deficit_s >= (rho_limit - 1) * isolated_s) & np.isfinite(isolated_s)
    return late


def deficit_s(elapsed_s: float, isolated_s: float) -> float | None:
    """Return D, how far a job is behind its isolated share after `elapsed_s`; negative: ahead. None if not finite."""
    behind_s = elapsed_s - isolated_s
    return behind_s if math.isfinite(behind_s) else None
