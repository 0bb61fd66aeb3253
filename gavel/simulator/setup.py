"""What to simulate, as a person writes it: clusters, workloads, tiers; each mistake is named with what would do."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from urllib.parse import parse_qsl

from gavel.errors import InvalidRequest
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


def workload(
    text: str, table: ThroughputTable | None, *, form: str = "", is_lenient: bool = False, seed: int = 0
) -> tuple[Iterator[TraceJob], Lines | None]:
    """Jobs of a file, or of `published?jobs=900&per_hour=5.2&gangs=true` or `bursty?jobs=..&per_hour=..&users=..`.

    With a file comes the reader that counts the lines it skipped. A job that names no kind gets one of the table's.
    """
    name, _, query = text.partition("?")
    if name in GENERATORS:
        return _generated(name, query, table, seed), None
    path = Path(text)
    if not path.is_file():
        raise InvalidRequest("trace", f"there is no file {text!r}, nor a generator; those are {', '.join(GENERATORS)}")
    lines = Lines(path, is_lenient=is_lenient)
    jobs = read_trace(lines, form)
    return (with_kinds(jobs, table, seed=seed) if table else jobs), lines


def rates(
    jobs: Iterable[TraceJob], table: ThroughputTable | None
) -> ScaledRates | UnitRates | dict[tuple[str, int, str], float]:
    """The throughput of every job: the table's, else what jobs state, else one step a second."""
    if table:
        return ScaledRates(table)
    stated = {
        (job.spec.kind, job.spec.scale_factor, name): rate
        for job in jobs
        for name, rate in job.spec.throughput_steps_per_s.items()
    }
    unknown = [job for job in jobs if job.spec.kind != UNIT_KIND and not job.spec.throughput_steps_per_s]
    if unknown:
        raise InvalidRequest("throughputs", f"nobody states how fast {unknown[0].spec.kind!r} is; give --throughputs")
    return stated or UnitRates()


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
