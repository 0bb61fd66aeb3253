"""Checks an allocation problem before any policy looks at it; an error names the array and the job."""

import numpy as np

from gavel.errors import InvalidProblem
from gavel.policies import measures
from gavel.types import AllocationProblem, FloatArray, IntArray, PairRates

MOST_MEMBERS = 2
MANY_NAMES = 100_000

# array of one number per job -> smallest value it may hold
_LEAST_PER_JOB = {
    "scale_factor": 1.0,
    "weight": np.nextafter(0.0, 1.0),
    "steps_remaining": 0.0,
    "age_s": 0.0,
    "attained_service_s": 0.0,
    "isolated_time_s": 0.0,
}


def check_problem(problem: AllocationProblem, *, takes_pair_rates: bool = False) -> None:
    """Return if every policy can use `problem`; else raise InvalidProblem naming array, row and fix.

    Pair rates by kind are for the few policies that `takes_pair_rates`.
    """
    _check_lengths(problem)
    _check_combinations(problem)
    for name, least in _LEAST_PER_JOB.items():
        _check_numbers(name, getattr(problem, name), problem.job_ids, least)
    for name in ("capacity_workers", "price_usd_per_hour"):
        _check_numbers(name, getattr(problem, name), problem.accelerator_types, 0.0)
    _check_deadlines(problem)
    _check_cpu_and_memory(problem)
    _check_staying(problem)
    _check_rates(problem)
    if problem.pair_rates is not None and not takes_pair_rates:
        raise InvalidProblem("pair_rates", "this policy takes named pairs; give gavel.policies.named_pairs(problem)")
    check_pair_rates(problem)


def _check_lengths(problem: AllocationProblem) -> None:
    jobs, types = len(problem.job_ids), len(problem.accelerator_types)
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys((*_LEAST_PER_JOB, "deadline_at_s", "tier_of_job"), (jobs,))
    shapes |= {"capacity_workers": (types,), "price_usd_per_hour": (types,)}
    shapes["throughput_steps_per_s"] = (len(problem.combinations), MOST_MEMBERS, types)
    for name, wanted in shapes.items():
        shape = getattr(problem, name).shape
        if shape != wanted:
            raise InvalidProblem(name, f"has shape {shape}, wanted {wanted}")
    if len(problem.users) != jobs:
        raise InvalidProblem("users", f"names {len(problem.users)} users for {jobs} jobs; name one per job")
    if not _are_apart(problem.job_ids):
        raise InvalidProblem("job_ids", "names a job twice; name each once")


def _are_apart(names: tuple[str, ...]) -> bool:
    """Whether no name occurs twice; of many, sorting their hashes takes half as long as a set of them."""
    if len(names) > MANY_NAMES:
        hashes = np.sort(np.fromiter(map(hash, names), dtype=np.int64, count=len(names)))
        if (hashes[1:] != hashes[:-1]).all():
            return True
    return len(set(names)) == len(names)


def _check_combinations(problem: AllocationProblem) -> None:
    if not measures.is_unpacked(problem):
        _check_packed(problem)
    if measures.is_over_sizes(problem):
        _check_sizes(problem)
    _check_configurations(problem)
    tier = problem.tier_of_job
    wrong = np.flatnonzero((tier < 0) | (tier >= len(problem.tiers)))
    if wrong.size:
        where = f"tier_of_job[{problem.job_ids[wrong[0]]}]"
        raise InvalidProblem(where, f"is {tier[wrong[0]]}; give an index into the {len(problem.tiers)} tiers")


def _check_packed(problem: AllocationProblem) -> None:
    sizes = measures.members_in(problem)
    _check_members(problem, np.flatnonzero((sizes < 1) | (sizes > MOST_MEMBERS)))
    first, second = measures.member_of(problem).T
    is_job = (first >= 0) & (first < len(problem.job_ids)) & (second < len(problem.job_ids))
    _check_members(problem, np.flatnonzero(~is_job | (first == second) | ((sizes > 1) & (second < 0))))
    paired = np.flatnonzero(sizes > 1)
    unlike = paired[problem.scale_factor[first[paired]] != problem.scale_factor[second[paired]]]
    if unlike.size:
        raise InvalidProblem(f"combinations[{unlike[0]}]", "packs gangs of different scale factors; pack equal ones")


