"""How fast the policies decide: CPU seconds of whole calls, ratios over the published programs, and how they agree.

Jobs: kinds of the published throughput table where GAVEL_DATA names it (else drawn alike), gangs of 1, 2, 4 and 8 with
probability .7, .1, .15 and .05, weights 1, 2 and 5 with .6, .2 and .2; "unique" multiplies every rate by a lognormal
factor (sigma 0.3), so that no two jobs are alike. Contended: accelerators for a quarter of the jobs, of three types;
spare: for twice as many. Packed pairs: what the table says of two single-accelerator kinds on one worker; the others
run alone.

Every figure is a warm median in CPU seconds of one thread; the published programs, from dictionaries to dictionaries,
are warmed up and repeated as often as ours, in turns. A row whose answer has no certificate, or one over 1e-6, fails.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import importlib
import importlib.util
import json
import resource
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import numpy as np

from benchmarks import baselines_policies as published
from benchmarks.table import Row, run
from benchmarks.timing import (
    cpu_s,  # noqa: F401  # for the modules of further rows
    gap_of,
    in_turns,
    is_proven,
    solved,
    warm_cpu_s,
)
from gavel.policies import measures, named_pairs, registry, with_pairs
from gavel.policies.finish_time_fairness import FinishTimeFairness
from gavel.policies.hierarchical import Hierarchical
from gavel.policies.makespan import Makespan
from gavel.policies.max_min_fairness import MaxMinFairness
from gavel.policies.programs import names, validate
from gavel.ports import Policy
from gavel.types import Allocation, AllocationProblem, FloatArray, IntArray, PairRates, Tier

TYPES = ("k80", "p100", "v100")
GANGS = (1, 2, 4, 8)
CONTENDED, SPARE = 0.25, 2.0
PLAIN, FILLED = MaxMinFairness(water_filling=False), MaxMinFairness()


def rows(quick: bool) -> Iterator[Row]:
    yield from max_min(quick)
    yield from small_problems(quick)
    yield from water_filling(quick)
    yield from rho_and_makespan(quick)
    yield from hierarchical()
    yield from nested_tiers(quick)
    yield from simple_objectives()
    yield from packed_pairs()
    yield from warm_rounds()


def small_problems(quick: bool) -> Iterator[Row]:
    from benchmarks import policies_small  # it uses what is above

    yield from policies_small.rows(quick)


def nested_tiers(quick: bool) -> Iterator[Row]:
    """The rows of `policies_hierarchical`, where there is one."""
    if importlib.util.find_spec("benchmarks.policies_hierarchical") is not None:
        yield from importlib.import_module("benchmarks.policies_hierarchical").rows(quick)


def max_min(quick: bool) -> Iterator[Row]:
    yield from large()
    sizes = {2_048: (10, 4), 16_384: (200, 15)} | ({} if quick else {262_144: (None, 120)})
    for jobs, (of_kinds, of_unique) in sizes.items():
        for unique, target in ((False, of_kinds), (True, of_unique)):
            problem = a_problem(jobs, CONTENDED, unique=unique)
            yield from against_published("max-min", problem, PLAIN, published.max_min, best_of, target, unique)
    yield from by_program("max-min", PLAIN, a_problem(2_048, CONTENDED, unique=True))


def large() -> Iterator[Row]:
    """Before any published program, whose memory would count."""
    for jobs in (262_144, 1_000_000):
        problem = a_problem(jobs, CONTENDED)
        row = solved(f"max-min, {jobs} jobs of real kinds", FILLED, problem, 0.15 if jobs < 1_000_000 else None, 3)
        names = warm_cpu_s(partial(named_anew, problem), 3)
        yield row
        yield Row(f"{row.name}: of it reading and giving names", names, "CPU s")
        yield replace(row, name=f"{row.name}: beside", value=row.value - names, target=0.05)
    problem = a_problem(1_000_000, CONTENDED, unique=True)
    walls = []
    for _ in range(3):
        began = time.perf_counter()
        FILLED.allocate(replace(problem))
        walls.append(time.perf_counter() - began)
    yield solved("max-min, 1000000 unique jobs", FILLED, problem, repetitions=3)
    yield Row("max-min, 1000000 unique jobs, wall", statistics.median(walls), "s", 1.5)
    yield Row("memory at the peak so far", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, "GB", 2.0)


def named_anew(problem: AllocationProblem) -> None:
    """What a policy has to do with names, whatever it decides: ids that differ, combinations, those of the answer."""
    again = replace(problem)
    assert validate._are_apart(again.job_ids) and measures.is_unpacked(again)
    names.of_combinations(again)


def water_filling(quick: bool) -> Iterator[Row]:
    jobs = 256 if quick else 2_048
    problem = a_problem(jobs, CONTENDED, unique=True)
    target = None if quick else 500.0
    yield from against_published("water filling", problem, FILLED, published.water_filling, sorted_of, target, True)
    for load, name, most in ((CONTENDED, "contended", None), (SPARE, "spare", 0.4)):
        for size in (2_048, 16_384):
            problem = a_problem(size, load, unique=True)
            limit = most if size == 2_048 else None
            yield solved(f"water filling, {size} unique, {name}", FILLED, problem, limit)
    for size, most in ((2_048, 0.4), (16_384, None)):
        row = solved(f"water filling, {size} unique, spare, three levels", FILLED, in_stairs(size), most)
        yield row
        yield replace(row, name=f"{row.name}: each", value=row.value / 3, target=0.2 if most else None)
    yield from by_program("water filling", FILLED, a_problem(256, CONTENDED, unique=True))


def rho_and_makespan(quick: bool) -> Iterator[Row]:
    fair, soon = FinishTimeFairness(), Makespan()
    jobs = 512 if quick else 2_048
    problem = replace(a_problem(jobs, CONTENDED, unique=True), weight=np.ones(jobs))
    target = None if quick else 250.0
    yield from against_published(
        "finish-time fairness", problem, fair, published.finish_time_fairness, rho_of, target, True
    )
    yield solved("finish-time fairness, 2048 unique", fair, a_problem(2_048, CONTENDED, unique=True))
    problem = a_problem(16_384, CONTENDED, unique=True)
    yield from against_published("makespan", problem, soon, published.makespan, end_of, 100.0, True, tolerance=None)
    yield Row("makespan, 16384 unique: distance to the bound", gap_of(soon.allocate(problem)), "", 1e-6)
    yield from by_program("finish-time fairness", fair, a_problem(256, CONTENDED, unique=True))
    yield from by_program("makespan", soon, a_problem(256, CONTENDED, unique=True))


def hierarchical() -> Iterator[Row]:
    policy = registry.load("hierarchical")
    for jobs, load, name, most in (
        (2_048, CONTENDED, "contended", 0.05),
        (2_048, SPARE, "spare", 0.4),
        (16_384, CONTENDED, "contended", 0.2),
    ):
        problem = a_problem(jobs, load, unique=True, tiers=5)
        yield solved(f"hierarchical, {jobs} unique in 5 tiers, {name}", policy, problem, most, 3)
    yield from tiers_below_tiers(policy)


def tiers_below_tiers(policy: Policy) -> Iterator[Row]:
    for load, name in ((CONTENDED, "contended"), (SPARE, "spare")):
        problem = a_problem(2_048, load, unique=True, tiers=5)
        for what, given in (
            ("", in_departments(problem)),
            (", guarantees", in_departments(problem, guarantee=0.2)),
            (", caps", in_departments(problem, cap=0.15)),
        ):
            most = 0.05 if name == "contended" and not what else None
            row = f"hierarchical, 2048 unique in 5 tiers of 2 departments{what}, {name}"
            yield solved(row, policy, given, most, 3)
    problem = in_departments(a_problem(256, CONTENDED, unique=True, tiers=5), cap=0.15)
    ours, theirs = (
        measures.service(problem, each.time_fraction)
        for each in (policy.allocate(problem), Hierarchical().program(problem))
    )
    apart = float(np.abs(ours - theirs).max() / theirs.max())
    yield Row("hierarchical, 256 unique in departments, caps: service apart from the program's by", apart, "", 1e-4)


def in_departments(problem: AllocationProblem, *, guarantee: float = 0.0, cap: float = 1.0) -> AllocationProblem:
    """The tiers of `problem` below two departments; every other one with a guarantee, or with a cap."""
    tiers = tuple(
        replace(
            tier,
            parent=f"department-{index % 2}",
            guarantee=0.0 if index % 2 else guarantee,
            cap=1.0 if index % 2 else cap,
        )
        for index, tier in enumerate(problem.tiers)
    )
    guaranteed = sum(tier.guarantee for tier in tiers)
    departments = (Tier(name="department-0", weight=2.0, guarantee=guaranteed), Tier(name="department-1"))
    return replace(problem, tiers=tiers + departments)


def simple_objectives() -> Iterator[Row]:
    specs = (
        "max_total_throughput",
        "max_total_relative_speed",
        "rank_weighted_speed",
        "min_cost",
        "dominant_resource_fairness",
        "shortest_job_first",
        "fifo",
    )
    for unique, jobs in ((False, "jobs of real kinds"), (True, "unique")):
        problem = a_problem(16_384, CONTENDED, unique=unique)
        for spec in specs:
            is_held = spec in ("max_total_relative_speed", "rank_weighted_speed")
            most = (0.05 if is_held else None) if unique else 0.1
            yield solved(f"{spec}, 16384 {jobs}", registry.load(spec), problem, most, 3)


def packed_pairs() -> Iterator[Row]:
    for jobs, most in ((1_024, 0.3), (16_384, 0.3), (1_000_000, 1.0)):
        problem = packed(jobs)
        what = f"packed pairs, {jobs} jobs of real kinds"
        yield solved(what, FILLED, problem, most, 3)
        answer = FILLED.allocate(problem)
        yield Row(f"{what}: distance to the bound", gap_of(answer), "service", 1e-6)
        yield Row(f"{what}: pairs named", len(answer.combinations) - jobs, "")
    problem = packed(48)
    every = named_pairs(problem)
    theirs = FILLED.objective(every, FILLED.program(every))
    took, ours = in_turns([lambda: FILLED.program(replace(every)), lambda: FILLED.allocate(replace(problem))], 3)
    yield Row("packed pairs, 48 jobs: ratio over our own program", took / ours, "x")
    apart = np.abs(FILLED.objective(problem, FILLED.allocate(problem)) / theirs - 1)
    yield Row("packed pairs, 48 jobs: objectives apart by", float(apart.max()), "", 1e-4)
    for spec in ("hierarchical", "rank_weighted_speed"):
        yield solved(f"{spec}, packed pairs, 256 jobs of real kinds", registry.load(spec), packed(256), 0.3, 3)


def warm_rounds() -> Iterator[Row]:
    for jobs in (2_048, 16_384):
        problem, after = a_problem(jobs, CONTENDED, unique=True), changed(jobs)
        last = FILLED.allocate(problem)
        warm = replace(after, warm_start=last.warm_start)
        times = in_turns([lambda: FILLED.allocate(replace(after)), lambda: FILLED.allocate(replace(warm))])  # noqa: B023
        proven = is_proven(FILLED.allocate(warm))
        name = f"a round with 2 % of {jobs} unique jobs changed, over a cold one"
        yield Row(name, times[1] / times[0], "", 1 / 3, proven=proven)


def against_published(
    what: str,
    problem: AllocationProblem,
    policy: MaxMinFairness | FinishTimeFairness | Makespan,
    baseline: Callable[[published.Given], float | FloatArray],
    worth: Callable[[AllocationProblem, Allocation], float | FloatArray],
    target: float | None,
    unique: bool,
    *,
    tolerance: float | None = 1e-4,
) -> Iterator[Row]:
    """Our time, how many times the published program's it fits in, and how far the objectives are apart."""
    name = f"{what}, {len(problem.job_ids)} {'unique' if unique else 'of real kinds'}"
    given = published.Given.of(problem)
    took, ours = in_turns([lambda: baseline(given), lambda: policy.allocate(replace(problem))])
    theirs, answer = baseline(given), policy.allocate(problem)
    yield Row(f"{name}: ours", ours, "CPU s", proven=is_proven(answer))
    yield Row(f"{name}: as published", took, "CPU s")
    yield Row(f"{name}: ratio", took / ours, "x", target, at_least=True, proven=is_proven(answer))
    mine = worth(problem, answer)
    yield Row(f"{name}: objectives apart by", float(np.max(np.abs(np.divide(mine, theirs) - 1))), "", tolerance)


