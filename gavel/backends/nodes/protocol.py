"""The messages between service, transport and node agents. All are level triggered: repeating one does no harm.

The service gives the transport (`NodeLink`) a `Wanted` and receives a `Seen`; the transport sends each agent an `Order`
and receives an `Answer`. Instants `*_node_boottime_s` are CLOCK_BOOTTIME of the node they are about.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from gavel.backends.gang import GangKey
from gavel.backends.gang_records import launch_from
from gavel.backends.nodes.shared_folder import SharedFolder
from gavel.ports import LaunchGang
from gavel.types import AcceleratorType, GangExit, GangState, Load, Report, Term, WorkerId

PROTOCOL = 14
"""Grows when an agent of another version could misunderstand; a node that speaks another one is not used."""

EPOCH_BITS = 48  # bits of the milliseconds below the generation


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One accelerator of a node. `index` counts within `resource`, the resource of the cluster that stands for it.

    `device`: what its processes name it by, where that is not the index.
    """

    accelerator_type: AcceleratorType
    resource: str
    index: int
    cpus: tuple[int, ...] = ()
    price_usd_per_hour: float = 1.0
    memory_bytes: int = 0  # of its own; 0: not known
    device: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedNode:
    """A node as the cluster lists it. `problem`: why its accelerators cannot be used, "" if they can.

    `taken`: how many accelerators of each resource others of the cluster use. `is_cordoned`: whether the cluster keeps
    everybody's new work from it for us; None: it is not asked to.
    """

    node_id: str
    name: str
    address: str = ""
    cpu_cores: int = 1
    memory_bytes: int = 0
    region: str = "local"
    slots: tuple[Slot, ...] = ()
    problem: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    taken: Mapping[str, int] = field(default_factory=dict)
    is_cordoned: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardLaunch:
    """The part of a gang that one node starts: `ranks[i]` runs on `workers[i]`, which is `slots[i]` of the node."""

    instruction: LaunchGang
    ranks: tuple[int, ...]
    slots: tuple[Slot, ...]
    node_of_rank: tuple[str, ...]  # of all ranks
    environment: Mapping[str, str]  # of all ranks: the address of rank 0, the key of the hub
    lease_grace_s: float
    log_bytes: int
    checkpoints: str  # folder that all nodes share, or an fsspec URL
    outputs: str = ""  # folder that all nodes share, or an fsspec URL; "": jobs have no output folder
    output_bytes: int = 0  # the most that a job may keep there; 0: any size
    setup_limit_s: float = 3600.0
    data_hosts: tuple[str, ...] = ()
    data_limit_s: float = 3600.0
    data_cache_bytes: int = 0
    image_command: tuple[str, ...] = ()
    image_options: tuple[str, ...] = ()
    isolation: str = "auto"
    shown_folders: tuple[str, ...] = ()
    job_folders: tuple[str, ...] = ()
    uid: int = 0  # that programs run as; 0: that of the node's agent
    ports: tuple[int, ...] = ()  # of this node, reserved by its agent for the gang

    @property
    def workers(self) -> tuple[WorkerId, ...]:
        """Return the workers of this node that the gang holds."""
        return tuple(self.instruction.worker_ids[rank] for rank in self.ranks)

    @property
    def awaits_nodes(self) -> bool:
        """Return True if one node may be ready long before another: ranks then start once all nodes are ready."""
        brought = self.instruction
        is_prepared = bool(brought.code or brought.setup or brought.data or brought.image)
        return is_prepared and len(set(self.node_of_rank)) > 1

    @property
    def key(self) -> GangKey:
        """Return job and generation."""
        return self.instruction.job_id, self.instruction.generation


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardWanted:
    """What one node is to make of its part of a gang, and how far the service has read what that part said.

    `secrets`: values of the job's secrets, with `launch` only; no text shows them, and no file of the service or of an
    agent has them but the order itself, where the transport carries orders in files.
    """

    key: GangKey
    lease_node_boottime_s: float
    stop: bool = False
    reason: str = ""
    forget: bool = False
    launch: ShardLaunch | None = None  # repeated until the node reports the shard
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    go: bool = False  # every node of the gang is ready
    save_asked_s: float = 0.0  # when the last checkpoint was asked for; 0: none was
    reports_after: int = 0  # sequence of the last report taken
    log_offset: int = 0
    samples_offset: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardSeen:
    """One node's part of a gang. `launch` only if the order did not speak of it: a new service adopts it by that."""

    key: GangKey
    state: GangState
    lease_node_boottime_s: float
    started_node_boottime_s: float | None = None
    ended_node_boottime_s: float | None = None
    exit: GangExit | None = None
    is_ready: bool = False  # all that its ranks need is on the node
    endpoint: str = ""  # HOST:PORT of a replica of a service that is ready
    load: Load | None = None  # of a replica that counts its requests
    reports: tuple[Report, ...] = ()
    log: bytes = b""
    log_offset: int = 0  # bytes of output taken so far
    samples: bytes = b""  # lines of what its ranks use
    samples_offset: int = 0  # bytes of them taken so far
    has_more: bool = False
    launch: ShardLaunch | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeAsked:
    """Chunks of a code version that a node lacks; without any it lacks the list of the version's files."""

    digest: str
    chunks: tuple[str, ...] = ()


