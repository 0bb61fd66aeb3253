"""What an hour of a worker costs: the operator says it for each accelerator type, whatever runs the gangs."""

from collections.abc import Mapping
from dataclasses import replace

from gavel.types import AcceleratorType, Cluster


def priced(cluster: Cluster, usd_per_hour: Mapping[AcceleratorType, float]) -> Cluster:
    """Return the cluster with these prices; workers of other types keep theirs."""
    if not usd_per_hour:
        return cluster
    workers = (
        replace(worker, price_usd_per_hour=usd_per_hour.get(worker.accelerator_type, worker.price_usd_per_hour))
        for worker in cluster.workers
    )
    return replace(cluster, workers=tuple(workers))