def _check_sizes(problem: AllocationProblem) -> None:
    """Each combination is one job in one size, and no job has a size twice."""
    workers, count = problem.combination_workers, len(problem.combinations)
    if workers.shape != (count,) or workers.min() < 1:
        raise InvalidProblem("combination_workers", f"give at least 1 for each of the {count} combinations")
    if problem.pair_rates is not None or (measures.members_in(problem) > 1).any():
        raise InvalidProblem("combination_workers", "says sizes of jobs that may be packed; give sizes or pairs")
    if len(set(zip(measures.member_of(problem)[:, 0].tolist(), workers.tolist(), strict=True))) < count:
        raise InvalidProblem("combination_workers", "has a size of a job twice; give each once")


def _check_configurations(problem: AllocationProblem) -> None:
    choice = problem.configurations
    if choice is None:
        return
    wanted = len(choice.jobs), len(problem.accelerator_types), len(choice.sizes)
    if choice.steps_per_s.shape != wanted:
        raise InvalidProblem("configurations", f"has speeds of shape {choice.steps_per_s.shape}, wanted {wanted}")
    if not _are_within(choice.steps_per_s, 0.0):
        raise InvalidProblem("configurations", "has a speed that is negative or not finite; give 0 where it cannot run")
    if (np.diff(choice.sizes) < 1).any() or choice.sizes.min(initial=1) < 1:
        raise InvalidProblem("configurations", "has sizes that do not rise from 1 or more; sort them, each once")
    if (np.diff(choice.jobs) < 1).any() or not _are_jobs(choice.jobs, problem):
        raise InvalidProblem(
            "configurations", "has jobs that are no ascending indices of jobs; name each elastic job once"
        )


def _are_jobs(jobs: IntArray, problem: AllocationProblem) -> bool:
    return bool(jobs.min(initial=0) >= 0 and jobs.max(initial=0) < max(1, len(problem.job_ids)))


def check_one_size(problem: AllocationProblem) -> None:
    """Return if no job has a choice of sizes; else raise InvalidProblem: for policies that count gangs of one size."""
    if measures.is_over_sizes(problem):
        raise InvalidProblem("combination_workers", "this policy takes jobs of one size each; leave it out")


def _check_members(problem: AllocationProblem, wrong: IntArray) -> None:
    for row in wrong:
        given = f"is {problem.combinations[row]}; give one or two different indices of jobs"
        raise InvalidProblem(f"combinations[{row}]", given)


def _check_numbers(name: str, values: FloatArray, rows: tuple[str, ...], least: float) -> None:
    if _are_within(values, least):
        return
    wrong = np.flatnonzero(~np.isfinite(values) | (values < least))
    if wrong.size:
        wanted = "positive" if 0 < least < 1 else f"at least {least:g}"
        raise InvalidProblem(f"{name}[{rows[wrong[0]]}]", f"is {values[wrong[0]]}; give a finite number, {wanted}")


def _are_within(values: FloatArray | IntArray, least: float) -> bool:
    """Whether all are finite and at least `least`: two passes in place of five, as nearly always all is well."""
    return not values.size or bool(values.min() >= least and values.max() < np.inf)


def _check_deadlines(problem: AllocationProblem) -> None:
    if problem.deadline_at_s.min(initial=np.inf) > -np.inf:
        return
    for row in np.flatnonzero(~(problem.deadline_at_s > -np.inf)):
        where = f"deadline_at_s[{problem.job_ids[row]}]"
        raise InvalidProblem(where, f"is {problem.deadline_at_s[row]}; give an instant, or +inf for none")


def _check_staying(problem: AllocationProblem) -> None:
    stay, wanted = problem.staying_workers, (len(problem.tiers), len(problem.accelerator_types))
    if stay.shape not in ((0, 0), wanted):
        raise InvalidProblem("staying_workers", f"has shape {stay.shape}, wanted {wanted}, or (0, 0) for none")
    if not _are_within(stay, 0.0):
        raise InvalidProblem("staying_workers", "has a number that is negative or not finite; give none below 0")


