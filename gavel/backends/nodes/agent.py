"""The node agent: what starts, watches and ends a node's part of each gang.

It keeps everything in files, as the local backend does (docs/gang-protocol.md), and its supervisors do not need it:
when the agent, the cluster or the service is gone, gangs run on to the end of their leases, and the next agent or
service adopts them. On Ray it is one warm actor a node.
"""

import os
import socket
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from gavel.backends import gang_processes, machine
from gavel.backends.folder import StateFolder
from gavel.backends.gang import GangKey
from gavel.backends.gang_records import SPOILT
from gavel.backends.isolation import isolated, warn
from gavel.backends.job_users import problem_of_job_users
from gavel.backends.launch import base_environment
from gavel.backends.nodes.code_fetch import CodeFetches
from gavel.backends.nodes.housekeeping import Housekeeping
from gavel.backends.nodes.obeying import Action, action_of, is_refused, may_launch, raises_fence
from gavel.backends.nodes.protocol import PROTOCOL, Answer, Order, ShardLaunch, ShardSeen, ShardWanted
from gavel.backends.nodes.shard import Shard
from gavel.backends.nodes.shared_folder import NodeFolder
from gavel.backends.nodes.transfers import Transfers
from gavel.backends.nodes.tunnels import TunnelWanted
from gavel.backends.sandbox import missing_sandbox
from gavel.errors import BackendUnavailable

if TYPE_CHECKING:
    from gavel.backends.nodes.tunnel_carrier import TunnelCarrier

PORTS_KEPT = 32


