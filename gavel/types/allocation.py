"""The problem that a policy gets, and the allocation that it answers with."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from gavel.types.cluster import AcceleratorType
from gavel.types.jobs import JobId
from gavel.types.people import Tier

FloatArray = npt.NDArray[np.float64]

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

Combination = tuple[int, ...]
"""Indices into `AllocationProblem.job_ids`: one job, or a packed pair of one scale factor."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PairRates:
    """The rates of packed jobs by job kind instead of by pair, so that the size does not grow with the jobs.

    Any two jobs of kinds a and b may share their workers on type j; the one of kind a then makes
    `steps_per_s[a, b, j]`, the other `steps_per_s[b, a, j]`, 0 where they cannot. The jobs of a kind have one scale
    factor. Jobs with `kind_of_job` -1 have no such rates: they run alone.
    """

    kind_of_job: IntArray  # (n,) index into the kinds, or -1
    steps_per_s: FloatArray  # (kinds, kinds, m) of the whole gang


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Configurations:
    """How fast the e elastic jobs of a problem are in each configuration, a type and a size: docs/elastic.md.

    `steps_per_s` (e, m, k) is of the whole gang, 0 where a job cannot have the configuration; the
    isolated share of a job is that over all of these, whatever the size in which it is in the problem.
    """

    jobs: IntArray  # (e,) indices into `AllocationProblem.job_ids`, ascending
    sizes: IntArray  # (k,) workers, ascending
    steps_per_s: FloatArray  # (e, m, k)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AllocationProblem:
    """Everything that a policy may know. n jobs in order of arrival, c combinations, m accelerator types, k tiers.

    `throughput_steps_per_s[r, i, j]` is the rate of member i of combination r on type j, for the whole gang; 0 where it
    cannot run, and for the absent second member. `pair_rates` adds pairs that no combination names. `staying_workers`:
    those that jobs of each tier hold which no policy moves; neither these workers nor these jobs are in the problem.
    `configurations` says how fast elastic jobs are in other sizes: their isolated share follows from it. Where a policy
    is to share out sizes, too, a job has a combination for each, and `combination_workers` says what each holds.
    """

    now_s: float
    round_duration_s: float
    job_ids: tuple[JobId, ...]
    combinations: tuple[Combination, ...]
    accelerator_types: tuple[AcceleratorType, ...]
    throughput_steps_per_s: FloatArray  # (c, 2, m)
    capacity_workers: IntArray  # (m,)
    price_usd_per_hour: FloatArray  # (m,)
    scale_factor: IntArray  # (n,)
    weight: FloatArray  # (n,)
    steps_remaining: FloatArray  # (n,)
    age_s: FloatArray  # (n,) since submission
    attained_service_s: FloatArray  # (n,) accelerator-seconds held so far
    isolated_time_s: FloatArray  # (n,) what the done steps would have taken on a 1/n share
    deadline_at_s: FloatArray  # (n,) +inf: none
    tiers: tuple[Tier, ...]
    tier_of_job: IntArray  # (n,) index into tiers
    users: tuple[str, ...]  # (n,)
    cpu_cores: FloatArray = field(default_factory=lambda: np.zeros(0))  # (n,) of the whole gang; (0,): none stated
    memory_bytes: FloatArray = field(default_factory=lambda: np.zeros(0))  # (n,) of the whole gang; (0,): none stated
    length_error: FloatArray = field(
        default_factory=lambda: np.zeros(0)
    )  # (n,) deviation of log(time left); (0,): none
    cluster_cpu_cores: float = math.inf  # +inf: not known, no limit
    cluster_memory_bytes: float = math.inf
    staying_workers: FloatArray = field(default_factory=lambda: np.zeros((0, 0)))  # (k, m); (0, 0): none
    pair_rates: PairRates | None = None
    configurations: Configurations | None = None  # None: all jobs are rigid
    combination_workers: IntArray = field(
        default_factory=lambda: np.zeros(0, dtype=np.int64)
    )  # (c,) (0,): as many as the scale factor of the combination's jobs
    warm_start: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """What was checked of an allocation: the largest violation, and the distance to the dual bound if it is known."""

    primal_violation: float
    dual_gap: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fallback:
    """Why an allocation is not the policy's: the policy that failed, its error, and since when it has failed.

    `instead` names what is used: the last valid allocation, or the equal share.
    """

    policy: str
    error: str
    since_s: float
    instead: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Allocation:
    """The fractions of time of a policy's answer.

    `time_fraction[r, j]` in [0, 1]: combination r on accelerator type j; rows sum to <= 1.

    `notes` are remarks on single jobs, such as a deadline that cannot be met. `reads` names the fields of the problem
    that the answer depends on: it is kept while these are the same; None: all fields.
    """

    combinations: tuple[tuple[JobId, ...], ...]
    accelerator_types: tuple[AcceleratorType, ...]
    time_fraction: FloatArray  # (c, m)
    certificate: Certificate
    policy: str
    solver: str
    solve_time_s: float = 0.0
    is_fallback: bool = False
    fallback: Fallback | None = None
    notes: tuple[tuple[JobId, str], ...] = ()
    warm_start: Mapping[str, Any] = field(default_factory=dict)
    reads: tuple[str, ...] | None = None
