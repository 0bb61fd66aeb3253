"""What to simulate, as a person writes it: clusters, workloads, tiers; each mistake is named with what would do."""

import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import parse_qsl

from gavel.errors import InvalidRequest
from gavel.simulator.outcome import NodeOutage
from gavel.types import Cluster, Node, Tier, Worker
from workloads.traces import generators
from workloads.traces.job import Lines, TraceJob, number
from workloads.traces.readers import read_trace
from workloads.traces.throughputs import UNIT_KIND, ScaledRates, ThroughputTable, UnitRates, with_kinds

PER_NODE = 4
PRICES_USD_PER_HOUR = {"v100": 0.74, "p100": 0.43, "k80": 0.135}  # as published; any other type: 1
GENERATORS = ("published", "bursty")


def cluster_of(text: str) -> Cluster:
    """`v100:36,p100:36,k80:36:8`: type, workers, workers per node (4 by default). Raises InvalidRequest."""
    workers: list[Worker] = []
    for part in text.split(","):
        name, *numbers = part.strip().split(":")
        if not name or not 1 <= len(numbers) <= 2 or not all(n.isdigit() and int(n) > 0 for n in numbers):
            raise InvalidRequest("cluster", f"cannot read {part!r}; write type:workers or type:workers:per-node")
        if any(worker.accelerator_type == name for worker in workers):
            raise InvalidRequest("cluster", f"names {name} twice; name each type once")
        count, per_node = int(numbers[0]), int(numbers[1]) if len(numbers) == 2 else PER_NODE
        workers += [
            Worker(
                id=f"{name}-{index}",
                node=f"{name}-node-{index // per_node}",
                accelerator_type=name,
                price_usd_per_hour=PRICES_USD_PER_HOUR.get(name, 1.0),
            )
            for index in range(count)
        ]
    nodes = tuple(Node(name=name) for name in dict.fromkeys(worker.node for worker in workers))
    return Cluster(nodes=nodes, workers=tuple(workers))


def range_of(text: str) -> tuple[int, int]:
    """`4000:5000`: jobs counted from 0, the last not included. Raises InvalidRequest."""
    first, _, last = text.partition(":")
    if not (first.isdigit() and last.isdigit() and int(first) < int(last)):
        raise InvalidRequest("measure", f"cannot read {text!r}; write first:last, as 4000:5000")
    return int(first), int(last)


def tiers_of(texts: Sequence[str]) -> tuple[Tier, ...]:
    """`gold=2` for each: a name and a weight; `default` is there in any case. Raises InvalidRequest."""
    tiers = {"default": Tier(name="default")}
    for text in texts:
        name, _, weight = text.partition("=")
        try:
            tiers[name] = Tier(name=name, weight=float(weight or 1.0))
        except ValueError:
            raise InvalidRequest("tier", f"cannot read {text!r}; write name=weight") from None
    return tuple(tiers[name] for name in sorted(tiers))


def costs_of(texts: Sequence[str]) -> dict[str, float]:
    """Seconds that a start costs by job kind: `KIND=30` for each, or `30` for every other. Raises InvalidRequest."""
    costs = {}
    for text in texts:
        kind, _, seconds = text.rpartition("=")
        try:
            costs[kind] = number(seconds, "seconds")
        except ValueError:
            raise InvalidRequest("switch-cost-s", f"cannot read {text!r}; write 30, or kind=30") from None
    return costs


def tier_shares_of(text: str) -> dict[str, float]:
    """`gold=1,silver=3`: tiers, and how many jobs of each there are to those of the others. Raises InvalidRequest."""
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
    """`v100-node-0=3600:7200` for each: a node, and the seconds from which to which it is away."""
    known = {node.name for node in cluster.nodes}
    return tuple(
        _outage(text, name, known, is_drain=name == "drain")
        for name, texts in (("outage", losses), ("drain", drains))
        for text in texts
    )


