"""Several backends as one `ClusterBackend`, each of them a region.

All are observed side by side, for a limited time. One that cannot be reached has no nodes any more; its gangs are shown
as they were until their leases are over, since until then they may run. So no gang of a job is launched in a second
region while an earlier one may live in the first.
"""

from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, wait
from pathlib import Path
from types import MappingProxyType

import structlog

from gavel.backends.folder import log_path
from gavel.backends.folder_backend import answering, logged
from gavel.backends.gang import GangKey
from gavel.backends.several import link_speeds
from gavel.backends.several.calls import Calls, CallThread
from gavel.backends.several.clock_offset import ahead_s
from gavel.backends.several.copies import Copies, copy_threads
from gavel.backends.several.held import HeldLaunches
from gavel.backends.several.link import Link
from gavel.backends.several.link_speeds import LinkSpeeds
from gavel.backends.several.output_copies import OutputCopies
from gavel.backends.several.region import Opening, Region
from gavel.backends.several.routing import Routes
from gavel.backends.several.whereabouts import Whereabouts
from gavel.backends.state_dir_lock import StateDirLock
from gavel.errors import BackendUnavailable
from gavel.ports import Clock, Instruction
from gavel.types import Cluster, GangSeen, JobId, Observation, Term
from gavel.types.regions import RegionStatus, unreached

log = structlog.get_logger("gavel.regions")

ANSWER_LIMIT_S = 2.0  # seconds; a region that takes longer answers at a later look, and is not waited for until then
SILENT_LIMIT_S = 10.0  # seconds; a shorter silence of a region moves no job
FILE = "gangs.json"