def by_program(
    what: str, policy: MaxMinFairness | FinishTimeFairness | Makespan, problem: AllocationProblem
) -> Iterator[Row]:
    """How many times the vectorised program's time ours fits in; without a target."""
    took, ours = in_turns([lambda: policy.program(replace(problem)), lambda: policy.allocate(replace(problem))])
    yield Row(f"{what}, {len(problem.job_ids)} unique: ratio over our own program", took / ours, "x")


def best_of(problem: AllocationProblem, allocation: Allocation) -> float:
    return float(PLAIN.objective(problem, allocation)[0])


def sorted_of(problem: AllocationProblem, allocation: Allocation) -> FloatArray:
    return FILLED.objective(problem, allocation)


def rho_of(problem: AllocationProblem, allocation: Allocation) -> float:
    return float(-FinishTimeFairness().objective(problem, allocation)[0])


def end_of(problem: AllocationProblem, allocation: Allocation) -> float:
    rate = measures.effective_throughput(problem, allocation.time_fraction)
    return float((problem.steps_remaining / rate).max())


@cache
def colocated() -> FloatArray:
    """Rates (k, k, 3) of each kind beside each other one: the published table, or drawn for gangs of one."""
    path = Path(os.environ.get("GAVEL_DATA", "")) / "gavel" / "simulation_throughputs.json"
    rates, gangs = kinds()
    if not path.is_file():
        single = (gangs == 1)[:, None] & (gangs == 1)
        parts: FloatArray = np.random.default_rng(1).uniform(0.3, 1, (len(rates), len(rates), 3))
        return parts * rates[:, None] * single[..., None]
    table = json.loads(path.read_text())
    names, together_not = list(table["v100"]), (0.0, 0.0)
    return np.asarray(
        [[[table[kind][name].get(other, together_not)[0] for kind in TYPES] for other in names] for name in names]
    )


