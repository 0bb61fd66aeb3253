"""Where Slurm is, and what our allocations ask of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gavel.backends.nodes.protocol import NodeSettings

MINUTE_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmSettings(NodeSettings):
    """Where Slurm is, and what allocations ask of it.

    `folder`: where orders and answers are. `orders_url`: address of the service's API at which nodes get orders, which
    they check by `certificates` ("": by those of their system); "": every node sees `folder` under the same path.
    `partition`: "" is Slurm's default one. `accounts`: Slurm's account by tier; `account` is that of other tiers, "":
    the user's default. `gres`: names of generic resources that are accelerators. `type_features`: features that name
    the type of those that have none. `limit_s`: time limit of each allocation; 0: as long as leases, extended in place,
    which Slurm allows to its operators only. `pending_limit_s`: seconds in Slurm's queue after which an allocation is
    given up. `cpus_per_worker`: 0 is its share of the node. `options`: more arguments of sbatch. `chooses_nodes`: Slurm
    does, and is told types and numbers only.
    """

    folder: str = "~/.gavel-slurm"
    orders_url: str = ""
    certificates: str = ""
    partition: str = ""
    account: str = ""
    accounts: Mapping[str, str] = field(default_factory=dict)
    gres: tuple[str, ...] = ("gpu",)
    type_features: tuple[str, ...] = ()
    limit_s: float = 86_400.0
    pending_limit_s: float = 30.0
    lease_grace_s: float = 5.0
    cpus_per_worker: int = 0
    options: tuple[str, ...] = ()
    chooses_nodes: bool = False
