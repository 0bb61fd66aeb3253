"""What a node does with an order of the service: decisions only, the agent carries them out."""

from collections.abc import Iterable
from enum import Enum

from gavel.backends.nodes.protocol import ShardLaunch, ShardWanted


class Action(Enum):
    """What to do with one part of a gang."""

    NOTHING = "nothing"
    LAUNCH = "launch"
    KEEP = "keep"  # extend its lease, let its ranks go
    STOP = "stop"
    FORGET = "forget"


def is_refused(order_epoch: int, newest_epoch: int) -> bool:
    """Return True for an order of a service that another one has followed."""
    return order_epoch < newest_epoch


def raises_fence(wanted: ShardWanted) -> bool:
    """Return True if no gang of the job may start any more with this generation or an older one."""
    return wanted.stop or wanted.forget


def action_of(wanted: ShardWanted, *, is_here: bool, is_live: bool, has_problem: bool, is_of_this_boot: bool) -> Action:
    """Return what to do with a part that `is_here` and `is_live`; nothing starts on a node that `has_problem`.

    The lease is by the clock of one boot of the node: unless the order `is_of_this_boot`, it says nothing.
    """
    ends = wanted.stop or wanted.forget
    if not is_here:
        may_start = wanted.launch is not None and not ends and not has_problem and is_of_this_boot
        return Action.LAUNCH if may_start else Action.NOTHING
    if wanted.forget and not is_live:
        return Action.FORGET
    if ends:
        return Action.STOP
    return Action.KEEP if is_of_this_boot else Action.NOTHING


def may_launch(launch: ShardLaunch, *, is_over: bool, fence: int, live: Iterable[ShardLaunch]) -> bool:
    """Return True unless the lease is over, the generation is stale, or a live part holds a slot of the launch."""
    return not is_over and launch.key[1] >= fence and not any(shares_slot(launch, each) for each in live)


def shares_slot(launch: ShardLaunch, live: ShardLaunch) -> bool:
    """Return True if a part of another gang than the packed partner holds one of the launch's slots."""
    wanted = {(slot.resource, slot.index) for slot in launch.slots}
    held = {(slot.resource, slot.index) for slot in live.slots}
    return live.key[0] != launch.instruction.shares_with and bool(wanted & held)