class NodeAgent:
    """All gangs' parts on one node, below `folder/node`. Raises BackendUnavailable if another agent uses the folder.

    `apart`: a folder below that for this agent's own gangs, where several agents share what outlives gangs on a node.
    """

    def __init__(self, node: str, folder: str, protocol: int, apart: str = "") -> None:
        if protocol != PROTOCOL:
            raise BackendUnavailable(
                f"gavel here speaks protocol {PROTOCOL}, the service {protocol}: install its version"
            )
        self._node = node
        path = Path(folder).expanduser() / node
        own = path / apart
        self._folder = StateFolder(own, kept=path if apart else None)
        self._epoch_path = own / "epoch.json"
        self._epoch = _epoch_in(self._epoch_path)
        self._base = base_environment()
        self._shards: dict[GangKey, Shard] = {}
        self._ports = PortsKept()
        self._transfers = Transfers(threads=4)
        self._code = CodeFetches(path)
        self._housekeeping = Housekeeping(path)
        self._shared = NodeFolder()
        self._problem = ""
        self._own = own
        self._carrier: TunnelCarrier | None = None
        self._adopt_all()

    def exchange(self, order: Order) -> Answer:
        """Carry out the order and return the state of the node; one call a node a tick.

        An order of an older service is refused.
        """
        if is_refused(order.epoch, self._epoch):
            return self._answer((), refused="a service that started later has taken this node over")
        if order.epoch > self._epoch:
            self._epoch = order.epoch
            machine.write_json(str(self._epoch_path), {"epoch": order.epoch})
        self._problem = self._shared.problem(order.folder) or missing_sandbox(order.isolation)
        self._problem = self._problem or problem_of_job_users(order.job_users, self._folder.gangs_dir, order.isolation)
        if order.job_users:
            os.umask(0o077)  # users of jobs pass the node's folder
        is_of_this_boot = order.boot_id == machine.boot_id()
        for wanted in order.shards:
            self._obey_alone(wanted, is_of_this_boot)
        self._code.take(order.code)
        for shard in self._shards.values():
            with isolated(shard.gang, self._folder):
                shard.start(self._base, self._node)
        live = {key[0]: (shard.launch.instruction.code,) for key, shard in self._shards.items() if shard.is_live}
        self._housekeeping.clear_if_due(live, order.keep_code_s)
        return self._answer(order.shards)

    def carry(self, wanted: Iterable[TunnelWanted]) -> None:
        """Carry the tunnels that the service wants now, of live gangs whose rank 0 is on this node."""
        ours = tuple(each for each in wanted if self.has_rank_0(each.gang))
        if ours and self._carrier is None:
            from gavel.backends.nodes.tunnel_carrier import TunnelCarrier  # few agents need what it imports

            self._carrier = TunnelCarrier(self._own)
        if self._carrier is not None:
            self._carrier.take(ours)

    def has_rank_0(self, key: GangKey) -> bool:
        """Return True if rank 0 of the gang is on this node, and the gang has not ended."""
        shard = self._shards.get(key)
        return shard is not None and shard.is_live and 0 in shard.launch.ranks

    def close(self) -> None:
        """Release the folder and the ports; gangs run on to the end of their leases."""
        if self._carrier is not None:
            self._carrier.close()
        self._folder.close()
        self._ports.release(self._ports.free())
        self._transfers.close()
        self._code.close()
        self._housekeeping.close()

    def _answer(self, asked: tuple[ShardWanted, ...], refused: str = "") -> Answer:
        by_key = {wanted.key: wanted for wanted in asked}
        shards = () if refused else tuple(self._seen(shard, by_key.get(key)) for key, shard in self._shards.items())
        return Answer(
            boot_id=machine.boot_id(),
            node_boottime_s=machine.boottime_s(),
            shards=shards,
            ports=self._ports.free(),
            code=self._code.asked({shard.lacks_code for shard in self._shards.values()} - {""}),
            refused=refused,
            problem=self._problem,
        )

    def _seen(self, shard: Shard, wanted: ShardWanted | None) -> ShardSeen:
        """Return what one shard has to say; of one whose files are spoilt only its state: it is being ended."""
        seen: ShardSeen | None = None
        with isolated(shard.gang, self._folder):
            seen = shard.seen(wanted)
        return seen or shard.state(wanted)

    def _obey_alone(self, wanted: ShardWanted, is_of_this_boot: bool) -> None:
        """Carry out what is wanted of one shard; what only its own files prevent ends that shard, and no other."""
        shard = self._shards.get(wanted.key)
        if shard is None:
            self._obey(wanted, is_of_this_boot)
            return
        with isolated(shard.gang, self._folder):
            self._obey(wanted, is_of_this_boot)

    def _obey(self, wanted: ShardWanted, is_of_this_boot: bool) -> None:
        shard = self._shards.get(wanted.key)
        if raises_fence(wanted):
            self._folder.raise_fence(wanted.key[0], wanted.key[1] + 1)
        action = action_of(
            wanted,
            is_here=shard is not None,
            is_live=shard is not None and shard.is_live,
            has_problem=bool(self._problem),
            is_of_this_boot=is_of_this_boot,
        )
        if shard is None:
            if action is Action.LAUNCH and wanted.launch is not None:
                self._launch(wanted.launch, wanted)
        elif action is Action.FORGET:
            shard.forget()
            del self._shards[wanted.key]
        elif action is Action.STOP:
            shard.gang.stop(wanted.reason)
        elif action is Action.KEEP:
            shard.gang.extend(wanted.lease_node_boottime_s)
            shard.gang.save(wanted.save_asked_s)
            if wanted.go:
                shard.go()

    def _launch(self, launch: ShardLaunch, wanted: ShardWanted) -> None:
        """Start the shard unless its generation is stale, its lease is over, or one of its slots is still held.

        The service repeats the order, so that a shard whose slot is held starts later.
        """
        is_over = machine.boottime_s() >= wanted.lease_node_boottime_s
        if not may_launch(launch, is_over=is_over, fence=self._folder.fence(launch.key[0]), live=self._live()):
            return
        self._ports.release(launch.ports)
        own = self._folder.places(*launch.key)
        shard = Shard.make(launch, own, wanted.lease_node_boottime_s, self._transfers, self._code)
        shard.secrets = wanted.secrets
        self._know(shard)

    def _live(self) -> Iterator[ShardLaunch]:
        """Yield what was launched and holds its slots still."""
        for shard in self._shards.values():
            with isolated(shard.gang, self._folder):
                shard.gang.look()
            if shard.is_live:
                yield shard.launch

    def _adopt_all(self) -> None:
        """Take up what an earlier agent left; end what is left of gangs whose files no agent has written."""
        alive = gang_processes.homes_below(self._folder.gangs_dir)
        for directory, _ in self._folder.gangs():
            own = self._folder.places(directory.parent.name, int(directory.name))
            try:
                shard = Shard.adopt(own, self._transfers, self._code, has_processes=str(own.gang) in alive)
            except SPOILT as problem:
                warn("gavel.agent", "gang.refused", folder=str(directory), error=str(problem))
                continue
            if shard is not None:
                self._know(shard)
        ours = {str(self._folder.places(*key).gang) for key in self._shards}
        gang_processes.end_all(self._folder.gangs_dir, alive - ours)

    def _know(self, shard: Shard) -> None:
        self._shards[shard.key] = shard
        self._folder.assume_fence(shard.key[0], shard.key[1] + 1)


def _epoch_in(path: Path) -> int:
    """Return the newest epoch that this node has heard; 0 if the file holds none."""
    epoch = (machine.read_object(path) or {}).get("epoch")
    return epoch if type(epoch) is int else 0


class PortsKept:
    """Ports reserved on this node for gangs that start here: bound, but not listened on."""

    def __init__(self) -> None:
        self._sockets: dict[int, socket.socket] = {}

    def free(self) -> tuple[int, ...]:
        """Return the reserved ports, always the same number."""
        while len(self._sockets) < PORTS_KEPT:
            kept = socket.socket()
            kept.bind(("", 0))
            self._sockets[kept.getsockname()[1]] = kept
        return tuple(self._sockets)

    def release(self, ports: Iterable[int]) -> None:
        """Close these ports, so that the gang to which they were assigned can bind them."""
        for port in ports:
            kept = self._sockets.pop(port, None)
            if kept is not None:
                kept.close()
