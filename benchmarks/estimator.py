"""How good throughput estimates are: ours beside the published procedure, mended, on the published matrix.

Truth is the simulation matrix of Gavel (OSDI '20) in the folder that GAVEL_DATA names; what is measured has log-normal
noise of 5 %. Every figure is a mean over several draws of references, profiles and noise. The full form takes about ten
minutes of CPU time, nearly all of it for the two simulated traces.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import logging
import random
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import structlog

from benchmarks.nearest import lent, nearest_reference
from benchmarks.table import Row, run
from gavel.estimator.colocation import Completed, Profiles, ReferenceProfiles, complete
from gavel.estimator.reconciled import ReconciledThroughputs
from gavel.ports import ThroughputEstimator
from gavel.simulator.oracle import OracleThroughputs
from gavel.simulator.simulation import simulate
from gavel.types import Cluster, FloatArray, IntArray, JobSpec, Measurement, Node, Worker
from workloads.traces import readers
from workloads.traces.job import Lines, TraceJob
from workloads.traces.throughputs import read_throughputs

TYPES = ("k80", "p100", "v100")
SIZES = (1, 2, 4, 8)
NOISE = 0.05
REPORT_S = 30.0


class Published:
    """A matrix in the published format: `alone[(kind, size, type)]` in steps/s, and of one worker `rates` (n, m) and
    `colocated` (m, n, n), normalised."""

    def __init__(self, path: Path, types: Sequence[str] = TYPES) -> None:
        table = read_throughputs(path)
        self.types = types
        self.alone = {key: rate for key, rate in table.rates.items() if key[2] in types and rate > 0}
        self.kinds = sorted({kind for kind, size, name in self.alone if size == 1 and name == types[0]})
        self.rates = np.array([[self.alone[kind, 1, name] for name in types] for kind in self.kinds])
        together = [[[table.colocated.get((a, b, 1, t), 0.0) for b in self.kinds] for a in self.kinds] for t in types]
        self.colocated = np.array(together) / self.rates.T[:, :, None]


def published() -> Published | None:
    """The matrix, or None with a line on stderr that says how to get it."""
    folder = os.environ.get("GAVEL_DATA")
    path = Path(folder or ".") / "gavel" / "simulation_throughputs.json"
    if folder and path.exists():
        return Published(path)
    print(
        "set GAVEL_DATA to the folder that holds gavel/simulation_throughputs.json: nothing measured", file=sys.stderr
    )
    return None


def rows(quick: bool) -> Iterator[Row]:
    truth = published()
    if truth is not None:
        draws = 3 if quick else 10
        yield from colocation_rows(truth, draws)
        yield from any_pairs_rows(truth, 1 if quick else 5)
        yield from alone_rows(truth, 1 if quick else 3)
        yield from scaling_rows(truth)
        yield from loop_rows(truth, quick)
    yield from speed_rows()


# --- pairs ------------------------------------------------------------------------------------------


def drawn(
    truth: Published, reference_profiles: int, share: float, seed: int
) -> tuple[IntArray, ReferenceProfiles, Profiles]:
    """So many random references measured whole, and every kind beside a random share of them, all with noise."""
    random = np.random.default_rng(seed)

    def noisy(rates: FloatArray) -> FloatArray:
        return rates * np.exp(NOISE * random.standard_normal(rates.shape))

    chosen = np.sort(random.choice(len(truth.kinds), reference_profiles, replace=False))
    hidden = random.random((len(truth.kinds), len(TYPES), reference_profiles)) >= share
    own = np.where(hidden, np.nan, noisy(np.transpose(truth.colocated[:, :, chosen], (1, 0, 2))))
    other = np.where(hidden, np.nan, noisy(np.transpose(truth.colocated[:, chosen, :], (2, 0, 1))))
    table = ReferenceProfiles(
        alone=noisy(truth.rates[chosen]), colocated=noisy(truth.colocated[:, chosen][:, :, chosen])
    )
    return chosen, table, Profiles(alone=noisy(truth.rates), own=own, other=other)


def colocation_rows(truth: Published, draws: int) -> Iterator[Row]:
    for reference_profiles, share, mean_target, p90_target in (
        (16, 0.2, 0.06, 0.17),
        (26, 0.2, 0.045, None),
        (16, 0.1, None, None),
    ):
        where = f"pairs, R={reference_profiles}, {share:.0%} profiled"
        ours, theirs, held = [], [], []
        for seed in range(draws):
            _, table, profiles = drawn(truth, reference_profiles, share, seed)
            completed = complete(table, profiles, noise=NOISE)
            ours.append(np.abs(completed.rate - truth.colocated))
            theirs.append(np.abs(lent(table, nearest_reference(table, profiles)) - truth.colocated))
            held.append(holds(completed, truth))
        yield Row(f"{where}: mean error", float(np.mean(ours)), "of the rate alone", mean_target)
        yield Row(f"{where}: mean error, nearest reference", float(np.mean(theirs)), "of the rate alone")
        yield Row(f"{where}: p90 of the error", float(np.quantile(ours, 0.9)), "of the rate alone", p90_target)
        yield Row(f"{where}: p90, nearest reference", float(np.quantile(theirs, 0.9)), "of the rate alone")
        yield coverage(where, float(np.mean(held)))


def any_pairs_rows(truth: Published, draws: int, what: str = "pairs") -> Iterator[Row]:
    """As in the service: no kind was measured beside all others, a share of all pairs was tried, whichever they are."""
    order = np.argsort(truth.kinds, kind="stable")
    for share in (0.1, 0.2):
        errors, held = [], []
        for seed in range(draws):
            random = np.random.default_rng(seed)
            tried = np.triu(random.random(truth.colocated.shape) < share)
            tried |= np.transpose(tried, (0, 2, 1))
            estimator = ReconciledThroughputs().learn(tried_reports(truth, tried, random))
            estimates = estimator.pairs([(truth.kinds[row], 1) for row in order], truth.types)
            wanted = truth.colocated[:, order][:, :, order].clip(0, 1)
            unknown = ~tried[:, order][:, :, order]
            error = np.abs(estimates.rate - wanted)
            errors.append(error.mean())
            held.append((error <= 1.645 * estimates.deviation)[unknown].mean())
        where = f"{what}, no references, {share:.0%} of all tried"
        yield Row(f"{where}: mean error", float(np.mean(errors)), "of the rate alone")
        yield coverage(where, float(np.mean(held)))


def tried_reports(truth: Published, tried: FloatArray, random: np.random.Generator) -> list[Measurement]:
    """Every kind alone, and the pairs that were tried and fit together."""
    reports = []
    for row, kind in enumerate(truth.kinds):
        for column, name in enumerate(truth.types):
            rate = truth.rates[row, column]
            reports += measured(kind, 1, name, rate, 3, random)
            for other in np.nonzero(tried[column, row] & (truth.colocated[column, row] > 0))[0]:
                (report,) = measured(kind, 1, name, rate * truth.colocated[column, row, other], 1, random)
                partner = truth.kinds[other]
                reports.append(replace(report, partner=partner, job_id=f"{report.job_id}+{partner}"))
    return reports


def holds(completed: Completed, truth: Published) -> FloatArray:
    """1 where the stated 90 % interval holds the true rate, else 0."""
    inside: FloatArray = (np.abs(completed.rate - truth.colocated) <= 1.645 * completed.deviation).astype(float)
    return inside


def coverage(where: str, share: float) -> Row:
    """The target is 85 to 95 %: a distance of at most 0.05 from 0.90."""
    return Row(f"{where}: 90 % interval holds {share:.1%}, off by", abs(share - 0.9), "", 0.05)


# --- kinds alone ------------------------------------------------------------------------------------------


def measured(
    kind: str, size: int, name: str, rate: float, reports: int, random: np.random.Generator
) -> list[Measurement]:
    """Reports of a job of its own that trains at this rate, with noise."""
    return [
        Measurement(
            job_id=f"{kind}/{size}/{name}",
            generation=1,
            sequence=sequence,
            user="ann",
            kind=kind,
            scale_factor=size,
            accelerator_type=name,
            steps=round(1e6 * rate * REPORT_S * float(np.exp(NOISE * random.standard_normal()))),
            seconds=1e6 * REPORT_S,
        )
        for sequence in range(1, reports + 1)
    ]


def spec(kind: str, size: int = 1) -> JobSpec:
    return JobSpec(kind=kind, user="ann", tier="free", argv=("train",), total_steps=1, scale_factor=size)


def alone_rows(truth: Published, draws: int) -> Iterator[Row]:
    """Each kind in turn is new: the others were measured on every type, it itself on one."""
    profiled: dict[str, list[float]] = defaultdict(list)
    nameless: dict[str, list[float]] = defaultdict(list)
    held, after = [], []
    for seed in range(draws):
        random = np.random.default_rng(seed)
        for kind, rates in zip(truth.kinds, truth.rates, strict=True):
            estimator = all_but(kind, truth, random)
            for column, name in enumerate(TYPES):
                reports = measured(kind, 1, name, rates[column], 3, random)
                errors, inside = ratio_errors(estimator.learn(reports), kind, rates, column)
                profiled[name] += errors
                held += inside
                unnamed = estimator.learn([replace(each, kind="ann/train") for each in reports])
                nameless[name] += ratio_errors(unnamed, "ann/train", rates, column)[0]
            for column, name in enumerate(TYPES):
                estimator = estimator.learn(measured(kind, 1, name, rates[column], 3, random))
            after += ratio_errors(estimator, kind, rates, 0)[0]
    for name, errors in profiled.items():
        where = f"new kind, profiled on {name} alone"
        yield Row(f"{where}: median error of its ratios", float(np.median(errors)), "", 0.10)
        yield Row(f"{where}: mean error of its ratios", float(np.mean(errors)), "", 0.10)
        yield Row(f"{where}, its name says nothing: median error", float(np.median(nameless[name])), "")
        yield Row(f"{where}, its name says nothing: mean error", float(np.mean(nameless[name])), "")
    yield coverage("new kind", float(np.mean(held)))
    yield Row("new kind after 3 rounds, one on each type: mean error of its ratios", float(np.mean(after)), "", 0.05)


def all_but(kind: str, truth: Published, random: np.random.Generator) -> ReconciledThroughputs:
    """Knows every other kind alone on every type."""
    return ReconciledThroughputs().learn(
        [
            each
            for other, rates in zip(truth.kinds, truth.rates, strict=True)
            if other != kind
            for name, rate in zip(TYPES, rates, strict=True)
            for each in measured(other, 1, name, rate, 5, random)
        ]
    )


def ratio_errors(
    estimator: ReconciledThroughputs, kind: str, truth: FloatArray, base: int
) -> tuple[list[float], list[float]]:
    """Relative errors of the ratios to type `base`, and 1 where the interval of the other types holds the truth."""
    believed = estimator.estimate(spec(kind), TYPES)
    rates = np.array([each.steps_per_s for each in believed])
    errors = np.abs((rates / rates[base]) / (truth / truth[base]) - 1)
    inside = [
        each.interval_steps_per_s[0] <= rate <= each.interval_steps_per_s[1]
        for each, rate in zip(believed, truth, strict=True)
    ]
    others = [column for column in range(len(truth)) if column != base]
    return [float(errors[column]) for column in others], [float(inside[column]) for column in others]


# --- gangs ------------------------------------------------------------------------------------------


def scaling_rows(truth: Published) -> Iterator[Row]:
    """Gangs of 4 and 8 of a kind that was measured at 1 and 2; all other kinds were measured at every size."""
    random = np.random.default_rng(0)
    reports = {key: measured(*key, rate, 3, random) for key, rate in truth.alone.items()}
    kinds = sorted({kind for kind, size, _ in truth.alone if size == max(SIZES)})
    for name in TYPES:
        errors = []
        for kind in kinds:
            seen = [
                each
                for key, many in reports.items()
                if key[0] != kind or (key[1] <= 2 and key[2] == name)
                for each in many
            ]
            learned = ReconciledThroughputs().learn(seen)
            for size in (4, 8):
                if (kind, size, name) in truth.alone:
                    (believed,) = learned.estimate(spec(kind, size), [name])
                    errors.append(abs(believed.steps_per_s / truth.alone[kind, size, name] - 1))
        yield Row(f"gangs of 4 and 8 on {name} from 1 and 2: median error", float(np.median(errors)), "")


# --- in the loop ------------------------------------------------------------------------------------------

ROUND_S = 360.0


def loop_rows(truth: Published, quick: bool) -> Iterator[Row]:
    """Mean JCT with the matrix hidden, and with a third of the jobs' statements wrong, against an oracle's."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    for name, workers, jobs in (
        ("small_single_seed0", 12, 120 if quick else 900),
        ("continuous_single_5.2_per_hour_seed0", 36, 150 if quick else 1000),
    ):
        path = Path(os.environ["GAVEL_DATA"]) / "gavel" / f"{name}.trace"
        trace = list(readers.published(Lines(path)))[:jobs]
        where = f"{name}, first {jobs} jobs"
        oracle, _ = simulated(trace, truth, workers, OracleThroughputs(truth.alone))
        hidden, profiling = simulated(trace, truth, workers, ReconciledThroughputs())
        wrong, _ = simulated(misstated(trace, truth), truth, workers, ReconciledThroughputs())
        yield Row(f"{where}: mean JCT, oracle", oracle, "h")
        yield Row(f"{where}: mean JCT, matrix hidden, over the oracle's", hidden / oracle - 1, "", 0.03)
        yield Row(f"{where}: mean JCT, a third of statements wrong, over the oracle's", wrong / oracle - 1, "", 0.05)
        yield Row(f"{where}: part of the accelerator time for profiling", profiling, "", 0.01)


