"""The orders to nodes: the parts of each gang whose group is held, and everything for the next call."""

import secrets
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from gavel.backends.gang import GangKey
from gavel.backends.health import REPLICA_ADDRESS
from gavel.backends.launch import PREPARATION, Preparation
from gavel.backends.meeting import meeting_place
from gavel.backends.nodes.fleet import Fleet, NodeView
from gavel.backends.nodes.gang import NodesGang, Part
from gavel.backends.nodes.protocol import Order, ShardLaunch, ShardWanted
from gavel.backends.nodes.shared_folder import SharedFolder
from gavel.types import GangState

PORTS_PER_GANG = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSettings:
    """Settings that are the same for every gang. `environment` is added to that of every process.

    `outputs` is the folder, seen by every node, or the URL of what jobs write to keep ("": none), each at most
    `output_bytes`.
    """

    environment: Mapping[str, str]
    lease_grace_s: float
    log_bytes: int
    checkpoints: str
    outputs: str = ""
    output_bytes: int = 0
    preparation: Preparation = PREPARATION


class Forgetting:
    """Gangs that are forgotten here, and that some of their nodes may have still."""

    def __init__(self) -> None:
        self._ports: dict[GangKey, dict[str, tuple[int, ...]]] = {}  # of each gang on each of these nodes

    def __contains__(self, key: GangKey) -> bool:
        return key in self._ports

    def add(self, gang: NodesGang) -> None:
        """Let the nodes of the gang forget it."""
        self._ports[gang.key] = {node: part.launch.ports for node, part in gang.parts.items()}

    def heard(self, node: str, reported: Collection[GangKey]) -> None:
        """Take which gangs a node still has."""
        for key in [key for key in self._ports if key not in reported]:
            self._ports[key].pop(node, None)
            if not self._ports[key]:
                del self._ports[key]

    def nodes(self) -> set[str]:
        """Return the nodes that may have any."""
        return {node for nodes in self._ports.values() for node in nodes}

    def on(self, node: str) -> Mapping[GangKey, tuple[int, ...]]:
        """Return the gangs that the node may have, each with the ports that it has there."""
        return {key: nodes[node] for key, nodes in self._ports.items() if node in nodes}


def ports_in_use(node: str, gangs: Iterable[NodesGang], forgetting: Forgetting) -> set[int]:
    """Return the ports that gangs have there. A node offers those of a gang that it has not started, too."""
    launched = [gang.parts[node].launch.ports for gang in gangs if node in gang.parts]
    return {port for ports in (*launched, *forgetting.on(node).values()) for port in ports}


def parts_of(
    gang: NodesGang,
    fleet: Fleet,
    settings: LaunchSettings,
    in_use: Callable[[str], Collection[int]],
    own_ports: Callable[[str], tuple[int, ...] | None] = lambda _: None,
    own_address: Callable[[str], str | None] = lambda _: None,
) -> dict[str, Part] | None:
    """Return the gang divided among its nodes; None if one of them cannot start anything now.

    `in_use`: the ports of a node that other gangs have; `own_ports`: those that only this gang may use on the node of
    this id, None where any free one will do; `own_address`: where other nodes
    reach the gang on it, None where that is the node's own address.
    """
    worker_ids = gang.instruction.worker_ids
    node_of_rank = tuple(fleet.place_of[worker][0] for worker in worker_ids)
    views = [fleet.nodes[node] for node in dict.fromkeys(node_of_rank) if node in fleet.nodes]
    if len(views) < len(set(node_of_rank)) or not all(view.is_usable for view in views):
        return None
    head = views[0]
    taken = in_use(head.node.name)
    own = own_ports(head.node.node_id)
    ports = tuple(port for port in (head.ports if own is None else own) if port not in taken)[:PORTS_PER_GANG]
    if len(ports) < PORTS_PER_GANG:
        return None  # its next answer brings more reserved ports
    address = (own_address(head.node.node_id) or head.node.address) if len(views) > 1 else "127.0.0.1"
    environment = {**settings.environment, **_meeting_place(address, ports, len(worker_ids))}
    if gang.instruction.serving:
        environment[REPLICA_ADDRESS] = own_address(head.node.node_id) or head.node.address
    parts = {}
    for view in views:
        ranks = tuple(rank for rank, node in enumerate(node_of_rank) if node == view.node.name)
        launch = ShardLaunch(
            instruction=gang.instruction,
            ranks=ranks,
            slots=tuple(fleet.place_of[worker_ids[rank]][1] for rank in ranks),
            node_of_rank=node_of_rank,
            environment=environment,
            lease_grace_s=settings.lease_grace_s,
            log_bytes=settings.log_bytes,
            checkpoints=settings.checkpoints,
            outputs=settings.outputs,
            output_bytes=settings.output_bytes,
            setup_limit_s=settings.preparation.setup_limit_s,
            data_hosts=tuple(settings.preparation.data_hosts),
            data_limit_s=settings.preparation.data_limit_s,
            data_cache_bytes=settings.preparation.data_cache_bytes,
            image_command=tuple(settings.preparation.image_command),
            image_options=tuple(settings.preparation.image_options),
            isolation=settings.preparation.isolation,
            shown_folders=tuple(settings.preparation.shown_folders),
            job_folders=tuple(settings.preparation.job_folders(gang.instruction.user)),
            ports=ports if view is head else (),
        )
        parts[view.node.name] = Part(
            node=view.node.name, launch=launch, lease_boottime_s=0.0, lease_node_boottime_s=0.0, boot_id=view.boot_id
        )
    return parts


