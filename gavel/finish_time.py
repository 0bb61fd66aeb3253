"""Finish-time fairness rho: how much later a job ends than with its own slice of the cluster.

    rho = (time since submission + time left) / (t_iso + R / T_iso),   D = time since submission - t_iso
    T_iso = sum_j T_j X_j,  X_j = (f N_j / s) / max(1, sum_k f N_k / s) over the types k that the job can use, else 0

T_j: steps/s on type j, N_j: its workers, s: scale factor, R: steps left, t_iso: what the done steps would have taken at
T_iso. The slice f is 1/n where n jobs may be served. Themis (NSDI '20), section 3, on several accelerator types as in
Gavel (OSDI '20), section 4.2. The policy, the accounting and the simulator all ask here; docs/policies.md explains.
"""

import math

import numpy as np

from gavel.types import BoolArray, FloatArray, IntArray

LATE_RHO = 1.25  # from which on a job is late, where nothing else is stated


def slice_of_each_type(usable: BoolArray, workers: IntArray, scale_factor: IntArray, share: FloatArray) -> FloatArray:
    """Return the part of its time that each job spends on each type with a slice of the cluster to itself, (n, m).

    `usable` (n, m): where each job can run; `workers` (m,); `scale_factor` (n,); `share` (n,): the fraction of every
    type that a job has. Rows sum to at most 1: what a job cannot fill is not given to it.
    """
    fractions = usable * (share / scale_factor)[:, None] * workers
    limited: FloatArray = fractions / np.maximum(1.0, fractions.sum(axis=1, keepdims=True))
    return limited


def isolated_rate(rates: FloatArray, workers: IntArray, scale_factor: IntArray, share: FloatArray) -> FloatArray:
    """Return T_iso of each job, (n,), in steps per second; 0 for one that can run nowhere.

    `rates` (n, m): steps per second of the whole gang on each type, 0 where it cannot run; the rest as above.
    """
    together: FloatArray = (rates * slice_of_each_type(rates > 0, workers, scale_factor, share)).sum(axis=1)
    return together


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
