"""Rules for the sizes of elastic jobs, compared on published workloads with known speeds (docs/elastic.md).

Rounds of 60 s on 24 t4, 24 rtx2080ti and 16 a100. Each start and each change costs the family's restart. The baseline
is Sia's rule (SOSP '23), written anew: restart-weighted relative goodput to the power -1/2, at most twice the size at
once. Gangs are not placed on nodes: a size that is a power of two inside a node is taken to be inside one. What
being behind counts was chosen here (decision 0095), and nothing else: power and mix are those of the service.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from benchmarks import elastic_rounds
from benchmarks.elastic_beliefs import Beliefs, Estimated, Known, OfSia
from benchmarks.elastic_jobs import RESTART_S as RESTARTS
from benchmarks.elastic_jobs import (
    SIZES,
    TYPES,
    WORKERS,
    Active,
    ElasticJob,
    Speeds,
    configurations,
    is_usual,
    place_of,
    workload,
)
from benchmarks.table import Row, run
from benchmarks.timing import warm_cpu_s
from gavel.elastic.decision import choose
from gavel.elastic.late import Behind, behind, with_late_first
from gavel.elastic.problem import SizeProblem
from gavel.elastic.screening import SizeQuestion, choose_among
from gavel.elastic.utility import ElasticJobs
from gavel.finish_time import isolated_rate
from gavel.types import Configurations, FloatArray, IntArray

ROUND_S = 60.0
UNFAIR = 1.05
STAGES = 400


@dataclass(frozen=True, slots=True)
class Decided:
    """The configuration of each job, (n,), and how far from the best the choice may be."""

    configuration: IntArray
    gap: float


Rule = Callable[[Sequence[Active], FloatArray, float], Decided]
"""A decision from the jobs, their speeds (n, m, k), and the instant."""


def by_rank(jobs: Sequence[Active], speed: FloatArray, now_s: float) -> Decided:
    """Return what the service decides where all jobs are elastic: jobs that are behind count more, and go first."""
    asked = _asked(jobs, speed)
    late = _behind(jobs, asked, now_s)
    question = _question(replace(asked, weight=late.urgency))
    choice = choose_among(question)
    return Decided(with_late_first(question, choice, speed, late), choice.gap)


def by_rank_alone(jobs: Sequence[Active], speed: FloatArray, now_s: float) -> Decided:
    """Return what the service decides of rigid jobs, among which nobody goes first."""
    choice = choose_among(_question(_asked(jobs, speed)))
    return Decided(choice.configuration, choice.gap)


def _asked(jobs: Sequence[Active], speed: FloatArray) -> ElasticJobs:
    return ElasticJobs(
        speed=speed,
        steps_left=np.array([each.misstated * (each.job.family.work - each.done) for each in jobs]),
        configuration=np.array([each.held for each in jobs]),
        restart_s=np.array([RESTARTS[each.job.family.name] for each in jobs]),
        weight=np.ones(len(jobs)),
        is_fixed=np.array([each.restart_s > 0 and each.held >= 0 for each in jobs]),
    )


def _behind(jobs: Sequence[Active], asked: ElasticJobs, now_s: float) -> Behind:
    done_s = np.array([each.isolated_s for each in jobs])
    age_s = np.array([now_s - each.job.arrival_s for each in jobs])
    least = np.array([each.isolated_rate for each in jobs])
    return behind(age_s - done_s, done_s + asked.steps_left / least, asked.restart_s + ROUND_S, least)


def _question(asked: ElasticJobs, times: int = 1) -> SizeQuestion:
    """What is asked where each job can have each configuration, on `times` the cluster."""
    anywhere = np.broadcast_to(np.True_, asked.speed.shape)
    return SizeQuestion(jobs=asked, possible=anywhere, sizes=SIZES, capacity_workers=WORKERS * times)


def _best(worth: FloatArray) -> Decided:
    choice = choose(SizeProblem(utility=worth, sizes=SIZES, capacity_workers=WORKERS))
    return Decided(choice.configuration, choice.gap)


def by_sia(jobs: Sequence[Active], speed: FloatArray, now_s: float) -> Decided:
    """Return the choice by Sia's rule: 1.1 - (r G)^-0.5, G relative to the slowest configuration."""
    flat = speed.reshape(len(jobs), -1)
    slowest = np.where(flat > 0, flat, np.inf).min(axis=1, keepdims=True)
    held = np.array([each.held for each in jobs])
    own = np.arange(flat.shape[1]) == held[:, None]
    restarted = np.array([_kept_part(each, now_s) for each in jobs])[:, None]
    is_new = np.array([each.held < 0 and each.done == 0 for each in jobs])[:, None]
    relative = flat / slowest * np.where(own | is_new, 1.0, restarted)
    worth = np.where(flat > 0, 1.1 - np.maximum(relative, 1e-9) ** -0.5, 0.0)
    sizes, most = configurations(np.arange(flat.shape[1]))[0], np.maximum(1, 2 * configurations(held)[0])
    return _best(np.maximum(np.where(sizes <= most[:, None], worth, 0.0), 0.0).reshape(speed.shape))