def _outage(text: str, field: str, known: Collection[str], *, is_drain: bool) -> NodeOutage:
    node, _, times = text.rpartition("=")
    begin, _, end = times.partition(":")
    try:
        from_s, until_s = number(begin, "from"), number(end, "until")
    except ValueError:
        node, from_s, until_s = "", 0.0, 0.0
    if not node or until_s <= from_s:
        raise InvalidRequest(field, f"cannot read {text!r}; write node=from:until in seconds, as v100-node-0=3600:7200")
    if node not in known:
        raise InvalidRequest(field, f"there is no node {node!r}; nodes are named like {min(known)}")
    return NodeOutage(node=node, from_s=from_s, until_s=until_s, is_drain=is_drain)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Jobs of a file, or of `published?jobs=900&per_hour=5.2&gangs=true` or `bursty?jobs=..&per_hour=..&users=..`.

    Read anew for each run, a job at a time. A job that names no kind gets one of the table's. With `tier_shares` each
    job's tier is drawn, so many parts to each.
    """

    text: str
    table: ThroughputTable | None = None
    form: str = ""
    is_lenient: bool = False
    seed: int = 0
    tier_shares: Mapping[str, float] = field(default_factory=dict)

    def jobs(self) -> Iterator[TraceJob]:
        """From the first on, in order of arrival; raises InvalidRequest naming a line that cannot be used."""
        return self.read()[0]

    def in_tiers(self, jobs: Iterator[TraceJob]) -> Iterator[TraceJob]:
        """The jobs, each in a tier drawn by `tier_shares`, if there are any."""
        draw = random.Random(self.seed)  # noqa: S311 - not for secrets
        names, parts = list(self.tier_shares), list(self.tier_shares.values())
        for job in jobs:
            yield replace(job, spec=replace(job.spec, tier=draw.choices(names, parts)[0])) if names else job

    def read(self) -> tuple[Iterator[TraceJob], Lines | None]:
        """The same, and the reader that counts the lines it skipped, if it is a file."""
        name, _, query = self.text.partition("?")
        if name in GENERATORS:
            return self.in_tiers(_generated(name, query, self.table, self.seed)), None
        path = Path(self.text)
        if not path.is_file():
            known = ", ".join(GENERATORS)
            raise InvalidRequest("trace", f"there is no file {self.text!r}, nor a generator; those are {known}")
        lines = Lines(path, is_lenient=self.is_lenient)
        jobs = read_trace(lines, self.form)
        return self.in_tiers(with_kinds(jobs, self.table, seed=self.seed) if self.table else jobs), lines


@dataclass(slots=True)
class Survey:
    """What one look at all jobs tells: how many, which of them are measured, what they state, what was skipped.

    `at_once`: the measured jobs if they all arrive at the same instant, else empty; then all of them are active anyway.
    """

    jobs: int = 0
    measured: int = 0
    at_once: list[TraceJob] = field(default_factory=list)
    stated: dict[tuple[str, int, str], float] = field(default_factory=dict)
    unknown_kind: str = ""
    skipped: Sequence[str] = ()

    def see(self, job: TraceJob, *, is_measured: bool) -> None:
        """One more job."""
        spec = job.spec
        self.jobs += 1
        for name, rate in spec.throughput_steps_per_s.items():
            self.stated[spec.kind, spec.scale_factor, name] = rate
        if spec.kind != UNIT_KIND and not spec.throughput_steps_per_s:
            self.unknown_kind = self.unknown_kind or spec.kind
        if is_measured:
            self.measured += 1
            self.at_once.append(job)
            if len(self.at_once) < self.measured or job.submitted_at_s != self.at_once[0].submitted_at_s:
                self.at_once.clear()


def survey(workload: Workload, measure: tuple[int, int] | None) -> Survey:
    """Read the whole workload once; raises InvalidRequest like its reader."""
    seen = Survey()
    jobs, lines = workload.read()
    for place, job in enumerate(jobs):
        seen.see(job, is_measured=measure is None or place in range(*measure))
    seen.skipped = lines.skipped if lines else ()
    return seen


def rates(seen: Survey, table: ThroughputTable | None) -> ScaledRates | UnitRates | dict[tuple[str, int, str], float]:
    """The throughput of every job: the table's, else what jobs state, else one step a second."""
    if table:
        return ScaledRates(table)
    if seen.unknown_kind:
        raise InvalidRequest("throughputs", f"nobody states how fast {seen.unknown_kind!r} is; give --throughputs")
    return seen.stated or UnitRates()


def _generated(name: str, query: str, table: ThroughputTable | None, seed: int) -> Iterator[TraceJob]:
    if table is None:
        raise InvalidRequest("throughputs", f"the {name} workload is drawn from a throughput table; give one")
    given = dict(parse_qsl(query))
    known = {"jobs", "per_hour", "gangs" if name == "published" else "users"}
    if set(given) - known or not {"jobs", "per_hour"} <= set(given):
        raise InvalidRequest("trace", f"{name} takes {', '.join(sorted(known))}; got {query!r}")
    try:
        jobs, per_hour = int(given["jobs"]), float(given["per_hour"])
        users = int(given.get("users", 12))
    except ValueError as error:
        raise InvalidRequest("trace", f"cannot read {query!r}: {error}") from None
    if name == "bursty":
        return generators.bursty(jobs, table, per_hour=per_hour, seed=seed, users=users)
    return generators.published(jobs, table, per_hour=per_hour, seed=seed, has_gangs=given.get("gangs") == "true")