@cache
def kinds() -> tuple[FloatArray, IntArray]:
    """Rates (k, 3) and gang (k,) of the job kinds: the published table, or one drawn alike."""
    path = Path(os.environ.get("GAVEL_DATA", "")) / "gavel" / "simulation_throughputs.json"
    if not path.is_file():
        print("GAVEL_DATA names no published throughput table: the kinds are drawn")
        draw = np.random.default_rng(0)
        gangs = np.repeat(GANGS, 20)
        return draw.lognormal(1, 1.5, (80, 1)) * draw.uniform(0.2, 1, (80, 3)) * (1, 2, 4), gangs
    table = json.loads(path.read_text())
    names = list(table["v100"])
    rates = np.asarray([[table[kind][name]["null"] for kind in TYPES] for name in names])
    return rates, np.asarray([int(name.rsplit(",", 1)[1].strip(" )")) for name in names])


def a_problem(jobs: int, load: float, *, unique: bool = False, seed: int = 0, tiers: int = 1) -> AllocationProblem:
    """`jobs` jobs on load * jobs accelerators, split evenly over the types; the same for the same arguments."""
    draw = np.random.default_rng(seed)
    rates, gangs = kinds()
    scale = draw.choice(GANGS, jobs, p=(0.7, 0.1, 0.15, 0.05))
    kind = np.zeros(jobs, dtype=np.int64)
    for gang in GANGS:
        kind[scale == gang] = draw.choice(np.flatnonzero(gangs == gang), int((scale == gang).sum()))
    members = np.zeros((jobs, 2, len(TYPES)))
    members[:, 0] = rates[kind] * (draw.lognormal(0, 0.3, (jobs, len(TYPES))) if unique else 1.0)
    fastest = rates[kind].max(axis=1)
    return AllocationProblem(
        now_s=0.0,
        round_duration_s=360.0,
        job_ids=tuple(map(str, range(jobs))),
        combinations=tuple((job,) for job in range(jobs)),
        accelerator_types=TYPES,
        throughput_steps_per_s=members,
        capacity_workers=np.full(len(TYPES), max(8, round(load * jobs / len(TYPES)))),
        price_usd_per_hour=np.asarray([0.135, 0.43, 0.74]),
        scale_factor=scale.astype(np.int64),
        weight=draw.choice([1.0, 2.0, 5.0], jobs, p=(0.6, 0.2, 0.2)),
        steps_remaining=fastest * 10 ** draw.uniform(3.5, 5.5, jobs),
        age_s=np.sort(draw.uniform(0, 3e4, jobs))[::-1].copy(),
        attained_service_s=np.zeros(jobs),
        isolated_time_s=draw.uniform(0, 3e4, jobs),
        deadline_at_s=np.full(jobs, np.inf),
        tiers=tuple(Tier(name=f"tier-{index}", weight=1.0 + index % 3) for index in range(tiers)),
        tier_of_job=draw.integers(0, tiers, jobs),
        users=("ann",) * jobs,
    )