def _check_cpu_and_memory(problem: AllocationProblem) -> None:
    for name in ("cpu_cores", "memory_bytes", "length_error"):
        demand: FloatArray = getattr(problem, name)
        if demand.shape not in ((0,), (len(problem.job_ids),)):
            raise InvalidProblem(name, f"has shape {demand.shape}, wanted ({len(problem.job_ids)},), or (0,) for none")
        _check_numbers(name, demand, problem.job_ids, 0.0)
    for name in ("cluster_cpu_cores", "cluster_memory_bytes"):
        if not getattr(problem, name) > 0:
            raise InvalidProblem(name, f"is {getattr(problem, name)}; give a positive number, +inf if it is not known")


def _check_rates(problem: AllocationProblem) -> None:
    rates = problem.throughput_steps_per_s
    wrong = () if _are_within(rates, 0.0) else np.argwhere(~np.isfinite(rates) | (rates < 0))
    for row, member, column in wrong:
        members = problem.combinations[row]
        where = f"throughput_steps_per_s[{'+'.join(problem.job_ids[index] for index in members)}]"
        given = f"{rates[row, member, column]} on {problem.accelerator_types[column]}"
        raise InvalidProblem(where, f"is {given}; give finite steps per second, 0 where it cannot run")
    if not rates[:, 1].any():
        return
    first, second = measures.member_of(problem).T
    for row in np.flatnonzero((second < 0) & rates[:, 1].any(axis=1)):
        where = f"throughput_steps_per_s[{problem.job_ids[first[row]]}]"
        raise InvalidProblem(where, "gives rates to a second member that is not there; set them to 0")


def check_pair_rates(problem: AllocationProblem) -> None:
    """Return if the pair rates by kind, if any, can be used; else raise InvalidProblem naming kind or job."""
    pairs = problem.pair_rates
    if pairs is None:
        return
    kinds, jobs = len(pairs.steps_per_s), len(problem.job_ids)
    shapes = {"kind_of_job": (jobs,), "steps_per_s": (kinds, kinds, len(problem.accelerator_types))}
    for name, wanted in shapes.items():
        shape = getattr(pairs, name).shape
        if shape != wanted:
            raise InvalidProblem(f"pair_rates.{name}", f"has shape {shape}, wanted {wanted}")
    for place in np.argwhere(~np.isfinite(pairs.steps_per_s) | (pairs.steps_per_s < 0)):
        given = f"is {pairs.steps_per_s[tuple(place)]}; give finite steps per second, 0 where they cannot share"
        raise InvalidProblem(f"pair_rates.steps_per_s[{', '.join(map(str, place))}]", given)
    if not measures.is_unpacked(problem):
        raise InvalidProblem("combinations", "with pair_rates they are the jobs alone, in order; name no pairs beside")
    _check_kinds(problem, pairs)


def _check_kinds(problem: AllocationProblem, pairs: PairRates) -> None:
    kind = pairs.kind_of_job
    for job in np.flatnonzero((kind < -1) | (kind >= len(pairs.steps_per_s))):
        where = f"pair_rates.kind_of_job[{problem.job_ids[job]}]"
        raise InvalidProblem(where, f"is {kind[job]}; give an index into the {len(pairs.steps_per_s)} kinds, or -1")
    scale = np.zeros(len(pairs.steps_per_s), dtype=np.int64)
    with_kind = np.flatnonzero(kind >= 0)
    scale[kind[with_kind]] = problem.scale_factor[with_kind]
    for job in with_kind[scale[kind[with_kind]] != problem.scale_factor[with_kind]]:
        where = f"pair_rates.kind_of_job[{problem.job_ids[job]}]"
        raise InvalidProblem(where, f"is {kind[job]}, whose jobs have several scale factors; give each its own kind")
    apart = (scale[:, None] != scale) & (scale[:, None] > 0) & (scale > 0)
    for first, second in np.argwhere(apart & pairs.steps_per_s.any(axis=2)):
        given = f"packs gangs of {scale[first]} and of {scale[second]} workers; set it to 0"
        raise InvalidProblem(f"pair_rates.steps_per_s[{first}, {second}]", given)
