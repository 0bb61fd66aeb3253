"""The demo's Ray cluster: three nodes on this machine, each with an accelerator type of its own."""

import os
from pathlib import Path

from gavel.backends.accelerators import capped_types
from gavel.backends.ray.local_cluster import REPORT_PERIOD_S, LocalRayCluster, NodeSpec

WORKERS = (2, 2, 1)  # of the nodes: gangs of two fit on two of the types


def three_nodes() -> LocalRayCluster:
    """Return a cluster, not started yet, of the three CPU types of this machine that differ most.

    Each node's workers are pinned to one core; on two cores, the third node shares the second one's.
    """
    cores = sorted(os.sched_getaffinity(0))
    types = [*capped_types()][: len(WORKERS)] or ["one", "two", "three"]  # without AVX2 they differ by name only
    return LocalRayCluster(
        [
            NodeSpec(
                name=f"node-{name}",
                resources={f"gavel:{name}": workers},
                labels={"gavel/cpus": str(cores[min(index, len(cores) - 1)])},
            )
            for index, (name, workers) in enumerate(zip(types, WORKERS, strict=True))
        ]
    )


def ray_settings(cluster: LocalRayCluster, state_dir: Path) -> dict[str, str]:
    """Return the environment variables of a service that runs on the cluster."""
    return {
        "GAVEL_BACKEND": "ray",
        "GAVEL_RAY_ADDRESS": cluster.address,
        "GAVEL_RAY_NODE_DIR": str(state_dir / "nodes"),
        "GAVEL_RAY_REPORT_PERIOD_S": str(REPORT_PERIOD_S),
        **cluster.environment,
    }