def in_stairs(jobs: int) -> AllocationProblem:
    """Spare capacity that is filled in three levels: a third of the jobs knows the scarce k80 only, a third the p100
    too; they weigh 9, 3 and 1, so that k80 and p100 are full one after the other, and the rest ends at its own best."""
    problem = a_problem(jobs, SPARE, unique=True)
    third = np.arange(jobs) % 3
    knows = np.arange(len(TYPES)) <= third[:, None]
    return replace(
        problem,
        throughput_steps_per_s=problem.throughput_steps_per_s * knows[:, None, :],
        weight=problem.weight * np.asarray([9.0, 3.0, 1.0])[third],
        capacity_workers=(SPARE * jobs * np.asarray([0.1, 0.2, 0.7])).astype(np.int64),
    )


def packed(jobs: int) -> AllocationProblem:
    """Real kinds, of which single-accelerator ones may share a worker."""
    rates, gangs = kinds()
    problem = a_problem(jobs, CONTENDED)
    of_kind = {(gang, *row): kind for kind, (gang, row) in enumerate(zip(gangs.tolist(), rates.tolist(), strict=True))}
    alone = problem.throughput_steps_per_s[:, 0].tolist()
    kind = [of_kind[gang, *row] for gang, row in zip(problem.scale_factor.tolist(), alone, strict=True)]
    return with_pairs(problem, PairRates(kind_of_job=np.asarray(kind), steps_per_s=colocated()))


def changed(jobs: int) -> AllocationProblem:
    """The unique problem of a round later: 2 % of the jobs are others."""
    problem, other = (a_problem(jobs, CONTENDED, unique=True, seed=seed) for seed in (0, 1))
    new = np.arange(jobs) % 50 == 0
    arrays = {
        name: np.where(
            new.reshape(-1, *[1] * (getattr(problem, name).ndim - 1)), getattr(other, name), getattr(problem, name)
        )
        for name in ("throughput_steps_per_s", "scale_factor", "weight", "steps_remaining")
    }
    return replace(problem, **arrays)


if __name__ == "__main__":
    run("Policies", rows)
