"""Space sharing: problems in which jobs may also run packed, two gangs on the same workers (Gavel, section 3.1)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from gavel.errors import InvalidProblem
from gavel.policies.measures import rate_alone
from gavel.policies.programs.validate import check_pair_rates
from gavel.types import AllocationProblem, FloatArray, IntArray, JobId, PairRates

MOST_NAMED_PAIRS = 200_000  # beyond that a program over them would need minutes and gigabytes
FEW_PAIRS = 5_000  # that a program takes a second or two for, as many as 100 jobs make

NamedRates = Mapping[tuple[JobId, JobId], Sequence[Sequence[float]] | FloatArray]


def with_pairs(problem: AllocationProblem, pair_rates: NamedRates | PairRates) -> AllocationProblem:
    """`problem` in which jobs may also run packed, two gangs on the same workers (Gavel, section 3.1: space sharing).

    Either pair by pair, for any policy: `pair_rates[a, b]` (2, types) are the measured steps per second of job a and
    of job b beside each other. Or kind by kind, for as many jobs as there are: a `PairRates`, which some policies, such
    as max-min fairness, take as it is, and `named_pairs` turns into pairs for the others. A type on which one of two
    jobs makes no progress, packed or alone, is closed to their pair. Both gangs have the same scale factor; other jobs
    may have any.

    Raises InvalidProblem for a pair that cannot be, naming it.
    """
    if isinstance(pair_rates, PairRates):
        by_kind = replace(problem, pair_rates=pair_rates)
        check_pair_rates(by_kind)
        return by_kind
    index = {job_id: row for row, job_id in enumerate(problem.job_ids)}
    for pair in pair_rates:
        _check_pair(problem, index, pair)
    pairs = tuple((index[first], index[second]) for first, second in pair_rates)
    shape = (len(pairs), 2, len(problem.accelerator_types))
    measured = np.asarray([np.asarray(rates, dtype=float) for rates in pair_rates.values()]).reshape(shape)
    alone = rate_alone(problem)[np.asarray(pairs, dtype=np.int64).reshape(-1, 2)] > 0
    return replace(
        problem,
        combinations=problem.combinations + pairs,
        throughput_steps_per_s=np.concatenate([problem.throughput_steps_per_s, measured * alone]),
    )


def named_pairs(problem: AllocationProblem, among: Iterable[tuple[JobId, ...]] | None = None) -> AllocationProblem:
    """`problem` with its rates by kind written out as combinations of two named jobs, for any policy and any measure.

    The pairs of two in `among`, such as an allocation's combinations, whose rows are then those of the problem; else
    every pair that can run. Raises InvalidProblem for more than MOST_NAMED_PAIRS of these.
    """
    rates = problem.pair_rates
    if rates is None:
        return problem
    pairs = _that_can_run(problem, rates) if among is None else _among(problem, among)
    members = pairs.tolist()
    return replace(
        problem,
        pair_rates=None,
        combinations=problem.combinations + tuple((first, second) for first, second in members),
        throughput_steps_per_s=np.concatenate([problem.throughput_steps_per_s, rates_of_pairs(problem, rates, pairs)]),
    )


def can_be_named(problem: AllocationProblem) -> bool:
    """Whether its pairs by kind are few enough to be written out by job."""
    return problem.pair_rates is None or _most_pairs(problem.pair_rates) <= MOST_NAMED_PAIRS


def with_few_pairs(problem: AllocationProblem) -> AllocationProblem:
    """`problem`, without its pairs by kind where they are too many for a program that has to answer within a round."""
    if problem.pair_rates is None or _most_pairs(problem.pair_rates) <= FEW_PAIRS:
        return problem
    return replace(problem, pair_rates=None)


def _most_pairs(rates: PairRates) -> int:
    packable = int((rates.kind_of_job >= 0).sum())
    return packable * (packable - 1) // 2


def rates_of_pairs(problem: AllocationProblem, rates: PairRates, pairs: IntArray) -> FloatArray:
    """Steps per second of both jobs of each of the `pairs` (p, 2), (p, 2, types); 0 where either cannot run."""
    kinds = rates.kind_of_job[pairs]
    colocated = np.stack(
        [rates.steps_per_s[kinds[:, 0], kinds[:, 1]], rates.steps_per_s[kinds[:, 1], kinds[:, 0]]], axis=1
    )
    alone = rate_alone(problem)[pairs] > 0
    is_estimated = np.asarray((kinds >= 0).all(axis=1))[:, None] & alone.all(axis=1) & (colocated > 0).all(axis=1)
    both: FloatArray = colocated * is_estimated[:, None, :]
    return both


def _that_can_run(problem: AllocationProblem, rates: PairRates) -> IntArray:
    packable = np.flatnonzero(rates.kind_of_job >= 0)
    if not can_be_named(problem):
        most, fix = f"most: {MOST_NAMED_PAIRS}", "give max_min_fairness, which needs no names, or fewer jobs"
        raise InvalidProblem("pair_rates", f"makes up to {_most_pairs(rates)} pairs of jobs, {most}; {fix}")
    first, second = np.triu_indices(len(packable), 1)
    pairs = np.column_stack([packable[first], packable[second]])
    can_run = rates_of_pairs(problem, rates, pairs).any(axis=(1, 2))
    some: IntArray = pairs[can_run]
    return some


def _among(problem: AllocationProblem, names: Iterable[tuple[JobId, ...]]) -> IntArray:
    index = {job_id: row for row, job_id in enumerate(problem.job_ids)}
    return np.asarray([[index[job_id] for job_id in pair] for pair in names if len(pair) > 1], np.int64).reshape(-1, 2)


def _check_pair(problem: AllocationProblem, index: Mapping[JobId, int], pair: tuple[JobId, JobId]) -> None:
    where = f"pair_rates[{'+'.join(pair)}]"
    for job_id in pair:
        if job_id not in index:
            raise InvalidProblem(where, f"there is no job {job_id}; pair jobs of the problem")
    first, second = (int(problem.scale_factor[index[job_id]]) for job_id in pair)
    if first != second:
        raise InvalidProblem(where, f"packs gangs of {first} and of {second} workers; pack gangs of one scale factor")
