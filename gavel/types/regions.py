"""Regions: where the state and the data of a job are, and how the accelerator types of a region are named."""

from dataclasses import dataclass
from datetime import UTC, datetime

from gavel.types.cluster import AcceleratorType

SEPARATOR = "@"  # between an accelerator type and its region; no name of a type or region has it
NOWHERE = ""  # the region of no node


@dataclass(frozen=True, slots=True, kw_only=True)
class Residence:
    """In which region a job is at home, and what its moves have cost.

    `region` is where its checkpoints are, and where it runs; "": none was chosen yet. `copies` are the regions that
    have its data set. It runs there from `arrives_at_s` on, once all that it needs has been copied from `moved_from`,
    which takes `copy_s`.
    `why` says why it is there and not elsewhere. `egress_bytes` and `egress_usd` are those of all its moves.
    """

    region: str = ""
    copies: tuple[str, ...] = ()
    moved_from: str = ""
    arrives_at_s: float = 0.0
    copy_s: float = 0.0
    moves: int = 0
    egress_bytes: int = 0
    egress_usd: float = 0.0
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionStatus:
    """A region with a backend of its own. `problem`: why that cannot be reached, since `since_s`; "": it can."""

    name: str
    backend: str
    problem: str = ""
    since_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkCopies:
    """The last copies of checkpoints from one region to another: how many, and their size and duration together."""

    origin: str
    target: str
    copies: int
    gigabytes: float
    seconds: float


def unreached(region: RegionStatus) -> str:
    """Return what an operator should know of a region that cannot be reached."""
    since = datetime.fromtimestamp(region.since_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return (
        f"Region {region.name} ({region.backend}) cannot be reached since {since}: {region.problem}. Its gangs run"
        " through their leases, and jobs at home there wait; other regions are planned as usual."
    )


AT_HOME_NOWHERE = Residence()


def type_in_region(name: AcceleratorType, region: str) -> AcceleratorType:
    """Return how the accelerator type of one region is named: `v100@eu`. A name that has its region stays as it is."""
    return name if SEPARATOR in name else f"{name}{SEPARATOR}{region}"


def plain_type(name: AcceleratorType) -> AcceleratorType:
    """Return the accelerator type without its region: what decides how fast a job runs there."""
    return name.partition(SEPARATOR)[0]


def region_of_type(name: AcceleratorType) -> str:
    """Return the region that the accelerator type names; "" if it names none."""
    return name.partition(SEPARATOR)[2]