def order_to_nodes(settings: LaunchSettings, *, epoch: int, keep_code_s: float, folder: SharedFolder | None) -> Order:
    """Return what all nodes are ordered alike: all but their shards."""
    return Order(
        epoch=epoch,
        keep_code_s=keep_code_s,
        folder=folder,
        isolation=settings.preparation.isolation,
        job_users=settings.preparation.job_users,
    )


def to_node(order: Order, view: NodeView, gangs: Iterable[NodesGang], forgetting: Forgetting) -> Order:
    """Return the order to one node: with its shards, and the boot by whose clock their leases are."""
    return replace(order, boot_id=view.boot_id, shards=shards_wanted(view, gangs, forgetting))


def shards_wanted(view: NodeView, gangs: Iterable[NodesGang], forgetting: Forgetting) -> tuple[ShardWanted, ...]:
    """Return every shard that a node has to know; once sent, the node may hold the leases that they name."""
    node = view.node.name
    wanted = [_wanted(gang, gang.parts[node], view) for gang in gangs if node in gang.parts]
    gone = [ShardWanted(key=key, lease_node_boottime_s=0.0, forget=True) for key in forgetting.on(node)]
    return (*wanted, *gone)


def _wanted(gang: NodesGang, part: Part, view: NodeView) -> ShardWanted:
    has_booted = part.boot_id is not None and part.boot_id != view.boot_id
    is_lease_new = has_booted or gang.lease_boottime_s > part.lease_boottime_s
    if view.offset_s is not None and not gang.is_stopping and is_lease_new:
        part.lease_boottime_s = max(gang.lease_boottime_s, part.lease_boottime_s)
        part.lease_node_boottime_s, part.boot_id = part.lease_boottime_s + view.offset_s, view.boot_id
    return ShardWanted(
        key=gang.key,
        lease_node_boottime_s=part.lease_node_boottime_s,
        stop=gang.is_stopping and (part.state is not GangState.ENDED or part.is_silent),
        reason=gang.reason,
        launch=None if part.is_known or part.is_foreign or gang.lacks_secrets or gang.is_doubtful else part.launch,
        secrets={} if part.is_known else gang.secrets or {},
        go=all(each.is_ready for each in gang.parts.values()),
        save_asked_s=gang.save_asked_s,
        reports_after=part.reports_after,
        log_offset=part.log_offset,
        samples_offset=part.samples_offset,
    )


def _meeting_place(address: str, ports: tuple[int, ...], world_size: int) -> dict[str, str]:
    """Return the variables by which torch.distributed (env://), jax.distributed and our runtime find rank 0."""
    master, hub = ports
    return {
        **meeting_place(address, master),
        "GAVEL_HUB": f"{address}:{hub}",
        "GAVEL_GANG_KEY": secrets.token_hex(16),
    }
