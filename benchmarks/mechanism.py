"""How closely rounds follow an allocation, how long planning takes, and how long reports of gangs take.

Lag: rounds by the target fractions minus rounds received since the solve, per job and accelerator type, the largest
after any round. Both rules plan the same random allocations (`an_instance`), with no price on moves and no minimum
stay; rounds without a target fraction are not counted. Plans are whole calls of `plan_round`, medians of CPU time of
one thread.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import block_array, csr_array, eye_array, kron

from benchmarks import ephemeral, mechanism_local
from benchmarks.table import Row, run
from gavel.mechanism.cluster.placement import Layout
from gavel.mechanism.planning.planner import Ledger, plan_round, stay_rounds
from gavel.mechanism.planning.selection import SelectionProblem, choose
from gavel.types import (
    Allocation,
    AllocationProblem,
    Certificate,
    Cluster,
    FloatArray,
    IntArray,
    Job,
    JobSpec,
    JobState,
    Node,
    PlanInputs,
    PlannedJobs,
    Planner,
    RoundPlan,
    Tier,
    Worker,
)

TYPES = ("t0", "t1", "t2")
GANGS, GANGS_OF = (1, 2, 4, 8), (0.7, 0.1, 0.15, 0.05)
LOADS = (0.4, 0.8, 1.0)  # workers over all workers that the jobs could use at once
VERTICES = 6
WORKERS_PER_NODE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """n jobs, and time fractions that their workers can give them all."""

    scale_factor: IntArray  # (n,)
    capacity_workers: IntArray  # (m,)
    target_fraction: FloatArray  # (n, m)


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """The result of following an allocation for a number of rounds."""

    lag_rounds: float
    starts_per_round: float


def rows(quick: bool) -> Iterator[Row]:
    yield from lags(quick)
    yield from prices(quick)
    yield from plans(quick)
    yield from ephemeral.rows(quick)
    yield from mechanism_local.rows(quick)


def lags(quick: bool) -> Iterator[Row]:
    """The worst of six instances each, both rules side by side."""
    rounds = 200 if quick else 1_000
    for gangs, most in ((False, 1.25), (True, 2.5)):
        for jobs in (60, 150):
            instances = [an_instance(jobs, load, seed, gangs=gangs) for load in LOADS for seed in (0, 1)]
            name = f"{jobs} {'gangs of 1 to 8' if gangs else 'single-worker jobs'}"
            for planner, target in (("lag", most), ("published", None)):
                worst = max(follow(each, rounds, planner).lag_rounds for each in instances)
                yield Row(f"max lag over {rounds} rounds, {name}, {planner}", worst, "rounds", target)


def prices(quick: bool) -> Iterator[Row]:
    """Yield the effect of a price on moves: fewer starts, and more lag, at most by the price."""
    instance, rounds = an_instance(60, 1.0, 0), 200 if quick else 1_000
    for cost_s in (0.0, 0.1, 0.5, 2.0):
        followed = follow(instance, rounds, switch_cost_s=cost_s * 10.0)
        price = float(stay_rounds(["any"], {"": cost_s * 10.0}, 10.0).sum())
        yield Row(f"starts a round, a move costs {cost_s:g} rounds", followed.starts_per_round, "of 60")
        yield Row(f"max lag, a move costs {cost_s:g} rounds", followed.lag_rounds, "rounds", 1.25 + price)


def plans(quick: bool) -> Iterator[Row]:
    """Whole plans, after one to warm up; on nodes of eight workers, so that moves without need can be counted."""
    for jobs, most in ((2_048, 20.0), (16_384, 200.0)):
        for gangs in (False, True):
            instance = a_large_instance(jobs, gangs=gangs)
            spent_ms, needless = plan_ms(instance, 5 if quick else 15)
            name = f"{jobs} {'gangs' if gangs else 'jobs'} on {int(instance.capacity_workers.sum())} workers"
            yield Row(f"plan of a round, {name}", spent_ms, "CPU ms", most)
            yield Row(f"moves without need, {name}", needless, "", 0.0)


def follow(instance: Instance, rounds: int, planner: Planner = "lag", switch_cost_s: float = 0.0) -> Followed:
    """Follow an allocation in rounds of 10 s. The published rule goes without its work-conserving extras."""
    target_fraction = instance.target_fraction
    given, kept, lag, starts = np.zeros_like(target_fraction), np.full(len(target_fraction), -1), 0.0, 0
    selection = SelectionProblem(
        rates=np.ones_like(target_fraction) if planner == "lag" else (target_fraction > 0).astype(float),
        scale_factor=instance.scale_factor,
        capacity_workers=instance.capacity_workers,
        target_fraction=target_fraction,
        ledger=given,
        kept=kept,
        round_index=0,
        planner=planner,
        stay_rounds=stay_rounds(["any"] * len(target_fraction), {"": switch_cost_s}, 10.0),
    )
    for index in range(1, rounds + 1):
        chosen, ledger = choose(replace(selection, ledger=given, kept=kept, round_index=index, is_new_allocation=False))
        before, kept = kept, np.full(len(target_fraction), -1)
        kept[list(chosen)] = list(chosen.values())
        given, starts = ledger, starts + int(((kept != before) & (kept >= 0)).sum())
        lag_of_all = ledger if planner == "lag" else index * target_fraction - ledger
        lag = max(lag, float(lag_of_all.max()))
    return Followed(lag_rounds=lag, starts_per_round=starts / rounds)


def an_instance(jobs: int, load: float, seed: int, *, gangs: bool = False) -> Instance:
    """A random point of all that the workers can give: a Dirichlet-weighted mean of random vertices."""
    draw = np.random.default_rng(seed)
    size = draw.choice(GANGS, jobs, p=GANGS_OF) if gangs else np.ones(jobs, dtype=np.int64)
    capacity = np.maximum(size.max(), draw.multinomial(int(size.sum() * load), [1 / 3] * 3))
    target_fraction = np.zeros((jobs, 3))
    time_of_job, workers = kron(eye_array(jobs), np.ones((1, 3))), kron(size[None], eye_array(3))
    limits = csr_array(block_array([[time_of_job], [workers]]))
    for weight in draw.dirichlet(np.full(VERTICES, 2.0)):
        gain = draw.uniform(size=(jobs, 3)) * size[:, None]
        vertex = linprog(-gain.ravel(), A_ub=limits, b_ub=np.r_[np.ones(jobs), capacity], bounds=(0, 1))
        target_fraction += weight * vertex.x.reshape(jobs, 3)
    return Instance(scale_factor=size, capacity_workers=capacity, target_fraction=target_fraction)


def a_large_instance(jobs: int, *, gangs: bool) -> Instance:
    """Jobs of 30 kinds, whose shares differ by kind only, on as many workers as jobs; every worker is promised."""
    draw = np.random.default_rng(0)
    size = draw.choice(GANGS, jobs, p=GANGS_OF) if gangs else np.ones(jobs, dtype=np.int64)
    capacity = (np.array([0.4, 0.3, 0.3]) * jobs).astype(np.int64)
    target_fraction = draw.dirichlet(np.ones(3), 30)[draw.integers(0, 30, jobs)]
    for _ in range(100):
        target_fraction *= np.minimum(1.5, capacity / (target_fraction * size[:, None]).sum(axis=0))
        target_fraction /= np.maximum(1.0, target_fraction.sum(axis=1, keepdims=True))
    target_fraction *= np.minimum(1.0, capacity / (target_fraction * size[:, None]).sum(axis=0))
    return Instance(scale_factor=size, capacity_workers=capacity, target_fraction=target_fraction)


def plan_ms(instance: Instance, rounds: int) -> tuple[float, int]:
    """Median CPU milliseconds of a plan, and how many gangs changed workers without need."""
    jobs, cluster = large_jobs(instance), a_cluster(instance.capacity_workers)
    problem, allocation, layout = a_problem(instance), an_allocation(instance), Layout(cluster)
    lag_of_all: Ledger = {}
    parent, spent, needless = None, [], 0
    for index in range(rounds + 1):
        began = time.process_time()
        inputs = PlanInputs(
            policy="random",
            cluster=cluster,
            jobs=PlannedJobs.of(jobs),
            parent=parent,
            starts_at_s=index * 10.0,
            duration_s=10.0,
        )
        plan, lag_of_all = plan_round(
            inputs, problem=problem, allocation=allocation, lag_rounds=lag_of_all, layout=layout
        )
        spent.append(time.process_time() - began)
        needless += moves_without_need(parent, plan)
        generations = {lease.job_id: lease.generation for lease in plan.leases}
        jobs = [
            replace(job, generation=generations[job.id], state=JobState.LEASED)
            if job.id in generations
            else replace(job, state=JobState.QUEUED)
            for job in jobs
        ]
        parent = plan
    return statistics.median(spent[1:]) * 1e3, needless


def moves_without_need(parent: RoundPlan | None, plan: RoundPlan) -> int:
    """Gangs on the type that they had, on other workers, and on no fewer nodes. Workers are named `node/worker`."""
    before = {lease.job_id: lease for lease in parent.leases} if parent else {}
    moved = 0
    for lease in plan.leases:
        old = before.get(lease.job_id)
        if old and old.accelerator_type == lease.accelerator_type and old.worker_ids != lease.worker_ids:
            nodes, nodes_before = ({worker.split("/")[0] for worker in each.worker_ids} for each in (lease, old))
            moved += len(nodes) >= len(nodes_before)
    return moved


def ids_of(instance: Instance) -> tuple[str, ...]:
    return tuple(f"j{index:06d}" for index in range(len(instance.target_fraction)))


def large_jobs(instance: Instance) -> list[Job]:
    spec = JobSpec(kind="any", user="ann", tier="default", argv=("python",), total_steps=10**6)
    sizes = instance.scale_factor.tolist()
    return [
        Job(id=id_, spec=replace(spec, scale_factor=size)) for id_, size in zip(ids_of(instance), sizes, strict=True)
    ]


def an_allocation(instance: Instance) -> Allocation:
    return Allocation(
        combinations=tuple((id_,) for id_ in ids_of(instance)),
        accelerator_types=TYPES,
        time_fraction=instance.target_fraction,
        certificate=Certificate(primal_violation=0.0),
        policy="random",
        solver="none",
    )


def a_cluster(capacity: IntArray) -> Cluster:
    workers = tuple(
        Worker(
            id=f"{name}-{index // WORKERS_PER_NODE}/{index % WORKERS_PER_NODE}",
            node=f"{name}-{index // WORKERS_PER_NODE}",
            accelerator_type=name,
        )
        for name, count in zip(TYPES, capacity.tolist(), strict=True)
        for index in range(count)
    )
    return Cluster(nodes=tuple(Node(name=name) for name in dict.fromkeys(w.node for w in workers)), workers=workers)


def a_problem(instance: Instance) -> AllocationProblem:
    jobs = len(instance.target_fraction)
    rates = np.zeros((jobs, 2, len(TYPES)))
    rates[:, 0] = instance.capacity_workers >= instance.scale_factor[:, None]
    return AllocationProblem(
        now_s=0.0,
        round_duration_s=10.0,
        job_ids=ids_of(instance),
        combinations=tuple((row,) for row in range(jobs)),
        accelerator_types=TYPES,
        throughput_steps_per_s=rates,
        capacity_workers=instance.capacity_workers,
        price_usd_per_hour=np.ones(len(TYPES)),
        scale_factor=instance.scale_factor,
        weight=np.ones(jobs),
        steps_remaining=np.full(jobs, 1e6),
        age_s=np.zeros(jobs),
        attained_service_s=np.zeros(jobs),
        isolated_time_s=np.zeros(jobs),
        deadline_at_s=np.full(jobs, np.inf),
        tiers=(Tier(name="default"),),
        tier_of_job=np.zeros(jobs, dtype=np.int64),
        users=("ann",) * jobs,
    )


if __name__ == "__main__":
    run("Rounds and ephemeral resources", rows)
