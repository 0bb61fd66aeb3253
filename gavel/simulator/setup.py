"""What to simulate, read from texts: clusters, workloads, tiers. An error says what would be accepted."""

import math
import random
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar
from urllib.parse import parse_qsl

from gavel.errors import InvalidRequest
from gavel.simulator.outcome import NodeOutage
from gavel.types import AcceleratorType, Cluster, Node, Tier, Worker, plain_type, region_of_type, type_in_region
from gavel.types.cluster import LOCAL_REGION
from gavel.types.regions import SEPARATOR
from workloads.traces import generators
from workloads.traces import suite as task_suite
from workloads.traces.history import Surroundings, surroundings
from workloads.traces.job import Lines, TraceJob, number
from workloads.traces.readers import read_trace
from workloads.traces.throughputs import UNIT_KIND, ScaledRates, ThroughputTable, UnitRates, with_kinds

Number = TypeVar("Number", int, float)
PER_NODE = 4
PRICES_USD_PER_HOUR = {"v100": 0.74, "p100": 0.43, "k80": 0.135}  # as published; any other type: 1
GENERATORS = ("published", "bursty", "suite")


def cluster_of(text: str) -> Cluster:
    """Return the cluster of `v100:36,p100:36,k80:36:8`: type, workers, workers per node (default 4).

    With regions, `v100:8@eu,v100:4@us`, each type is that of its region.

    Raise InvalidRequest for any other form.
    """
    workers: list[Worker] = []
    for part in text.split(","):
        text_of_type, _, region = part.strip().partition("@")
        name, *numbers = text_of_type.split(":")
        if not name or not 1 <= len(numbers) <= 2 or not all(n.isdigit() and int(n) > 0 for n in numbers):
            form = "write type:workers or type:workers:per-node, and @region after it where there are several"
            raise InvalidRequest("cluster", f"cannot read {part!r}; {form}")
        name = type_in_region(name, region) if region else name
        if any(worker.accelerator_type == name for worker in workers):
            raise InvalidRequest("cluster", f"names {name} twice; name each type once")
        place = name.replace(SEPARATOR, "-")
        count, per_node = int(numbers[0]), int(numbers[1]) if len(numbers) == 2 else PER_NODE
        workers += [
            Worker(
                id=f"{place}-{index}",
                node=f"{place}-node-{index // per_node}",
                accelerator_type=name,
                price_usd_per_hour=PRICES_USD_PER_HOUR.get(plain_type(name), 1.0),
            )
            for index in range(count)
        ]
    regions = {worker.node: region_of_type(worker.accelerator_type) for worker in workers}
    nodes = tuple(Node(name=name, region=region or LOCAL_REGION) for name, region in regions.items())
    return Cluster(nodes=nodes, workers=tuple(workers))


def range_of(text: str) -> tuple[int, int]:
    """Return the jobs of `4000:5000`, counted from 0, without the last. Raise InvalidRequest for any other form."""
    first, _, last = text.partition(":")
    if not (first.isdigit() and last.isdigit() and int(first) < int(last)):
        raise InvalidRequest("measure", f"cannot read {text!r}; write first:last, as 4000:5000")
    return int(first), int(last)


def tiers_of(texts: Sequence[str], traced: Sequence[Tier] = ()) -> tuple[Tier, ...]:
    """Return the tiers of texts such as `gold=2` (name and weight), with `default` and the `traced` tiers of the trace.

    A text may change the weight of a traced tier. Raise InvalidRequest for any other form.
    """
    tiers = {"default": Tier(name="default")} | {tier.name: tier for tier in traced}
    for text in texts:
        name, _, weight = text.partition("=")
        try:
            tiers[name] = replace(tiers.get(name, Tier(name=name)), weight=float(weight or 1.0))
        except ValueError:
            raise InvalidRequest("tier", f"cannot read {text!r}; write name=weight") from None
    return tuple(tiers[name] for name in sorted(tiers))