def simulated(
    trace: list[TraceJob], truth: Published, workers: int, estimator: ThroughputEstimator
) -> tuple[float, float]:
    """Mean JCT in hours and the part of the accelerator time that profiling took, on so many workers of each type."""
    cluster = Cluster(
        nodes=tuple(Node(name=name, cpu_cores=workers) for name in TYPES),
        workers=tuple(
            Worker(id=f"{name}-{index}", node=name, accelerator_type=name) for name in TYPES for index in range(workers)
        ),
    )
    result = simulate(
        trace,
        cluster=cluster,
        throughput=truth.alone,
        policy="max_min_fairness",
        estimator=estimator,
        round_duration_s=ROUND_S,
    )
    jct_h = float(np.mean([row.jct_s for row in result.rows if row.jct_s is not None])) / 3600
    return jct_h, result.profiling_s / (result.rounds * ROUND_S * len(cluster.workers))


def misstated(trace: list[TraceJob], truth: Published) -> list[TraceJob]:
    """Every job states its rates; a third of them all wrong by one factor of 0.3 to 3."""
    draw = random.Random(1)
    stated = []
    for job in trace:
        factor = 0.3 * 10 ** draw.random() if draw.random() < 1 / 3 else 1.0
        rates = {name: factor * truth.alone[job.spec.kind, job.spec.scale_factor, name] for name in TYPES}
        spec = replace(job.spec, throughput_steps_per_s=rates, user=f"user{draw.randrange(10)}")
        stated.append(replace(job, spec=spec))
    return stated