class Pack(Protocol):
    """Bytes that are fetched when they are read."""

    def read(self, limit_s: float) -> bytes:
        """Return the bytes. Raises any exception if they cannot be had within the limit: they are asked for again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeGiven:
    """The answer to one `CodeAsked`. `problem`: why nobody can have this code version, for its user."""

    asked: CodeAsked
    pack: Pack | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What the service wants of one node. An order with an older epoch than one heard before is refused.

    `boot_id`: the boot of the node by whose clock the leases of `shards` are; in another one, no lease is taken.
    `code` is added by the transport. `keep_code_s`: how long a node keeps code, environments and folders of jobs that
    nothing on it uses. `folder` is the one that all nodes have to see; None: checkpoints are at a URL.
    """

    epoch: int
    boot_id: str = ""
    shards: tuple[ShardWanted, ...] = ()
    code: tuple[CodeGiven, ...] = ()
    keep_code_s: float = 30 * 86_400.0
    folder: SharedFolder | None = None
    isolation: str = "auto"
    job_users: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a node is and has. `ports` are free there, for gangs that meet on it. `refused`: why nothing was done.

    `problem`: why no gang can start there, and what to do.
    """

    boot_id: str
    node_boottime_s: float
    shards: tuple[ShardSeen, ...] = ()
    ports: tuple[int, ...] = ()
    code: tuple[CodeAsked, ...] = ()
    refused: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """What a gang reserves in the cluster: units of a resource on nodes, all or none.

    Two groups are equal if they reserve the same; until when, and for whose gang, may be told anew.
    """

    name: str
    bundles: tuple[tuple[str, str, int], ...]  # (id of the node, resource, units)
    until_boottime_s: float = field(default=0.0, compare=False)  # the latest lease of its gangs, in our boottime
    tier: str = field(default="", compare=False)
    cpu_cores: int = field(default=0, compare=False)  # that each unit needs; 0: it said nothing
    memory_bytes: int = field(default=0, compare=False)
    image: str = field(default="", compare=False)  # container image of the job; "": none


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Every group that is to exist, every order that is to be given, and how long an answer may take.

    It takes no longer than until every order is answered and `await_groups` are held. `group_of` has the group that
    reserves the workers of each gang: its own, or that of its partner. `cordons`: by id of the node, those that differ
    from what the cluster shows.
    """

    groups: tuple[Group, ...] = ()
    group_of: Mapping[GangKey, str] = field(default_factory=dict)
    is_whole: bool = False  # all nodes have answered: any other group of ours is unused
    orders: Mapping[str, Order] = field(default_factory=dict)  # by id of the node
    await_groups: frozenset[str] = frozenset()
    answer_within_s: float = 0.5
    cordons: Mapping[str, bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The transport's view of the cluster. `answers` came since the last `Seen`.

    `problem`: why the cluster cannot be reached, "" if it can. `calls` counts the calls to it since the start, by name.
    `ports`, by gang and id of a node: free ports there that only this gang may use, where each group has agents of its
    own. `addresses`, likewise: where other nodes reach the gang there, if that is not the node's own address. `placed`:
    the bundles of ready groups whose nodes the cluster, and not the plan, has chosen.
    """

    nodes: tuple[ListedNode, ...] = ()
    ready: frozenset[str] = frozenset()  # names of the groups that are there
    answers: Mapping[str, Answer] = field(default_factory=dict)
    is_connected: bool = False
    problem: str = ""
    notes: tuple[str, ...] = ()
    calls: Mapping[str, int] = field(default_factory=dict)
    ports: Mapping[tuple[GangKey, str], tuple[int, ...]] = field(default_factory=dict)
    addresses: Mapping[tuple[GangKey, str], str] = field(default_factory=dict)
    delays: Mapping[str, str] = field(default_factory=dict)  # by name of a group: why it is not there yet, if known
    placed: Mapping[str, tuple[tuple[str, str, int], ...]] = field(default_factory=dict)

    def ports_of(self, key: GangKey) -> dict[str, tuple[int, ...]]:
        """Return the ports of one gang's own by id of the node."""
        return {node_id: ports for (each, node_id), ports in self.ports.items() if each == key}

    def addresses_of(self, key: GangKey) -> dict[str, str]:
        """Return the addresses of one gang's own by id of the node."""
        return {node_id: address for (each, node_id), address in self.addresses.items() if each == key}


class NodeLink(Protocol):
    """What carries the service's orders to the nodes, and their answers back."""

    def exchange(self, wanted: Wanted) -> Seen:
        """Return the state of the cluster, within `wanted.answer_within_s`; without answers where none came."""

    def close(self) -> None:
        """Leave the cluster; what runs there stays. Closing twice does no harm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    """What is where on the nodes, and for how long.

    `checkpoints`: a folder that every node sees under this path; "": below the state folder of the service. `outputs`:
    such a folder, or an fsspec URL, for what jobs write to keep; "": they have none. `code_store`: the service's code
    versions. `keep_code_s`: see `Order`. `node_folder`: where each node keeps what runs there, below it a folder of the
    node's name.
    """

    checkpoints: str = ""
    outputs: str = ""
    code_store: str = ""
    keep_code_s: float = 30 * 86_400.0
    node_folder: str = "~/.gavel-node"

    def checkpoints_of(self, state_dir: Path) -> str:
        """Return the URL of the checkpoints, or their folder's absolute path, which nodes need."""
        chosen = self.checkpoints or str(state_dir / "checkpoints")
        return chosen if "://" in chosen else str(Path(chosen).expanduser().resolve())


def epoch_of(term: Term | None, now_s: float) -> int:
    """Return the epoch of a service's orders: nodes obey the highest.

    A later term has a higher epoch; among services without terms the one that started later has.
    """
    generation = term.generation if term else 0
    return (generation << EPOCH_BITS) + int(now_s * 1000)


def launch_of(record: Mapping[str, Any]) -> ShardLaunch:
    """Return the ShardLaunch that `asdict` turned into JSON."""
    slots = tuple(Slot(**{**slot, "cpus": tuple(slot["cpus"])}) for slot in record["slots"])
    names = ("ranks", "node_of_rank", "ports", "data_hosts", "image_command", "image_options")
    folders = ("shown_folders", "job_folders")
    lists = {name: tuple(record.get(name, ())) for name in (*names, *folders)} | {"slots": slots}
    return ShardLaunch(**{**record, **lists, "instruction": launch_from(record["instruction"])})