def costs_of(texts: Sequence[str]) -> dict[str, float]:
    """Return the seconds that a start costs, by job kind, of texts `KIND=30`, or `30` for all others.

    Raise InvalidRequest.
    """
    costs = {}
    for text in texts:
        kind, _, seconds = text.rpartition("=")
        try:
            costs[kind] = number(seconds, "seconds")
        except ValueError:
            raise InvalidRequest("switch-cost-s", f"cannot read {text!r}; write 30, or kind=30") from None
    return costs


def tier_shares_of(text: str) -> dict[str, float]:
    """Return the proportions of jobs by tier of a text such as `gold=1,silver=3`. Raise InvalidRequest."""
    shares = {}
    for part in text.split(","):
        name, _, share = part.strip().partition("=")
        try:
            shares[name] = number(share, "part", least=1e-9)
        except ValueError:
            name = ""
        if not name:
            raise InvalidRequest("tier-shares", f"cannot read {part!r}; write name=part,name=part, as gold=1,silver=3")
    return shares


def outages_of(losses: Sequence[str], drains: Sequence[str], cluster: Cluster) -> tuple[NodeOutage, ...]:
    """Return the outages of texts such as `v100-node-0=3600:7200`: a node, and from when until when (s) it is away."""
    nodes = {node.name for node in cluster.nodes}
    return tuple(
        _outage(text, name, nodes, is_drain=name == "drain")
        for name, texts in (("outage", losses), ("drain", drains))
        for text in texts
    )


