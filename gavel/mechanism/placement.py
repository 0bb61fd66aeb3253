"""Which workers of its accelerator type a gang gets: those it has, else as few nodes as can be."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from gavel.types import AcceleratorType, Cluster, JobId, Worker, WorkerId


def place(
    chosen: Mapping[JobId, tuple[AcceleratorType, int]],
    cluster: Cluster,
    held: Mapping[JobId, tuple[WorkerId, ...]],
) -> dict[JobId, tuple[WorkerId, ...]]:
    """Workers for each chosen (type, scale factor). Gangs that stay keep theirs; of the others the largest goes first.

    The caller has made sure that the chosen gangs fit their types.
    """
    free = {worker.id: worker for worker in cluster.workers}
    placed: dict[JobId, tuple[WorkerId, ...]] = {}
    for job_id, (accelerator_type, scale_factor) in chosen.items():
        workers = held.get(job_id, ())
        if len(workers) == scale_factor and all(_is_free(free, w, accelerator_type) for w in workers):
            placed[job_id] = workers
            for worker in workers:
                del free[worker]
    rest = [item for item in chosen.items() if item[0] not in placed]
    for job_id, (accelerator_type, scale_factor) in sorted(rest, key=lambda item: (-item[1][1], item[0])):
        candidates = [worker for worker in free.values() if worker.accelerator_type == accelerator_type]
        workers = _fewest_nodes(candidates, scale_factor)
        placed[job_id] = workers
        for worker in workers:
            del free[worker]
    return placed


def _is_free(free: Mapping[WorkerId, Worker], worker: WorkerId, accelerator_type: AcceleratorType) -> bool:
    return worker in free and free[worker].accelerator_type == accelerator_type


def _fewest_nodes(candidates: Iterable[Worker], count: int) -> tuple[WorkerId, ...]:
    """The tightest single node that holds the gang, else the fullest nodes one after the other."""
    by_node: dict[str, list[WorkerId]] = defaultdict(list)
    for worker in candidates:
        by_node[worker.node].append(worker.id)
    fitting = [ids for ids in by_node.values() if len(ids) >= count]
    if fitting:
        return tuple(min(fitting, key=len)[:count])
    taken: list[WorkerId] = []
    groups: Sequence[list[WorkerId]] = sorted(by_node.values(), key=len, reverse=True)
    for ids in groups:
        taken += ids[: count - len(taken)]
    assert len(taken) == count, f"a gang of {count} was chosen where {len(taken)} workers are free"
    return tuple(taken)