class SeveralBackend:
    """Runs gangs on several backends at once. Nodes and workers are called `NAME@REGION`.

    `regions` has the kind of each region's backend and what opens it; each has a state folder of its own, and
    `state_dir` is for what is known of all of them. `logs` is the state folder in which all of them keep the logs of
    jobs; `checkpoints` is the folder or URL of each region's checkpoints, and `outputs` copies output files.
    `may_run_s` says how long gangs of earlier services may run at most. `calls_of` gives what makes the calls to a
    region, `copying` what makes copies. One service at a time per `state_dir`; not thread-safe but `read_log`,
    `forget_job`, `notes` and `statuses`. Raises BackendUnavailable when another service uses `state_dir`.
    """

    def __init__(  # noqa: PLR0913  the composition root names its parts
        self,
        *,
        state_dir: Path,
        logs: Path,
        regions: Mapping[str, tuple[str, Opening]],
        clock: Clock,
        lease_grace_s: float,
        checkpoints: Mapping[str, str] = MappingProxyType({"": ""}),
        outputs: OutputCopies | None = None,
        term: Term | None = None,
        answer_limit_s: float = ANSWER_LIMIT_S,
        silent_limit_s: float = SILENT_LIMIT_S,
        may_run_s: Mapping[GangKey, float] = MappingProxyType({}),
        calls_of: Callable[[str], Calls] = CallThread,
        copying: Callable[[], Executor] = copy_threads,
    ) -> None:
        self._clock, self._logs, self._answer_limit_s = clock, logs, answer_limit_s
        with answering("open"):
            self._lock = StateDirLock(state_dir.resolve(), term)
            path = self._lock.path / FILE
            self._where = Whereabouts(path, lease_grace_s, clock, may_run_s=may_run_s)
        self._held = HeldLaunches()
        self._copies = Copies(checkpoints, LinkSpeeds(self._lock.path / link_speeds.FILE), outputs, copying())
        now_s = clock.now_s()
        self._links = {
            name: Link(Region(name, open_, calls_of(name), clock), kind, now_s, silent_limit_s)
            for name, (kind, open_) in regions.items()
        }
        self._merged: tuple[tuple[Cluster, ...], Cluster] = ((), Cluster())

    # --- the port -----------------------------------------------------------------------------------------------

    def observe(self) -> Observation:
        """Return one consistent view of all regions that can be reached, after starting what can start there.

        Raises BackendUnavailable while a region has not answered for the first time and is not given up yet, or if
        another service took over.
        """
        with answering("observe"):
            self._lock.path.lstat()
            for link in self._links.values():
                link.region.ask()
            self._hear()
            now_s = self._clock.now_s()
            if awaited := [name for name, link in self._links.items() if link.is_awaited(now_s)]:
                raise BackendUnavailable(f"waiting for regions to answer: {', '.join(sorted(awaited))}")
            gangs = [each for link in self._links.values() for each in self._gangs_of(link, now_s)]
            self._where.store()
            seen = self._observation([*gangs, *self._held.seen()], now_s)
            self._release_held(now_s)
            return seen

    def execute(self, instructions: Sequence[Instruction]) -> None:
        """Carry out the instructions, in order in each region; what a region cannot be told now it is told later.

        Stale instructions are ignored. Launches are not told later: whoever decides gives them again. Raises
        BackendUnavailable if another service took over, NotFound for nodes of no region, and what a backend refuses.
        """
        with answering("execute"):
            self._lock.path.lstat()
            now_s = self._clock.now_s()
            routes = self._routes(now_s)
            for instruction in instructions:
                routes.add(instruction)
            self._send(routes.batches)
            self._hear(raises=True)

    def read_log(self, job_id: JobId, offset: int = 0, limit_bytes: int = 65536) -> tuple[bytes, int]:
        """Return output of all the job's ranks, see `logged`. Safe from any thread."""
        return logged(log_path(self._logs, job_id), offset, limit_bytes)

    def close(self) -> None:
        """Leave all clusters; gangs run on to the end of their leases. Closing twice does no harm."""
        for link in self._links.values():
            link.region.close()
        for link in self._links.values():
            link.region.wait_closed()
        self._copies.close()
        self._lock.close()

    # --- from any thread ----------------------------------------------------------------------------------------

    def forget_job(self, job_id: JobId) -> None:
        """Drop what is kept of a job that has ended and has no gang any more."""
        for link in self._links.values():
            link.region.forget_job(job_id)

    def statuses(self) -> tuple[RegionStatus, ...]:
        """Return each region, whether it can be reached, and if not, why and since when."""
        now_s = self._clock.now_s()
        return tuple(link.status(now_s) for link in self._links.values())

    def notes(self) -> tuple[str, ...]:
        """Return what an operator should know of the regions: which cannot be reached, and what their clusters tell."""
        cut = (unreached(each) for each in self.statuses() if each.problem)
        of_clusters = (f"{name}: {note}" for name, link in self._links.items() for note in link.region.notes())
        return (*cut, *of_clusters)

    # --- calls --------------------------------------------------------------------------------------------------

    def _hear(self, *, raises: bool = False) -> None:
        """Wait for the calls in progress, for a limited time, and take what has come of them."""
        wait([each for link in self._links.values() if (each := link.region.awaited)], self._answer_limit_s)
        now_s, refused = self._clock.now_s(), None
        for name, link in self._links.items():
            answer = link.region.take()
            if answer is None:
                continue
            if answer.seen is not None:
                link.put(answer.seen, now_s, answer.ahead_s)
            if answer.refused is not None:
                refused = answer.refused
                log.warning("instruction.refused", region=name, error=str(refused))
        if raises and refused is not None:
            raise refused

    def _routes(self, now_s: float) -> Routes:
        free = {name for name, link in self._links.items() if link.region.is_free}
        return Routes([*self._links], self._where, self._held, self._copies, free=free, now_s=now_s)

    def _send(self, batches: Mapping[str, Sequence[Instruction]]) -> None:
        """Send instructions to regions, after what they change was stored."""
        self._where.store()
        for name, batch in batches.items():
            if batch:
                self._links[name].region.send(batch)

    # --- gangs --------------------------------------------------------------------------------------------------

    def _gangs_of(self, link: Link, now_s: float) -> Iterable[GangSeen]:
        """Return the gangs of a region: as it shows them, else as they were last seen, until their leases are over."""
        name = link.region.name
        gangs = link.take_gangs(ahead_s(self._clock))
        if gangs is not None:
            self._where.update(name, gangs)
            return gangs
        recorded = [each for each in self._where if each.region == name and not each.is_forgotten]
        if link.is_reached(now_s):
            return [self._where.unheard(each) for each in recorded]
        why, may_live = link.region.problem, self._where.may_live
        return [
            self._where.unheard(each) if each.has_ended or may_live(each) else self._where.lost(each, why)
            for each in recorded
        ]

    def _release_held(self, now_s: float) -> None:
        """Launch what was held and need not be any more."""
        due = self._held.due(now_s)
        if due:
            routes = self._routes(now_s)
            for launch in due:
                routes.add(launch)
            self._send(routes.batches)
            self._hear()

    # --- merging ------------------------------------------------------------------------------------------------

    def _observation(self, gangs: Sequence[GangSeen], now_s: float) -> Observation:
        reached = [link for link in self._links.values() if link.is_reached(now_s)]
        return Observation(
            observed_at_s=now_s,
            cluster=self._whole([link.cluster for link in reached]),
            gangs=tuple(gangs),
            resources=tuple(each for link in reached for each in link.resources),
            link_copies=self._copies.speeds.sums(),
            held=dict(ChainMap(*(dict(link.held) for link in reached))),
            cordons=dict(ChainMap(*(dict(link.cordons) for link in reached))),
        )

    def _whole(self, clusters: Sequence[Cluster]) -> Cluster:
        """Return the regions' clusters as one; the same object as long as none of them changes."""
        parts, whole = self._merged
        if len(parts) != len(clusters) or any(one is not other for one, other in zip(parts, clusters, strict=True)):
            whole = Cluster(
                nodes=tuple(node for each in clusters for node in each.nodes),
                workers=tuple(worker for each in clusters for worker in each.workers),
            )
            self._merged = (tuple(clusters), whole)
        return whole
