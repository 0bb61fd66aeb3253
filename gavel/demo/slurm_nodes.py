"""The demo's Slurm cluster: three nodes on this machine, each with an accelerator type of its own."""

from pathlib import Path

from gavel.backends.accelerators import capped_types
from gavel.backends.slurm.local_cluster import LocalSlurmCluster, SlurmNodeSpec

WORKERS = (2, 2, 1)  # of the nodes: gangs of two fit on two of the types
GRES = "core"


def three_nodes() -> LocalSlurmCluster:
    """Return a cluster, not started yet, of the three CPU types of this machine that differ most."""
    types = [*capped_types()][: len(WORKERS)] or ["one", "two", "three"]  # without AVX2 they differ by name only
    return LocalSlurmCluster(
        [
            SlurmNodeSpec(name=f"node-{name}", gres={f"{GRES}:{name}": workers})
            for name, workers in zip(types, WORKERS, strict=True)
        ]
    )


def slurm_settings(cluster: LocalSlurmCluster, state_dir: Path) -> dict[str, str]:
    """Return the environment variables of a service that runs on the cluster."""
    return {
        "GAVEL_BACKEND": "slurm",
        "GAVEL_SLURM__SHARED_DIR": str(state_dir / "shared"),
        "GAVEL_SLURM__NODE_DIR": str(state_dir / "nodes"),
        "GAVEL_SLURM__GRES": f'["{GRES}"]',
        **cluster.environment,
    }