def _outage(text: str, field: str, nodes: Collection[str], *, is_drain: bool) -> NodeOutage:
    node, _, times = text.rpartition("=")
    begin, _, end = times.partition(":")
    try:
        from_s, until_s = number(begin, "from"), number(end, "until")
    except ValueError:
        node, from_s, until_s = "", 0.0, 0.0
    if not node or until_s <= from_s:
        raise InvalidRequest(field, f"cannot read {text!r}; write node=from:until in seconds, as v100-node-0=3600:7200")
    if node not in nodes:
        raise InvalidRequest(field, f"there is no node {node!r}; nodes are named like {min(nodes)}")
    return NodeOutage(node=node, from_s=from_s, until_s=until_s, is_drain=is_drain)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """The jobs of a file, or of a generator with parameters, such as `published?jobs=900&per_hour=5.2&gangs=true`.

    They are read anew for each run, one job at a time. A job that names no kind gets one of the table's. With
    `tier_shares` each job's tier is drawn in these proportions. With `length_error` s, jobs state lengths that are off
    by a factor exp(s z), z standard normal; they end where they do without it. With `capacity_workers` of each type, a
    gang larger than all of them is refused, or left out if `is_lenient`.
    """

    text: str
    table: ThroughputTable | None = None
    form: str = ""
    is_lenient: bool = False
    seed: int = 0
    tier_shares: Mapping[str, float] = field(default_factory=dict)
    length_error: float = 0.0
    capacity_workers: Mapping[AcceleratorType, int] = field(default_factory=dict)

    def jobs(self) -> Iterator[TraceJob]:
        """Yield the jobs in order of arrival. Raise InvalidRequest that names a line which cannot be used."""
        return self.read()[0]

    def in_tiers(self, jobs: Iterator[TraceJob]) -> Iterator[TraceJob]:
        """Yield the jobs, each in a tier drawn by `tier_shares` if that is given."""
        draw = random.Random(self.seed)  # noqa: S311 - not for secrets
        names, parts = list(self.tier_shares), list(self.tier_shares.values())
        for job in jobs:
            yield replace(job, spec=replace(job.spec, tier=draw.choices(names, parts)[0])) if names else job

    def surroundings(self) -> Surroundings:
        """Return the cluster and tiers that the file names; none for a generator but that of the suite."""
        if self.text.partition("?")[0] == "suite":
            return Surroundings(cluster=task_suite.cluster())
        path = Path(self.text)
        is_history = self.form in ("", "history") and path.is_file()
        return surroundings(path) if is_history else Surroundings()

    def read(self) -> tuple[Iterator[TraceJob], "LeftOut"]:
        """Return the jobs, and what was left out, which is complete once all jobs were read."""
        name, _, query = self.text.partition("?")
        if name in GENERATORS:
            left_out = LeftOut(lines=(), too_large=[])
            drawn = _generated(name, query, self.table, self.seed)
            return self._fitting(misstated(self.in_tiers(drawn), self.length_error, self.seed), left_out), left_out
        path = Path(self.text)
        if not path.is_file():
            generators = ", ".join(GENERATORS)
            raise InvalidRequest("trace", f"there is no file {self.text!r}, nor a generator; those are {generators}")
        lines = Lines(path, is_lenient=self.is_lenient)
        jobs = read_trace(lines, self.form)
        left_out = LeftOut(lines=lines.skipped, too_large=[])
        kinds = with_kinds(jobs, self.table, seed=self.seed) if self.table else jobs
        return self._fitting(misstated(self.in_tiers(kinds), self.length_error, self.seed), left_out), left_out

    def _fitting(self, jobs: Iterator[TraceJob], left_out: "LeftOut") -> Iterator[TraceJob]:
        """Yield the jobs whose gangs fit the largest type. Raise InvalidRequest for others, unless it is lenient."""
        largest = max(self.capacity_workers, key=lambda name: self.capacity_workers[name], default="")
        for job in jobs:
            if not largest or job.spec.scale_factor <= self.capacity_workers[largest]:
                yield job
                continue
            reason = (
                f"job {job.spec.name} is a gang of {job.spec.scale_factor} workers, larger than any type: "
                f"the largest, {largest}, has {self.capacity_workers[largest]}"
            )
            if not self.is_lenient:
                raise InvalidRequest(
                    "trace", f"{reason}; a larger --cluster would do, or --lenient, which skips such jobs"
                )
            left_out.too_large.append(reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """The reason for each line that could not be used, and for each job that is larger than any type."""

    lines: Sequence[str]
    too_large: list[str]

    def notes(self) -> tuple[str, ...]:
        """Return a sentence for each sort of entry that was left out, with the first one as an example."""
        sorts = (("lines", self.lines), ("jobs larger than any type", self.too_large))
        return tuple(f"{len(of)} {sort} skipped; the first is {of[0]}" for sort, of in sorts if of)


@dataclass(slots=True)
class Survey:
    """What one pass over all jobs finds: how many, which are measured, their stated throughputs, what was left out.

    `by_size` are the throughputs of elastic jobs and of execution plans. `needs_driver`: some wait for others;
    `is_elastic`: some are elastic, or have plans. `at_once`: the measured jobs if all arrive at the same instant, else
    empty; if not empty, all of them are active anyway.
    """

    jobs: int = 0
    measured: int = 0
    at_once: list[TraceJob] = field(default_factory=list)
    stated: dict[tuple[str, int, str], float] = field(default_factory=dict)
    by_size: dict[tuple[str, int, str], float] = field(default_factory=dict)
    unknown_kind: str = ""
    needs_driver: bool = False
    is_elastic: bool = False
    left_out: tuple[str, ...] = ()

    def see(self, job: TraceJob, *, is_measured: bool) -> None:
        """Count one more job."""
        spec = job.spec
        self.jobs += 1
        self.needs_driver = self.needs_driver or bool(spec.after)
        self.is_elastic = self.is_elastic or spec.has_choice
        self.by_size |= job.speeds
        for name, rate in spec.throughput_steps_per_s.items():
            self.stated[spec.kind, spec.scale_factor, name] = rate
        if spec.kind != UNIT_KIND and not (spec.throughput_steps_per_s or job.steps_per_s or job.plan_steps_per_s):
            self.unknown_kind = self.unknown_kind or spec.kind
        if is_measured:
            self.measured += 1
            self.at_once.append(job)
            if len(self.at_once) < self.measured or job.submitted_at_s != self.at_once[0].submitted_at_s:
                self.at_once.clear()


def survey(workload: Workload, measure: tuple[int, int] | None) -> Survey:
    """Read the whole workload once. Raise InvalidRequest as its reader does, and for a range beyond its jobs."""
    seen = Survey()
    jobs, left_out = workload.read()
    for place, job in enumerate(jobs):
        seen.see(job, is_measured=measure is None or place in range(*measure))
    seen.left_out = left_out.notes()
    if not seen.jobs:
        raise InvalidRequest("trace", "; ".join(("has no job that can be simulated", *seen.left_out)))
    if measure and measure[1] > seen.jobs:
        raise InvalidRequest(
            "measure", f"{measure[0]}:{measure[1]} reaches beyond the trace, which has {seen.jobs} jobs (0:{seen.jobs})"
        )
    return seen


def rates(seen: Survey, table: ThroughputTable | None) -> ScaledRates | UnitRates | dict[tuple[str, int, str], float]:
    """Return the throughput of every job: the table's, else what jobs state, else one step a second."""
    if table:
        return ScaledRates(replace(table, rates={**table.rates, **seen.by_size}))
    if seen.unknown_kind:
        raise InvalidRequest("throughputs", f"nobody states how fast {seen.unknown_kind!r} is; give --throughputs")
    return seen.stated | seen.by_size or UnitRates()


def misstated(jobs: Iterable[TraceJob], length_error: float, seed: int) -> Iterator[TraceJob]:
    """Yield the jobs, whose stated lengths are off by exp(`length_error` z), z standard normal; 0: as they are."""
    draw = random.Random(f"lengths {seed}")  # noqa: S311 - not for secrets
    for job in jobs:
        factor = math.exp(length_error * draw.gauss(0.0, 1.0)) if length_error else 1.0
        yield job if factor == 1 else _stating(job, factor)


def _stating(job: TraceJob, factor: float) -> TraceJob:
    """Return the job with a statement of its length that is `factor` times as long as it is."""
    stated = job.spec.total_steps and max(1, round(job.spec.total_steps * factor))
    return replace(job, spec=replace(job.spec, total_steps=stated), ends_at_step=job.total_steps)


def _generated(name: str, query: str, table: ThroughputTable | None, seed: int) -> Iterator[TraceJob]:
    given = dict(parse_qsl(query))
    if name == "suite":
        _check_parameters(name, given, needed={"workload", "jobs"})
        return task_suite.suite(given["workload"], jobs=_number(query, given["jobs"], int), seed=seed)
    if table is None:
        raise InvalidRequest("throughputs", f"the {name} workload is drawn from a throughput table; give one")
    _check_parameters(
        name, given, needed={"jobs", "per_hour"}, others={"gangs", "elastic"} if name == "published" else {"users"}
    )
    jobs, per_hour = _number(query, given["jobs"], int), _number(query, given["per_hour"], float)
    if name == "bursty":
        users = _number(query, given.get("users", "12"), int)
        return generators.bursty(jobs, table, per_hour=per_hour, seed=seed, users=users)
    drawn = generators.published(jobs, table, per_hour=per_hour, seed=seed, has_gangs=given.get("gangs") == "true")
    return generators.elastic(drawn, table) if given.get("elastic") == "true" else drawn


def _check_parameters(
    name: str, given: Mapping[str, str], *, needed: Collection[str], others: Collection[str] = ()
) -> None:
    if set(given) - {*needed, *others} or not set(needed) <= set(given):
        raise InvalidRequest(
            "trace", f"{name} takes {', '.join(sorted((*needed, *others)))}; got {', '.join(given) or 'nothing'}"
        )


def _number(query: str, text: str, kind: Callable[[str], Number]) -> Number:
    try:
        return kind(text)
    except ValueError as error:
        raise InvalidRequest("trace", f"cannot read {query!r}: {error}") from None
