"""A Slurm cluster as a `ClusterBackend`: an allocation for each gang, and in it an agent of ours on each node."""

from dataclasses import replace
from typing import Unpack

from gavel.backends.nodes.backend import NodesBackend
from gavel.backends.nodes.of_service import OfService
from gavel.backends.slurm.link import SlurmLink
from gavel.backends.slurm.protocol import SlurmSettings


class SlurmBackend(NodesBackend):
    """Runs gangs on the nodes of a Slurm partition; see `NodesBackend`. Raises InvalidRequest without its commands."""

    def __init__(self, *, slurm: SlurmSettings, **of_service: Unpack[OfService]) -> None:
        grace_s = of_service["lease_grace_s"]
        super().__init__(
            cluster="Slurm",
            nodes=slurm,
            open_link=lambda store: SlurmLink(replace(slurm, code_store=store, lease_grace_s=grace_s)),
            **of_service,
        )