# --- speed ------------------------------------------------------------------------------------------


def speed_rows() -> Iterator[Row]:
    """1,000 kinds x 8 types x 4 gang sizes, measured in part: as a round's matrix, and as rows with their source."""
    random = np.random.default_rng(0)
    types = [f"type{column}" for column in range(8)]
    names = [f"kind{number // 5}-{16 * 2 ** (number % 5)}" for number in range(1000)]
    specs = [spec(name, size) for name in names for size in SIZES]
    reports = [
        each
        for number, kind in enumerate(names)
        for name in types[:: 1 + number % 3]
        for size in SIZES[: 1 + number % 4]
        for each in measured(kind, size, name, 10.0 * (1 + number % 7), 4, random)
    ]
    trained = ReconciledThroughputs().learn(reports)
    seconds: dict[str, list[float]] = defaultdict(list)
    for turn in range(7):
        ordinary = measured(names[turn], 1, types[0], 10.0 * (1 + turn % 7), 5, random)[-1:]
        with timed(seconds["one update"]):
            trained.learn(ordinary)
        trained = trained.learn(measured(f"new{turn}-16", 1, types[0], 10.0, 1, random))
        new = ReconciledThroughputs(state=trained.state)
        for what, estimator in (("a new estimator", new), ("the same, once more", new), ("one that learned", trained)):
            with timed(seconds[f"32,000 estimates by {what}"]):
                estimator.matrix(specs, types)
        for what in ("first", "again"):
            with timed(seconds[f"32,000 estimates as rows, {what}"]):
                for each in specs:
                    new.estimate(each, types)
    targets = {"one update": 1.0, "32,000 estimates as rows, first": None, "32,000 estimates as rows, again": None}
    for what, many in seconds.items():
        yield Row(what, 1e3 * float(np.median(many)), "CPU ms", targets.get(what, 50.0))


@contextmanager
def timed(into: list[float]) -> Iterator[None]:
    """Appends the CPU seconds that the block took."""
    began_s = time.process_time()
    yield
    into.append(time.process_time() - began_s)


if __name__ == "__main__":
    run("Estimator", rows)
