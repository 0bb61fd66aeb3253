"""Decides in which region each job is at home, and when it moves to another one: docs/regions.md.

A job runs where its checkpoints and its data are. It moves if what it does there until it ends, or until the horizon,
is more than what it does where it is, by a margin, although it waits until all is copied; and if that gain is worth
more than the egress costs, by the same margin.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from gavel.config import RegionsSection
from gavel.types import SECONDS_PER_HOUR, BoolArray, FloatArray, IntArray
from gavel.types.regions import LinkCopies

NO_REGION = -1
STATED_GB = 1.0  # of copies that weigh as much as the stated bandwidth of a link
BITS_PER_GB = 8.0  # Gbit in a GB
MOVES_MAX = 64  # of one decision; the next one goes on


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RegionProblem:
    """n jobs at home in some of r regions, and the m accelerator types of all regions together.

    `home` is the index of a region, NO_REGION: the job is in none yet, or where nobody can reach it. Only jobs that
    `may_move` get another one. Of n jobs to r regions: `copy_s` seconds until all is there, `egress_usd` what that
    costs; 0 for the job's own region.
    """

    region_of_type: IntArray  # (m,)
    capacity_workers: IntArray  # (m,)
    price_usd_per_hour: FloatArray  # (m,)
    steps_per_s: FloatArray  # (n, m) of the gang, 0 where it cannot run or may not
    scale_factor: IntArray  # (n,)
    steps_left: FloatArray  # (n,)
    home: IntArray  # (n,)
    may_move: BoolArray  # (n,)
    copy_s: FloatArray  # (n, r)
    egress_usd: FloatArray  # (n, r)


def expected_gbit_s(stated_gbit_s: float, measured: LinkCopies | None) -> float:
    """Return the bandwidth to expect of a link, Gbit/s: that of its last copies, with the stated one as a prior.

    The prior counts as a copy of STATED_GB at the stated bandwidth.
    """
    if measured is None:
        return stated_gbit_s
    seconds = BITS_PER_GB * STATED_GB / stated_gbit_s + measured.seconds
    return BITS_PER_GB * (STATED_GB + measured.gigabytes) / seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveTerms:
    """What a move has to fulfil: it pays within `horizon_s` seconds, by `margin_fraction` more than it costs."""

    margin_fraction: float
    horizon_s: float

    @classmethod
    def of(cls, settings: RegionsSection) -> Self:
        """Return the terms that an operator has set."""
        return cls(margin_fraction=settings.margin_fraction, horizon_s=settings.horizon_s)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Homes:
    """The region of each of n jobs, (n,), and what the moves were decided by, as of the last look at each job.

    Of n jobs in r regions: `steps_per_s`, as many as an equal share of the region gives, and `is_faster`, `is_worth`:
    where a job would do more than at home by the margin, and where that is worth the egress.
    """

    region: IntArray  # (n,)
    steps_per_s: FloatArray  # (n, r)
    is_faster: BoolArray  # (n, r)
    is_worth: BoolArray  # (n, r)


HomeChoice = Callable[[RegionProblem, MoveTerms], Homes]
"""Chooses the homes of the jobs of a problem: `choose_homes` in the service, other rules in comparisons."""


def choose_homes(problem: RegionProblem, terms: MoveTerms) -> Homes:
    """Return the homes of all jobs: each new one where it ends soonest, then one move after another that pays.

    The move that gains most goes first. Each changes how much the others would gain, so all are looked at anew.
    """
    home, may_move = problem.home.copy(), problem.may_move.copy()
    for row in np.flatnonzero(may_move & (home == NO_REGION)).tolist():
        home[row] = _soonest(replace(problem, home=home), row)
        may_move[row] = False
    for _ in range(MOVES_MAX):
        now = replace(problem, home=home, may_move=may_move)
        looked = gains(now, terms)
        wanted = np.where(looked.is_faster & looked.is_worth, looked.gain_usd, 0.0)
        if not wanted.any():
            break
        row, target = divmod(int(wanted.argmax()), wanted.shape[1])
        home[row], may_move[row] = target, False
    return Homes(region=home, steps_per_s=looked.steps_per_s, is_faster=looked.is_faster, is_worth=looked.is_worth)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Gains:
    """What n jobs would gain in each of r regions; (n, r) each. Of one that cannot run at home any gain is enough."""

    steps_per_s: FloatArray
    gain_usd: FloatArray  # of accelerator time, at the price of the job's fastest type
    is_faster: BoolArray
    is_worth: BoolArray


def gains(problem: RegionProblem, terms: MoveTerms) -> Gains:
    """Return what the jobs that may move would gain by a move to each region."""
    rate = shared_rates(problem)
    is_home = problem.home[:, None] == np.arange(rate.shape[1])
    at_home = np.where(is_home, rate, 0.0).sum(axis=1)
    ends_in_s = np.divide(problem.steps_left, at_home, out=np.full(len(rate), np.inf), where=at_home > 0)
    span_s = np.minimum(ends_in_s, terms.horizon_s)
    stay = at_home * span_s
    go = rate * np.maximum(0.0, span_s[:, None] - problem.copy_s)
    is_stuck = (at_home == 0)[:, None] & (rate > 0)
    sooner = rate * terms.horizon_s / (1 + problem.copy_s / terms.horizon_s)
    may = problem.may_move[:, None] & ~is_home
    gain_usd = _usd(problem, np.maximum(0.0, np.where(is_stuck, sooner, go - stay[:, None])))
    more = 1 + terms.margin_fraction
    return Gains(
        steps_per_s=rate,
        gain_usd=gain_usd,
        is_faster=may & (is_stuck | (go > more * stay[:, None])),
        is_worth=may & (is_stuck | (gain_usd > more * problem.egress_usd)),
    )


def shared_rates(problem: RegionProblem) -> FloatArray:
    """Return the steps/s of each job in each region, (n, r), if all jobs there share its workers equally.

    Where there are more workers than the jobs need, the slowest are left idle. A job counts wherever it is looked at.
    """
    wanted = wanted_workers(problem)
    rates = np.zeros(problem.copy_s.shape)
    for region in range(len(rates.T)):
        columns = np.flatnonzero(problem.region_of_type == region)
        if not columns.size:
            continue
        own, workers = problem.steps_per_s[:, columns], problem.capacity_workers[columns]
        rates[:, region] = equal_share(own, workers, wanted[:, region])
    return rates


def equal_share(steps_per_s: FloatArray, workers: IntArray, wanted: FloatArray) -> FloatArray:
    """Return the steps/s, (n,), of each job where jobs that want so many workers (n,) share those of k types equally.

    `steps_per_s` (n, k): on each type; `workers` (k,). The slowest are idle where there are more than are wanted.
    """
    order = np.argsort(-steps_per_s, axis=1, kind="stable")
    there = workers[order]
    used = np.clip(wanted[:, None] - (there.cumsum(axis=1) - there), 0, there)
    rates: FloatArray = (used * np.take_along_axis(steps_per_s, order, axis=1)).sum(axis=1) / wanted
    return rates


def wanted_workers(problem: RegionProblem) -> FloatArray:
    """Return how many workers the jobs of each region want together, (n, r), once the job of the row is there, too."""
    size, regions = problem.scale_factor, np.arange(problem.copy_s.shape[1])
    is_home = problem.home[:, None] == regions
    wanted: FloatArray = (is_home * size[:, None]).sum(axis=0) + np.where(is_home, 0, size[:, None]).astype(np.float64)
    return wanted


def _soonest(problem: RegionProblem, row: int) -> int:
    """The region where the job would end soonest; NO_REGION if it can run in none."""
    rate = shared_rates(problem)[row]
    left_s = problem.copy_s[row] + np.divide(
        problem.steps_left[row], rate, out=np.full(len(rate), np.inf), where=rate > 0
    )
    return int(left_s.argmin()) if (rate > 0).any() else NO_REGION


def _usd(problem: RegionProblem, steps: FloatArray) -> FloatArray:
    """What so many steps (n, r) cost on the fastest type of each job."""
    if not problem.steps_per_s.size:
        return np.zeros_like(steps)
    fastest = problem.steps_per_s.argmax(axis=1)
    rate = problem.steps_per_s[np.arange(len(fastest)), fastest]
    a_second = problem.price_usd_per_hour[fastest] * problem.scale_factor / SECONDS_PER_HOUR
    usd: FloatArray = steps * np.divide(a_second, rate, out=np.zeros_like(rate), where=rate > 0)[:, None]
    return usd
