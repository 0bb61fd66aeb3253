"""The production backend over simulated nodes: one, or one for each region and what makes one of them."""

import atexit
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from tempfile import mkdtemp

from gavel.backends.gang import GangKey
from gavel.backends.nodes.protocol import NodeLink
from gavel.backends.ray.backend import RayBackend
from gavel.backends.ray.protocol import RaySettings
from gavel.backends.runtime import runtime_dir
from gavel.backends.several.backend import SeveralBackend
from gavel.backends.several.homes import region_dir, regions_dir
from gavel.backends.several.names import inner_nodes
from gavel.clock import SystemClock
from gavel.faults.disk import CheckpointDisk
from gavel.faults.link import SimulatedLink
from gavel.faults.regions import Later, SimulatedCalls, SimulatedCopying
from gavel.faults.surroundings import Surroundings
from gavel.types import Term, WorkerId


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """What a process opens its backend with. `links` are those to the nodes of each region."""

    around: Surroundings
    folder: Path
    clock: SystemClock
    term: Term
    links: Mapping[str, SimulatedLink]
    node_of: Mapping[WorkerId, str]
    may_run_s: Mapping[GangKey, float]
    later: Later


class SimulatedBackend(RayBackend):
    """The production backend, without the check of the shared folder, which looks in a thread of its own."""

    def __init__(self, opening: Opening, region: str) -> None:
        folder, settings = opening.folder, opening.around.settings
        link: NodeLink = opening.links[region]
        _give_runtime(folder)
        super().__init__(
            state_dir=region_dir(folder, region) if region else folder,
            ray=RaySettings(address="simulated", checkpoints=str(opening.around.disks[region].root)),
            clock=opening.clock,
            lease_grace_s=settings.lease_grace_s,
            log_bytes_per_job=settings.job_log_bytes,
            term=opening.term,
            node_of=inner_nodes(opening.node_of, region) if region else opening.node_of,
            open_link=lambda *_: link,
            kept=folder if region else None,
        )
        self._shared = None

    def free_lock(self) -> None:
        """Let go of the state folder, as the kernel does for a process that ended."""
        self._folder.close()


class SimulatedRegions(SeveralBackend):
    """The production backend of several regions, whose calls and copies are made in virtual time."""

    def __init__(self, opening: Opening) -> None:
        around, folder = opening.around, opening.folder
        self._opening, self._opened = opening, list[SimulatedBackend]()
        super().__init__(
            state_dir=regions_dir(folder),
            logs=folder,
            regions={name: ("ray", partial(self._open, name)) for name in around.networks},
            clock=opening.clock,
            lease_grace_s=around.settings.lease_grace_s,
            checkpoints={name: str(disk.root) for name, disk in around.disks.items()},
            term=opening.term,
            may_run_s=opening.may_run_s,
            answer_limit_s=0.0,
            calls_of=self._calls_of,
            copying=self._copying,
        )

    def _open(self, region: str) -> SimulatedBackend:
        self._opened.append(SimulatedBackend(self._opening, region))
        return self._opened[-1]

    def _calls_of(self, region: str) -> SimulatedCalls:
        around = self._opening.around
        return SimulatedCalls(self._opening.later, around.schedule.true_s, partial(around.held_up, region))

    def _copying(self) -> SimulatedCopying:
        around, term = self._opening.around, self._opening.term
        disks: list[CheckpointDisk] = [*around.disks.values()]
        return SimulatedCopying(
            self._opening.later,
            around.schedule.true_s,
            lambda: any(disk.is_full for disk in disks),
            f"copies-{around.seed}-{term.generation}",
        )

    def free_lock(self) -> None:
        """Let go of the state folders, as the kernel does for a process that ended."""
        for each in self._opened:
            each.free_lock()
        self._lock.close()


def opened(opening: Opening) -> SimulatedBackend | SimulatedRegions:
    """Return the backend of a process. Raises BackendUnavailable."""
    if opening.around.networks.keys() == {""}:
        return SimulatedBackend(opening, "")
    return SimulatedRegions(opening)


def _give_runtime(folder: Path) -> None:
    """Let the state folder have the runtime of jobs, which no simulated job imports, without compiling it anew."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with suppress(FileExistsError):
        (folder / "runtime").symlink_to(_runtime())


@cache
def _runtime() -> Path:
    """Return a folder with the runtime of jobs, made once in a process."""
    made = Path(mkdtemp(prefix="gavel-faults-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return runtime_dir(made).parent
