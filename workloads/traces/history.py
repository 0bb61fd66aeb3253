"""This service's own history: one JSON object per line, first its cluster and tiers, then each job.

    {"cluster": {"nodes": [..], "workers": [..]}, "tiers": [..]}
    {"id": "..", "submitted_at_s": 0.0, "kind": "mlp", "total_steps": 500, "priority": 2, "after": [".."], ..}

`gavel export-trace` writes it and `gavel simulate` reads it. The first line may be left out. A job needs only
`submitted_at_s`, `kind` and `total_steps`.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from gavel.errors import InvalidRequest
from gavel.types import Cluster, JobSpec, Node, Tier, Worker
from workloads.traces.job import Lines, TraceJob, number, whole
from workloads.traces.plans import BY_SIZE, SizeRates, plan_of, plan_row, rates, rates_by_size

TIER = "default"
COPIED = (
    "kind",
    "name",
    "user",
    "tier",
    "total_steps",
    "scale_factor",
    "sizes",
    "global_batch",
    "max_global_batch",
    "weight",
    "priority",
    "preemptible",
    "cpu_cores",
    "memory_bytes",
    "accelerator_types",
    "accelerator_memory_bytes",
    "node_labels",
    "regions",
    "data_region",
    "data_bytes",
    "max_retries",
)
"""Fields of a job that a line has under the same name and with the same value."""

LOWEST_PRIORITY = -1_000

Noun = TypeVar("Noun", Node, Worker, Tier)


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """The cluster and tiers of a history; None and empty if the file has none."""

    cluster: Cluster | None = None
    tiers: tuple[Tier, ...] = ()


def written(
    jobs: Sequence[Mapping[str, Any]],
    steps_per_s: Mapping[str, Mapping[str, SizeRates]],
    cluster: Mapping[str, Any],
    tiers: Iterable[Mapping[str, Any]],
) -> Iterator[str]:
    """Yield the lines of a history of `jobs`, oldest first; the arguments have the form of the API's answers.

    `steps_per_s` is {job id: {kind: {size: {type: steps/s}}}}, of the job's kind, or of those of its execution plans.
    Times count from the first submission.
    """
    around = {
        name: [_plain(kind, each) for each in cluster[name]] for name, kind in (("nodes", Node), ("workers", Worker))
    }
    yield json.dumps({"cluster": around, "tiers": [_plain(Tier, each) for each in tiers]}) + "\n"
    for job in jobs:
        yield json.dumps(_line(job, jobs[0]["submitted_at_s"], steps_per_s.get(job["id"], {}))) + "\n"


def lines_of(jobs: Iterable[TraceJob], around: Surroundings) -> Iterator[str]:
    """Yield the lines of a history of `jobs`, in order of arrival, in these surroundings; `history` reads them."""
    if around.cluster is not None:
        nodes, workers = map(_each_as_dict, (around.cluster.nodes, around.cluster.workers))
        tiers = _each_as_dict(around.tiers)
        yield json.dumps({"cluster": {"nodes": nodes, "workers": workers}, "tiers": tiers}) + "\n"
    for job in jobs:
        spec = {name: getattr(job.spec, name) for name in (*COPIED, "deadline_at_s", "after", "throughput_steps_per_s")}
        row = {"id": job.id, "submitted_at_s": job.submitted_at_s, **spec, "total_steps": job.total_steps}
        row |= {BY_SIZE: job.steps_per_s} if job.steps_per_s else {}
        if job.spec.plans:
            plans = (_as_dict(plan) for plan in job.spec.plans)
            row |= {"plans": [plan_row(plan, job.plan_steps_per_s.get(plan["name"], {})) for plan in plans]}
        yield json.dumps(row, default=dict) + "\n"


def _each_as_dict(nouns: Iterable[Any]) -> list[dict[str, Any]]:
    return [_as_dict(each) for each in nouns]


def _as_dict(noun: Any) -> dict[str, Any]:
    return {field.name: getattr(noun, field.name) for field in fields(noun)}


def _line(job: Mapping[str, Any], start_s: float, steps_per_s: Mapping[str, SizeRates]) -> dict[str, Any]:
    deadline_at_s = job["deadline_at_s"]
    own = steps_per_s.get(job["kind"], {})
    by_choice: dict[str, Any] = {}
    if job["plans"]:
        by_choice = {"plans": [plan_row(plan, steps_per_s.get(plan["kind"], {})) for plan in job["plans"]]}
    elif job["sizes"]:
        by_choice = {BY_SIZE: {size: dict(of_size) for size, of_size in own.items()}}
    return {
        "id": job["id"],
        "submitted_at_s": round(job["submitted_at_s"] - start_s, 3),
        **{name: job[name] for name in COPIED},
        "total_steps": job["total_steps"] or max(1, job["steps_done"]),  # of a job that never said it, what it did
        "deadline_at_s": None if deadline_at_s is None else round(deadline_at_s - start_s, 3),
        "after": list(job["after"]),
        "throughput_steps_per_s": {} if by_choice else dict(own.get(job["scale_factor"], {})),
        **by_choice,
    }


def _plain(kind: type, view: Mapping[str, Any]) -> dict[str, Any]:
    return {each.name: view[each.name] for each in fields(kind) if each.name in view}


def surroundings(path: Path) -> Surroundings:
    """Return the cluster and tiers of the history at `path`; empty for a file that is no history.

    Raises InvalidRequest if the first line has a field that no cluster or tier has.
    """
    try:
        with path.open(encoding="utf-8") as lines:
            row = json.loads(lines.readline())
    except ValueError:
        return Surroundings()
    if not isinstance(row, dict) or not _is_surroundings(row):
        return Surroundings()
    try:
        around = row.get("cluster")
        return Surroundings(
            cluster=around
            and Cluster(nodes=_nouns(Node, around.get("nodes", ())), workers=_nouns(Worker, around["workers"])),
            tiers=_nouns(Tier, row.get("tiers", ())),
        )
    except (TypeError, KeyError, AttributeError) as error:
        raise InvalidRequest(f"{path.name}, line 1", f"its cluster or tiers cannot be read: {error}") from error


def _nouns(kind: type[Noun], rows: Iterable[Mapping[str, Any]]) -> tuple[Noun, ...]:
    return tuple(kind(**row) for row in rows)


def _is_surroundings(row: Mapping[str, Any]) -> bool:
    return "kind" not in row and bool(row.keys() & {"cluster", "tiers"})


def history(lines: Lines) -> Iterator[TraceJob]:
    """Return the jobs of a history, in the order of the file."""
    return lines.read(_job)


def _job(line_number: int, line: str) -> TraceJob | None:
    try:
        row: dict[str, Any] = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"is no JSON: {error.msg}") from error
    if line_number == 1 and _is_surroundings(row):
        return None
    deadline = row.get("deadline_at_s")
    sizes = tuple(sorted({whole(str(size), "sizes") for size in row.get("sizes", ())}))
    plans = [plan_of(each) for each in row.get("plans", ())]
    spec = JobSpec(
        argv=(),
        kind=plans[0][0].kind if plans else str(row["kind"]),  # a job begins with the first plan
        plan=plans[0][0].name if plans else "",
        plans=tuple([plan for plan, _ in plans]),
        name=str(row.get("name", "")),
        user=str(row.get("user", "nobody")),
        tier=str(row.get("tier", TIER)),
        total_steps=whole(str(row["total_steps"]), "total_steps"),
        scale_factor=min(sizes) if sizes else whole(str(row.get("scale_factor", 1)), "scale_factor"),
        sizes=sizes,
        global_batch=whole(str(row.get("global_batch") or 0), "global_batch", least=0),
        max_global_batch=whole(str(row.get("max_global_batch") or 0), "max_global_batch", least=0),
        weight=number(str(row.get("weight", 1.0)), "weight", least=1e-9),
        priority=whole(str(row.get("priority", 0)), "priority", least=LOWEST_PRIORITY),
        preemptible=bool(row.get("preemptible", True)),
        cpu_cores=whole(str(row.get("cpu_cores", 1)), "cpu_cores", least=0),
        memory_bytes=whole(str(row.get("memory_bytes", 0)), "memory_bytes", least=0),
        accelerator_types=tuple(str(each) for each in row.get("accelerator_types", ())),
        accelerator_memory_bytes=whole(
            str(row.get("accelerator_memory_bytes", 0)), "accelerator_memory_bytes", least=0
        ),
        node_labels={str(key): str(value) for key, value in dict(row.get("node_labels", {})).items()},
        regions=tuple(str(each) for each in row.get("regions", ())),
        data_region=str(row.get("data_region", "")),
        data_bytes=whole(str(row.get("data_bytes", 0)), "data_bytes", least=0),
        max_retries=whole(str(row.get("max_retries", 0)), "max_retries", least=0),
        after=tuple(str(each) for each in row.get("after", ())),
        deadline_at_s=None if deadline is None else number(str(deadline), "deadline_at_s", least=-1e12),
        throughput_steps_per_s=rates(row.get("throughput_steps_per_s", {})),
    )
    return TraceJob(
        submitted_at_s=number(str(row["submitted_at_s"]), "submitted_at_s"),
        spec=spec,
        id=str(row.get("id", "")),
        steps_per_s=rates_by_size(row.get(BY_SIZE, {})),
        plan_steps_per_s={plan.name: of_plan for plan, of_plan in plans},
    )
