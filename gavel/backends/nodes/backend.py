"""A cluster of many nodes as a `ClusterBackend`: all but the transport, which is its only port (`NodeLink`).

The matcher of `gavel.ephemeral` decides when a gang may start, as in the local backend. What is matched is reserved in
the cluster by one group a gang, all or none, so that nobody else's tasks run on the same accelerators; then each node's
agent is told to start its part. The group is kept while the lease is extended, and goes at the gang's end. Orders
travel with the one call a node a tick that also brings what the node has seen.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import MappingProxyType

from gavel.backends import machine
from gavel.backends.code_store import code_dir
from gavel.backends.folder import StateFolder
from gavel.backends.folder_backend import FolderBackend, answering
from gavel.backends.gang import GangKey
from gavel.backends.launch import PREPARATION, Preparation
from gavel.backends.nodes import orders
from gavel.backends.nodes.allocations import Holdings
from gavel.backends.nodes.fleet import Fleet, NodeView
from gavel.backends.nodes.gang import NodesGang, stored_gangs
from gavel.backends.nodes.job_logs import JobLogs
from gavel.backends.nodes.lost import LostParts
from gavel.backends.nodes.numbering import Numbering
from gavel.backends.nodes.placed import follow
from gavel.backends.nodes.protocol import NodeLink, NodeSettings, Seen, ShardLaunch, ShardSeen, Wanted, epoch_of
from gavel.backends.nodes.shared_folder import OwnFolder
from gavel.backends.nodes.transfers import Retention, is_url
from gavel.backends.sharing import CoreSharing
from gavel.errors import BackendUnavailable, NotFound
from gavel.ports import Clock, CordonNode, ExtendLease, Instruction, KeepCheckpoint, LaunchGang, StopGang
from gavel.types import (
    Cluster,
    EphemeralResource,
    GangExit,
    GangOutcome,
    GangSeen,
    GangState,
    Observation,
    Term,
    WorkerId,
)
from gavel.types.rounds import gone_by_s

ANSWER_LIMIT_S = 0.5  # seconds; a node that takes longer answers at the next look
START_LIMIT_S = 0.3  # seconds; a group that takes longer is checked at the next look
REMEMBER_EVERY_S = 1.0


class NodesBackend(FolderBackend):
    """Runs gangs on the nodes of a cluster; only the service with the latest `term` commands it.

    `cluster` is its name, `open_link` opens the transport, given the folder of code versions. One service at a time per
    `state_dir`; `kept` is the folder of code, logs and checkpoints, if it is one of several backends. `environment` is
    added to all processes of jobs; `preparation` makes ready what jobs bring; `node_of` names the store's workers
    (`Numbering`). A job whose output exceeds `output_bytes_per_job` (0: any size) is ended. Not thread-safe but
    `read_log` and `notes`. Raises BackendUnavailable if another service uses `state_dir`, and what `open_link` raises.
    """

    def __init__(  # noqa: PLR0913  the composition root names its parts
        self,
        *,
        cluster: str,
        state_dir: Path,
        nodes: NodeSettings,
        open_link: Callable[[str], NodeLink],
        clock: Clock,
        lease_grace_s: float,
        log_bytes_per_job: int,
        output_bytes_per_job: int = 0,
        environment: Mapping[str, str] | None = None,
        term: Term | None = None,
        node_of: Mapping[WorkerId, str] = MappingProxyType({}),
        preparation: Preparation = PREPARATION,
        kept: Path | None = None,
    ) -> None:
        self._name, shared = cluster, (kept or state_dir).resolve()
        self._clock = clock
        self._settings = orders.LaunchSettings(
            environment=dict(environment or {}),
            lease_grace_s=lease_grace_s,
            log_bytes=log_bytes_per_job,
            checkpoints=nodes.checkpoints_of(shared),
            outputs=nodes.outputs,
            output_bytes=output_bytes_per_job,
            preparation=preparation,
        )
        self._keep_code_s = nodes.keep_code_s
        self._epoch = epoch_of(term, clock.now_s())
        self._gangs: dict[GangKey, NodesGang] = {}
        self._forgetting = orders.Forgetting()
        self._sharing = CoreSharing([])
        self._cluster, self._last = Cluster(), Seen()
        self._retention = Retention(self._settings.checkpoints)
        self._shared = None if is_url(at := self._settings.checkpoints) else OwnFolder(at)
        self._refused = ""
        self._notes: tuple[str, ...] = ()
        self.calls: Mapping[str, int] = {}
        with answering("open"), StateFolder.opened(state_dir, term, kept) as self._folder:
            numbering = Numbering(state_dir / "workers.json", node_of, is_current=self._folder.is_current)
            self._fleet = Fleet(numbering, cluster, is_one_of_several=kept is not None)
            self._link = open_link(str(code_dir(shared)))
            self._holdings = Holdings(self._fleet, self._folder.resources(), cluster)
            self._logs = JobLogs(shared / "logs", log_bytes_per_job)
            self._lost = LostParts(state_dir.resolve() / "gangs", clock.now_s())
            self._adopt_own()

    # --- the port -----------------------------------------------------------------------------------------------

    def observe(self) -> Observation:
        """Return one consistent view, after starting what can start. A node that does not answer delays nobody.

        Raises BackendUnavailable before the cluster was reached for the first time, if another service took over, and
        if the cluster is one of several and neither it nor its gangs can be reached.
        """
        with answering("observe"):
            self._exchange(self._fleet.due(self._busy_nodes()), limit_s=ANSWER_LIMIT_S)
            why = self._refused or self._fleet.why_unreached(self._last, self._gangs.values())
            if why or not self._fleet.is_met:
                raise BackendUnavailable(why or next(iter(self._notes), f"waiting for {self._name}'s nodes to answer"))
            now_s = self._clock.now_s()
            for gang in list(self._gangs.values()):
                self._look(gang)
            self._holdings.table.expire(now_s)
            self._start_matched(now_s)
            self._sharing.look((worker, gang.key) for gang in self._running() for worker in gang.instruction.worker_ids)
            return Observation(
                observed_at_s=now_s,
                cluster=self._cluster,
                gangs=tuple(self._seen(gang, now_s) for gang in self._gangs.values()),
                resources=self._holdings.table.resources(now_s),
                held=self._holdings.table.held(),
                cordons=self._fleet.cordons(),
            )

    def execute(self, instructions: Sequence[Instruction]) -> None:
        """Carry out the instructions in order, then start what can start.

        Extensions are sent with the next look and cost no call. Stale instructions are ignored. Raises
        BackendUnavailable (sending all of them again does no harm), InvalidRequest.
        """
        with answering("execute"):
            for instruction in instructions:
                self._obey(instruction)
            stopped = {each.job_id for each in instructions if isinstance(each, StopGang)}
            nodes = {node for gang in self._gangs.values() if gang.instruction.job_id in stopped for node in gang.parts}
            if nodes:
                self._exchange([self._fleet.nodes[node] for node in nodes & self._fleet.nodes.keys()], limit_s=0.0)
            self._start_matched(self._clock.now_s())

    def close(self) -> None:
        """Leave the cluster; gangs run on to the end of their leases. Closing twice does no harm."""
        self._link.close()
        self._logs.close()
        self._retention.close()
        self._folder.close()

    def notes(self) -> tuple[str, ...]:
        """Return what an operator should know of the cluster as a whole now. Safe from any thread."""
        return self._notes

    # --- instructions -------------------------------------------------------------------------------------------

    def _set_resources(self, resources: tuple[EphemeralResource, ...]) -> None:
        if self._holdings.set_resources(resources, now_s := self._clock.now_s()):
            self._folder.keep_resources(self._holdings.table.resources(now_s))

    def _launch(self, instruction: LaunchGang) -> None:
        places = self._folder.places(instruction.job_id, instruction.generation)
        self._holdings.request(instruction)  # raises if it could never be matched
        if instruction.generation < self._folder.fence(instruction.job_id):
            return
        own, lease_boottime_s = self._folder.own_gang(places), self._boottime_s(instruction.lease_expires_at_s)
        gang = NodesGang(instruction=instruction, directory=own, lease_boottime_s=lease_boottime_s)
        self._remember(gang)
        self._know(gang)

    def _extend(self, instruction: ExtendLease) -> None:
        gang = self._gangs.get((instruction.job_id, instruction.generation))
        if gang is None:
            return
        makes_room = gang.makes_room(instruction.shares_with)
        if makes_room and self._holdings.table.holds(gang.key):
            self._holdings.hold(gang, self._clock.now_s())
        if gang.extend(self._boottime_s(instruction.expires_at_s)) or makes_room:
            self._remember(gang)

    def _stop(self, instruction: StopGang) -> None:
        self._folder.raise_fence(instruction.job_id, instruction.generation + 1)
        gang = self._gangs.get((instruction.job_id, instruction.generation))
        if gang is not None and gang.state is not GangState.ENDED:
            gang.stop(instruction.reason)
            self._remember(gang)

    def _save(self, key: GangKey, asked_at_s: float) -> None:
        if key in self._gangs:
            self._gangs[key].save_asked_s = asked_at_s

    def _forget(self, key: GangKey) -> None:
        gang = self._gangs.get(key)
        if gang is None or gang.state is not GangState.ENDED:
            return
        self._folder.raise_fence(key[0], key[1] + 1)
        self._drop(gang)
        self._forgetting.add(gang)
        if not any(job_id == key[0] for job_id, _ in self._gangs):
            self._logs.forget(key[0])
            self._retention.forget(key[0])

    def _drop(self, gang: NodesGang) -> None:
        gang.forget()
        del self._gangs[gang.key]
        self._holdings.table.release(gang.key)
        self._sharing.take(gang.key)

    def _keep_checkpoint(self, instruction: KeepCheckpoint) -> None:
        self._retention.keep(instruction.job_id, instruction.checkpoint)

    def _cordon(self, instruction: CordonNode) -> None:
        self._fleet.asked_cordons[instruction.node] = instruction.is_cordoned

    # --- what the cluster and its nodes are told and say ----------------------------------------------------------

    def _exchange(self, views: Iterable[NodeView], *, limit_s: float, groups: Collection[str] = ()) -> frozenset[str]:
        """Send these nodes their orders and take their answers; return the names of the held groups."""
        gangs = [*self._gangs.values()]
        shared, kept = self._shared.wanted() if self._shared else None, self._keep_code_s
        order = orders.order_to_nodes(self._settings, epoch=self._epoch, keep_code_s=kept, folder=shared)
        to = {view.node.node_id: orders.to_node(order, view, gangs, self._forgetting) for view in views}
        wanted = Wanted(
            groups=self._holdings.groups(gangs),
            group_of=self._holdings.names_of_groups(gangs),
            is_whole=self._fleet.is_met,
            orders=to,
            await_groups=frozenset(groups),
            answer_within_s=limit_s,
            cordons=self._fleet.open_cordons(),
        )
        seen = self._link.exchange(wanted)
        lost = follow(self._fleet, self._holdings, self._gangs.values(), seen.placed, self._clock.now_s())
        self._take(seen)
        return seen.ready - lost

    def _take(self, seen: Seen) -> None:
        self._notes = (*((seen.problem,) if seen.problem else ()), *seen.notes)
        self.calls, self._last = seen.calls or self.calls, seen
        live = [gang for gang in self._gangs.values() if gang.state is not GangState.ENDED]
        self._fleet.take(seen, {worker for gang in live for worker in gang.instruction.worker_ids})
        if self._fleet.cluster is not self._cluster:
            self._cluster = self._fleet.cluster
            self._holdings.update([*self._gangs.values()], self._clock.now_s())
            self._sharing = CoreSharing(self._fleet.accelerators())
            self._fleet.forget(worker for gang in self._gangs.values() for worker in gang.instruction.worker_ids)
        if seen.answers:
            self._refused = next((each.refused for each in seen.answers.values() if each.refused), "")
        for view in self._fleet.nodes.values():
            answer = seen.answers.get(view.node.node_id)
            if answer is not None and not answer.refused:
                self._take_shards(view, answer.shards)

    def _take_shards(self, view: NodeView, shards: Iterable[ShardSeen]) -> None:
        node, offset_s = view.node.name, view.offset_s
        assert offset_s is not None, "a node that answered has a clock"
        running = {shard.key for shard in shards if shard.state is not GangState.ENDED}
        self._lost.heard(node, running, self._clock.now_s())
        self._forgetting.heard(node, {shard.key for shard in shards})
        for shard in shards:
            if shard.key in self._forgetting:
                continue
            if shard.launch is not None:
                self._adopt(node, shard.launch, shard.lease_node_boottime_s - offset_s)
            gang = self._gangs.get(shard.key)
            if gang is not None and node in gang.parts:
                has_more = self._logs.take(gang.key, gang.parts[node], shard)
                if has_more and machine.boottime_s() - gang.remembered_boottime_s > REMEMBER_EVERY_S:
                    self._remember(gang)
                gang.take(node, shard, offset_s)

    def _busy_nodes(self) -> set[str]:
        busy = {node for gang in self._gangs.values() for node, part in gang.parts.items() if not part.is_over}
        return busy | self._forgetting.nodes()

    # --- gangs --------------------------------------------------------------------------------------------------

    def _look(self, gang: NodesGang) -> None:
        if gang.never_arrived(self._fleet.has_answered):  # the scheduler launches it again, for the rest of its lease
            self._drop(gang)
            self._folder.withdraw_fence(*gang.key)
            return
        was, grace_s = (gang.state, gang.is_stopping), self._settings.lease_grace_s
        if gang.state is GangState.WAITING and machine.boottime_s() >= gang.lease_boottime_s:
            gang.end(GangExit(outcome=GangOutcome.PREEMPTED, message="its lease ended while it waited"))
        for part in gang.look(grace_s, self._fleet.gone, self._fleet.may_speak, self._fleet.has_answered):
            until_s = gone_by_s(part.lease_boottime_s, grace_s)
            self._lost.add(gang.key, part.node, until_s, self._clock.now_s())
        if gang.state is GangState.ENDED:
            self._holdings.table.release(gang.key)
        if (gang.state, gang.is_stopping) != was:
            self._remember(gang)

    def _start_matched(self, now_s: float) -> None:
        """1 match, 2 reserve, 3 order the nodes. A step that exceeds its limit goes on at the next look."""
        waiting = [
            gang
            for gang in self._gangs.values()
            if gang.state is GangState.WAITING and not self._lost.may_run(gang.key)
        ]
        matched = self._holdings.match(waiting, now_s)
        reserving = [gang for gang in waiting if self._holdings.table.holds(gang.key)]
        if not reserving:
            return
        names = self._holdings.names_of_groups([*self._gangs.values()])
        fresh = {names[key] for key in matched if key in names}
        ready = self._exchange((), limit_s=START_LIMIT_S if fresh else 0.0, groups=fresh)
        started = [gang for gang in reserving if names.get(gang.key) in ready and self._divide(gang)]
        if nodes := {node for gang in started for node in gang.parts}:
            self._exchange([self._fleet.nodes[node] for node in nodes], limit_s=START_LIMIT_S)

    def _divide(self, gang: NodesGang) -> bool:
        in_use = partial(orders.ports_in_use, gangs=self._gangs.values(), forgetting=self._forgetting)
        own, addresses = self._last.ports_of(gang.key), self._last.addresses_of(gang.key)
        parts = orders.parts_of(gang, self._fleet, self._settings, in_use, own.get, addresses.get)
        if parts is None:
            return False
        gang.read_of_user(self._settings.preparation)
        if gang.state is GangState.ENDED:
            self._holdings.table.release(gang.key)
        else:
            gang.begin(parts)
        self._remember(gang)  # before any node hears of it
        return gang.state is GangState.RUNNING

    def _running(self) -> Iterable[NodesGang]:
        return (gang for gang in self._gangs.values() if gang.state is GangState.RUNNING)

    def _seen(self, gang: NodesGang, now_s: float) -> GangSeen:
        (fresh, gang.fresh), is_ended = (gang.fresh, []), gang.state is GangState.ENDED
        return GangSeen(
            job_id=gang.instruction.job_id,
            generation=gang.instruction.generation,
            state=gang.state,
            accelerator_type=gang.instruction.accelerator_type,
            worker_ids=gang.instruction.worker_ids,
            started_at_s=self._instant_s(gang.started_boottime_s),
            ended_at_s=self._instant_s(gang.ended_boottime_s) if is_ended else None,
            exit=gang.exit if is_ended else None,
            reports=self._handed(gang.key, gang.reports, fresh, has_ended=is_ended),
            waiting_for=self._waiting_for(gang, now_s) if gang.state is GangState.WAITING else "",
            endpoint=gang.endpoint,
            load=gang.load,
            is_silent=any(part.is_silent for part in gang.parts.values()),
        )

    def _waiting_for(self, gang: NodesGang, now_s: float) -> str:
        if node := self._lost.may_run(gang.key):
            return f"an earlier gang of the job may still run on lost node {node} until its lease ends"
        return self._holdings.missing(gang, now_s, self._last.delays)

    # --- restart ------------------------------------------------------------------------------------------------

    def _adopt_own(self) -> None:
        """Load the gangs that an earlier service stored here; the nodes then report their present state."""
        gangs, self._outdated = stored_gangs(self._folder, self._clock.now_s())
        for gang in gangs:
            with suppress(NotFound, BackendUnavailable):  # its nodes may have them; without, none is told to start
                gang.secrets = self._settings.preparation.secrets_of(gang.instruction.user, gang.instruction.secrets)
            self._know(gang)
            self._sharing.mark_disturbed(gang.key, gang.instruction.worker_ids)

    def _adopt(self, node: str, launch: ShardLaunch, lease_boottime_s: float) -> None:
        """Adopt a part that we did not order: its gang was in a lost state folder, or given up as lost."""
        gang = self._gangs.get(launch.key)
        if gang is None:
            own = self._folder.own_gang(self._folder.places(*launch.key))
            gang = NodesGang(instruction=launch.instruction, directory=own, lease_boottime_s=lease_boottime_s)
            gang.state = GangState.RUNNING
            self._know(gang)
        if node not in gang.parts and gang.state is GangState.RUNNING:
            before, offset_s = self._outdated.get(gang.key), self._fleet.nodes[node].offset_s or 0.0
            gang.adopt(node, launch, lease_boottime_s, offset_s, before)
            self._remember(gang)
            self._holdings.hold(gang, self._clock.now_s())

    def _know(self, gang: NodesGang) -> None:
        self._gangs[gang.key] = gang
        self._folder.assume_fence(gang.key[0], gang.key[1] + 1)

    def _remember(self, gang: NodesGang) -> None:
        gang.remember(self._clock.now_s())
