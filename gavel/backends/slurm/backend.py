"""A Slurm cluster as a `ClusterBackend`: an allocation for each gang, and in it an agent of ours on each node."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from gavel.backends.launch import PREPARATION, Preparation
from gavel.backends.nodes.backend import NodesBackend
from gavel.backends.slurm.link import SlurmLink
from gavel.backends.slurm.protocol import SlurmSettings
from gavel.ports import Clock
from gavel.types import Term, WorkerId


class SlurmBackend(NodesBackend):
    """Runs gangs on the nodes of a Slurm partition; see `NodesBackend`. Raises InvalidRequest without its commands."""

    def __init__(  # noqa: PLR0913  the composition root names its parts
        self,
        *,
        state_dir: Path,
        slurm: SlurmSettings,
        clock: Clock,
        lease_grace_s: float,
        log_bytes_per_job: int,
        output_bytes_per_job: int = 0,
        environment: Mapping[str, str] | None = None,
        term: Term | None = None,
        node_of: Mapping[WorkerId, str] = MappingProxyType({}),
        preparation: Preparation = PREPARATION,
    ) -> None:
        super().__init__(
            cluster="Slurm",
            state_dir=state_dir,
            nodes=slurm,
            open_link=lambda store: SlurmLink(replace(slurm, code_store=store, lease_grace_s=lease_grace_s)),
            clock=clock,
            lease_grace_s=lease_grace_s,
            log_bytes_per_job=log_bytes_per_job,
            output_bytes_per_job=output_bytes_per_job,
            environment=environment,
            term=term,
            node_of=node_of,
            preparation=preparation,
        )
