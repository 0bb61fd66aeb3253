"""Why a job can run nowhere in a cluster, by the field that rules it out, and what would do."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from gavel.mechanism.cluster.configured import regions_of
from gavel.mechanism.cluster.feasibility import Feasibility
from gavel.types import EXCLUDED, JobSpec, Needs, plain_type

NAMES_MAX = 8  # in one sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class UnmetNeed:
    """The field of a submission that no accelerator type meets, a sentence on it, and what would do ("": nothing)."""

    field: str
    message: str
    would_do: str = ""


def unmet_need(spec: JobSpec, feasibility: Feasibility) -> UnmetNeed | None:
    """Return why the gang can run on no type of the cluster; None if it can.

    The field is the one without which the gang could run; if there is no such single field, the first that was stated.
    """
    if feasibility.types_of(spec):
        return None
    stated = [each for each in _stated(spec.needs) if each.is_stated]
    alone = [each for each in stated if _fits(spec, each.without(spec.needs), feasibility)]
    for each in alone or stated:
        would_do = each.would_do(spec, feasibility) if alone else ""
        joint = "" if alone else " together with its other needs"
        message = f"no accelerator type has room for {_gang(spec)}: {each.wanted}{joint}"
        return UnmetNeed(
            field=each.field, message=message, would_do=would_do or "Leave the field out, or ask for less."
        )
    return None


def _gang(spec: JobSpec) -> str:
    return "this job" if spec.scale_factor == 1 else f"this gang of {spec.scale_factor}"


def _fits(spec: JobSpec, needs: Needs, feasibility: Feasibility) -> bool:
    return any(ranks >= spec.scale_factor for ranks in feasibility.ranks(needs).values())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stated:
    """One field of a job's needs: whether it was stated, what it asks for, and how to leave it out."""

    field: str
    is_stated: bool
    wanted: str
    without: Callable[[Needs], Needs]
    would_do: Callable[[JobSpec, Feasibility], str]


def _stated(needs: Needs) -> Iterator[_Stated]:
    labels = ", ".join(f"{key}={value}" for key, value in needs.node_labels)
    yield _Stated(
        field="accelerator_types",
        is_stated=bool(needs.accelerator_types),
        wanted=f"it allows {', '.join(needs.accelerator_types)}",
        without=lambda each: replace(each, accelerator_types=()),
        would_do=_other_types,
    )
    yield _Stated(
        field="accelerator_memory_bytes",
        is_stated=needs.accelerator_memory_bytes > 0,
        wanted=f"it needs accelerators with {needs.accelerator_memory_bytes} bytes of memory",
        without=lambda each: replace(each, accelerator_memory_bytes=0),
        would_do=_less_accelerator_memory,
    )
    yield _Stated(
        field="node_labels",
        is_stated=bool(needs.node_labels),
        wanted=f"it needs nodes with {labels}",
        without=lambda each: replace(each, node_labels=()),
        would_do=_other_labels,
    )
    yield _Stated(
        field="regions",
        is_stated=bool(needs.regions),
        wanted=f"it may be in {', '.join(needs.regions)} only",
        without=lambda each: replace(each, regions=()),
        would_do=_other_regions,
    )
    yield _Stated(
        field="cpu_cores",
        is_stated=needs.cpu_cores > 1,
        wanted=f"each rank needs {needs.cpu_cores} CPU cores",
        without=lambda each: replace(each, cpu_cores=1),
        would_do=_fewer_cores,
    )
    yield _Stated(
        field="memory_bytes",
        is_stated=needs.memory_bytes > 0,
        wanted=f"each rank needs {needs.memory_bytes} bytes of memory",
        without=lambda each: replace(each, memory_bytes=0),
        would_do=_less_memory,
    )


def _other_types(spec: JobSpec, feasibility: Feasibility) -> str:
    ranks = feasibility.ranks(replace(spec.needs, accelerator_types=()))
    names = [name for name, count in ranks.items() if count >= spec.scale_factor]
    return f"It could run on {', '.join(names[:NAMES_MAX])}."


def _less_accelerator_memory(spec: JobSpec, feasibility: Feasibility) -> str:
    sizes = sorted({worker.memory_bytes for worker in feasibility.cluster.workers}, reverse=True)
    for size in sizes:
        if size and _fits(spec, replace(spec.needs, accelerator_memory_bytes=size), feasibility):
            return f"At most {size} would do."
    return "The memory of its accelerators is not known to the service; the setting accelerator_memory_bytes states it."


def _other_labels(spec: JobSpec, feasibility: Feasibility) -> str:
    nodes = feasibility.cluster.nodes
    there = sorted({f"{key}={node.labels[key]}" for key in spec.node_labels for node in nodes if key in node.labels})
    if there:
        return f"Nodes have {', '.join(there[:NAMES_MAX])}."
    keys = sorted({key for node in nodes for key in node.labels})
    return f"Nodes have the labels {', '.join(keys[:NAMES_MAX])}." if keys else "No node has a label."


def _other_regions(spec: JobSpec, feasibility: Feasibility) -> str:
    regions = regions_of(feasibility.cluster)
    there = [each for each in regions if _fits(spec, replace(spec.needs, regions=(each,)), feasibility)]
    return f"It could run in {', '.join(there[:NAMES_MAX])}."


def _fewer_cores(spec: JobSpec, feasibility: Feasibility) -> str:
    most = _most(spec.cpu_cores - 1, lambda cores: _fits(spec, replace(spec.needs, cpu_cores=cores), feasibility))
    return f"At most {most} would do."


def _less_memory(spec: JobSpec, feasibility: Feasibility) -> str:
    most = _most(
        spec.memory_bytes - 1, lambda size: _fits(spec, replace(spec.needs, memory_bytes=size), feasibility), least=0
    )
    return f"At most {most} would do."


def _most(highest: int, fits: Callable[[int], bool], *, least: int = 1) -> int:
    """The largest number, from `least` to `highest`, that fits; `least` does."""
    low, high = least, highest
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def unknown_type(spec: JobSpec, feasibility: Feasibility) -> str:
    """Return the first accelerator type that the job names and the cluster does not have; "" if it has all."""
    names = (name.removeprefix(EXCLUDED) for name in spec.accelerator_types)
    there = {*feasibility.types, *map(plain_type, feasibility.types)}
    return next((name for name in names if name not in there), "")