def _kept_part(each: Active, now_s: float) -> float:
    """Sia's factor of a restart: what is left of the job's age, less its restarts, if there were one more."""
    age_s, cost_s = now_s - each.job.arrival_s, RESTARTS[each.job.family.name]
    return max(0.0, age_s - each.restarts * cost_s) / (age_s + cost_s)


def by_age(jobs: Sequence[Active], speed: FloatArray, now_s: float) -> Decided:
    """Return the choice by relative speed with ageing (max_total_relative_speed), for gangs of one size each."""
    fastest = speed.max(axis=(1, 2), keepdims=True)
    patience = np.array([1 + 0.1 * np.log1p((now_s - each.job.arrival_s) / 36_000) for each in jobs])
    size = np.array([each.job.tuned_workers for each in jobs])
    return _best(speed / fastest * (patience * size)[:, None, None])


def any_size(job: ElasticJob, done: float) -> FloatArray:
    """Return the speeds of an elastic job whose batch follows its size as well."""
    return job.family.speeds(done) * is_usual()


def constant_batch(job: ElasticJob, done: float) -> FloatArray:
    """Return the speeds of an elastic job with the global batch that its user chose: as in the service."""
    return job.family.speeds(done, [job.tuned_batch]) * is_usual()


def rigid(job: ElasticJob, done: float) -> FloatArray:
    """Return the speeds of a rigid job, with the workers and the batch that its user chose."""
    speeds = job.family.speeds(done, [job.tuned_batch])
    return np.where(np.arange(len(SIZES)) == place_of(job.tuned_workers), speeds, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What became of the jobs: seconds to completion, rho, restarts; of a decision the mean CPU seconds and gap."""

    jct_s: FloatArray
    rho: FloatArray
    restarts: float
    decision_cpu_s: float
    gap: float


def simulated(jobs: Sequence[ElasticJob], rule: Rule, speeds: Speeds, beliefs: Beliefs, sigma: float = 0.0) -> Result:
    """Return what becomes of the jobs under a rule, round after round until all have ended.

    `beliefs`: what the rule takes the speeds to be. What it takes to be left of a job is wrong by
    exp(`sigma` z) from start to end, z standard normal.
    """
    wrong = np.exp(sigma * np.random.default_rng(0).standard_normal(len(jobs)))
    misstated = {job.name: float(factor) for job, factor in zip(jobs, wrong, strict=True)}
    waiting, active, ended = sorted(jobs, key=lambda job: job.arrival_s), list[Active](), list[tuple[float, Active]]()
    now_s, spent, gaps = 0.0, list[float](), list[float]()
    while waiting or active:
        while waiting and waiting[0].arrival_s <= now_s:
            job = waiting.pop(0)
            active.append(Active(job, misstated=misstated[job.name]))
        if active:
            speed = np.array([speeds(each.job, each.done) for each in active])
            believed = beliefs.speeds(active, speed)
            for each, rate in zip(active, _isolated(believed, 1 / len(active)).tolist(), strict=True):
                each.isolated_rate = rate
            gap, cpu_s = _decide(active, rule, believed, now_s)
            spent.append(cpu_s)
            gaps.append(gap)
            ended += _worked(active, speed, now_s)
            beliefs.learn(active, speed)
            active = [each for each in active if each.done < each.job.family.work]
        now_s += ROUND_S
    return Result(
        jct_s=np.array([end_s - each.job.arrival_s for end_s, each in ended]),
        rho=np.array([_rho(each, end_s, speeds) for end_s, each in ended]),
        restarts=float(np.mean([each.restarts for _, each in ended])),
        decision_cpu_s=float(np.mean(spent)),
        gap=float(np.mean(gaps)),
    )


def _decide(active: Sequence[Active], rule: Rule, speed: FloatArray, now_s: float) -> tuple[float, float]:
    """Give each job its configuration; how far from the best that may be, and the CPU seconds that it took."""
    began_s = time.process_time()
    choice = rule(active, speed, now_s)
    cpu_s = time.process_time() - began_s
    for each, configuration in zip(active, choice.configuration.tolist(), strict=True):
        if configuration != each.held and configuration >= 0:
            each.restart_s = RESTARTS[each.job.family.name]
            each.restarts += each.done > 0 or each.held >= 0
        each.held = configuration
        each.rivals.append(len(active))
    return choice.gap, cpu_s


def _worked(active: Sequence[Active], speed: FloatArray, now_s: float) -> Iterator[tuple[float, Active]]:
    """Let the jobs work for a round; the instants at which some end."""
    for row, each in enumerate(active):
        each.worked_s = 0.0
        if each.held < 0:
            continue
        waits_s, each.restart_s = min(ROUND_S, each.restart_s), max(0.0, each.restart_s - ROUND_S)
        each.worked_s = ROUND_S - waits_s
        rate, left = float(speed[row].ravel()[each.held]), each.job.family.work - each.done
        each.done += rate * each.worked_s
        each.isolated_s += rate * each.worked_s / each.isolated_rate
        if each.done >= each.job.family.work:
            yield now_s + waits_s + left / rate, each


def _rho(each: Active, end_s: float, speeds: Speeds) -> float:
    """Finish-time fairness: time to completion over that alone on a 1/n share of each type, n the mean of rivals.

    A job alone waits for the next round and starts once, too.
    """
    share, work = 1 / float(np.mean(each.rivals)), each.job.family.work
    parts = np.array([speeds(each.job, part * work) for part in (0.125, 0.375, 0.625, 0.875)])
    alone_s = float((work / 4 / _isolated(parts, share)).sum())
    return (end_s - each.job.arrival_s) / (alone_s + RESTARTS[each.job.family.name] + -each.job.arrival_s % ROUND_S)


def _isolated(speed: FloatArray, share: float) -> FloatArray:
    """The most work a second of n jobs, (n,), with this share of the workers of each type; `speed` (n, m, k).

    They may take turns among configurations.
    """
    jobs = len(speed)
    choice = Configurations(jobs=np.arange(jobs), sizes=SIZES, steps_per_s=speed)
    none = np.zeros((jobs, len(TYPES)))
    return isolated_rate(none, WORKERS, np.ones(jobs, dtype=np.int64), np.full(jobs, share), choice)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A rule, how fast jobs are, what it knows of that, and how wrong the lengths are that it is told.

    `against` is the rule that its mean is compared with.
    """

    name: str
    rule: Rule = by_rank
    speeds: Speeds = any_size
    learns: Callable[[], Beliefs] = Known
    sigma: float = 0.0
    against: str = ""

    def over(self, jobs: Sequence[ElasticJob]) -> Result:
        """Return what becomes of the jobs."""
        return simulated(jobs, self.rule, self.speeds, self.learns(), self.sigma)


SIA, SIA_LEARNED = "Sia's rule, sizes and batch", "Sia's rule, sizes and batch, speeds learned"
LEARNED = "by rank, sizes and batch, speeds learned"
BY_FAMILY = partial(Estimated, is_shared=True, is_batch_free=True)
BY_JOB = partial(Estimated, is_shared=False, is_batch_free=True)
PROFILED = partial(BY_JOB, is_profiled=True)
AT_TUNED_BATCH = partial(Estimated, is_shared=True, is_batch_free=False)
TUNED = "by rank, sizes at the tuned batch"
RULES = (
    Compared(name=SIA, rule=by_sia),
    Compared(name="by rank, sizes and batch", against=SIA),
    Compared(name="by rank, sizes and batch, lengths wrong by e^N(0, 1)", sigma=1.0, against=SIA),
    Compared(name=TUNED, speeds=constant_batch, against=SIA),
    Compared(name=SIA_LEARNED, rule=by_sia, learns=partial(OfSia, any_size)),
    Compared(name=LEARNED, learns=BY_FAMILY, against=SIA_LEARNED),
    Compared(name=f"{LEARNED}, no two jobs of a kind, profiled as for Sia", learns=PROFILED, against=SIA_LEARNED),
    Compared(name=f"{LEARNED}, no two jobs of a kind", learns=BY_JOB, against=SIA_LEARNED),
    Compared(name=f"{TUNED}, speeds learned", speeds=constant_batch, learns=AT_TUNED_BATCH, against=SIA_LEARNED),
    Compared(name="tuned rigid jobs, by rank", rule=by_rank_alone, speeds=rigid, against=SIA),
    Compared(name="tuned rigid jobs, relative speed with ageing", rule=by_age, speeds=rigid, against=SIA),
)
PUBLISHED_H = {"philly-1": 0.547, "helios-saturn-1": 0.590, "helios-saturn-rate50-1": 1.92}
"""Mean time to completion of Sia's rule in its authors' simulator, run with a faster fit, hours."""


def rows(quick: bool) -> Iterator[Row]:
    """Yield the figures; the quick form takes the first sixth of each workload, which has no published figures."""
    yield from at_scale(1000, 32, 20, 3 if quick else 9)
    yield from at_scale(16_384, 256, 100, 3 if quick else 9)
    if not quick:
        yield from at_scale(1_000_000, 256, 500, 3)
    for name, published_h in PUBLISHED_H.items():
        jobs = workload(name)
        jobs = jobs[: len(jobs) // 6] if quick else jobs
        mean_h: dict[str, float] = {}
        for rule in RULES:
            result = rule.over(jobs)
            mean_h[rule.name] = float(result.jct_s.mean()) / 3600
            if rule.name == SIA and not quick:
                off = abs(mean_h[SIA] / published_h - 1)
                yield Row(f"{name}, {SIA}: off the published mean", 100 * off, "%", 10)
            yield from _shown(f"{name}, {rule.name}", result, mean_h[rule.name])
            if rule.against:
                saved = 100 * (1 - mean_h[rule.name] / mean_h[rule.against])
                yield Row(f"{name}, {rule.name}: below the mean of {rule.against}", saved, "%", is_detail=True)
    yield from elastic_rounds.rows(quick)


def at_scale(jobs: int, times: int, most_ms: float, repetitions: int) -> Iterator[Row]:
    """Yield the CPU time of one decision over jobs of these families, on `times` the cluster, and its gap."""
    question = _question(_under_way(jobs), times)
    name = f"decision, {jobs:,} elastic jobs, {int(WORKERS.sum()) * times:,} workers"
    yield Row(name, 1e3 * warm_cpu_s(lambda: choose_among(question), repetitions), "ms", most_ms)
    yield Row(f"{name}: worth at most below the best", 100 * choose_among(question).gap, "%", 0.5)


def _under_way(count: int) -> ElasticJobs:
    """Jobs of the families of a workload, each at one of STAGES stages of its work, of lengths that differ by 2."""
    rng, kinds = np.random.default_rng(0), workload("philly-1")
    of_kind = np.arange(count) % len(kinds)
    stage, length = rng.integers(STAGES, size=count), rng.uniform(0.5, 2.0, count)
    done = np.linspace(0.0, 0.95, STAGES)
    families = {kind.family.name: kind for kind in kinds}
    table = np.array([[any_size(kind, part * kind.family.work) for part in done] for kind in families.values()])
    place = {name: index for index, name in enumerate(families)}
    family = np.array([place[kind.family.name] for kind in kinds])[of_kind]
    work = np.array([kind.family.work for kind in kinds])[of_kind]
    return ElasticJobs(
        speed=table[family, stage],
        steps_left=length * work * (1 - done[stage]),
        configuration=np.full(count, -1),
        restart_s=np.array([RESTARTS[kind.family.name] for kind in kinds])[of_kind],
        weight=np.ones(count),
        is_fixed=np.zeros(count, dtype=np.bool_),
    )


def _shown(name: str, result: Result, mean_h: float) -> Iterator[Row]:
    yield Row(f"{name}: mean time to completion", mean_h, "h")
    yield Row(f"{name}: p99", float(np.quantile(result.jct_s, 0.99)) / 3600, "h")
    yield Row(f"{name}: largest rho", float(result.rho.max()), "")
    yield Row(f"{name}: jobs with rho over {UNFAIR}", 100 * float((result.rho > UNFAIR).mean()), "%")
    yield Row(f"{name}: restarts a job", result.restarts, "")
    yield Row(f"{name}: decision", 1e3 * result.decision_cpu_s, "ms")
    yield Row(f"{name}: worth at most below the best", 100 * result.gap, "%")


if __name__ == "__main__":
    run("Sizes of elastic jobs", rows)
