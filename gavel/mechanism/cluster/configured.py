"""What an operator states of nodes and accelerators, where the backend does not know it."""

from collections.abc import Mapping
from dataclasses import replace

from gavel.config import Settings
from gavel.mechanism.cluster.prices import priced
from gavel.types import AcceleratorType, Cluster, type_in_region


def as_configured(
    cluster: Cluster,
    *,
    node_labels: Mapping[str, Mapping[str, str]],
    accelerator_memory_bytes: Mapping[AcceleratorType, int],
) -> Cluster:
    """Return the cluster with these labels (by node, then key) and with the memory of accelerators by type.

    A stated label replaces one that the backend reports; a stated memory counts only where the backend reports none.
    """
    if not node_labels and not accelerator_memory_bytes:
        return cluster
    return Cluster(
        nodes=tuple(
            replace(node, labels={**node.labels, **node_labels[node.name]}) if node.name in node_labels else node
            for node in cluster.nodes
        ),
        workers=tuple(
            worker
            if worker.memory_bytes or worker.accelerator_type not in accelerator_memory_bytes
            else replace(worker, memory_bytes=accelerator_memory_bytes[worker.accelerator_type])
            for worker in cluster.workers
        ),
    )


def by_settings(cluster: Cluster, settings: Settings) -> Cluster:
    """Return the cluster with what the operator states of it: labels, memory of accelerators, prices, regions."""
    stated = as_configured(
        cluster,
        node_labels=settings.node_labels,
        accelerator_memory_bytes=settings.accelerator_memory_bytes,
    )
    stated = priced(stated, settings.prices_usd_per_hour)
    return stated if settings.regions is None else in_regions(stated)


def in_regions(cluster: Cluster) -> Cluster:
    """Return the cluster in which each accelerator type is that of one region: `v100@eu`."""
    region_of = {node.name: node.region for node in cluster.nodes}
    workers = (
        replace(worker, accelerator_type=type_in_region(worker.accelerator_type, region_of[worker.node]))
        for worker in cluster.workers
    )
    return replace(cluster, workers=tuple(workers))


def regions_of(cluster: Cluster) -> tuple[str, ...]:
    """Return the regions of the nodes, sorted."""
    return tuple(sorted({node.region for node in cluster.nodes}))
