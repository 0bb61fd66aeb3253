"""Which region is told which instruction."""

from collections.abc import Collection, Iterable
from dataclasses import replace

from gavel.backends.gang import GangKey
from gavel.backends.several.copies import Copies
from gavel.backends.several.held import HeldLaunches
from gavel.backends.several.names import inner_instruction, region_of
from gavel.backends.several.whereabouts import Whereabouts
from gavel.errors import NotFound
from gavel.ports import (
    CordonNode,
    ExtendLease,
    ForgetGang,
    Instruction,
    KeepCheckpoint,
    LaunchGang,
    PrepareGang,
    SaveCheckpoint,
    SetResources,
    StopGang,
)
from gavel.types import EphemeralResource, GangOutcome


class Routes:
    """Sorts instructions into one batch for each region, and notes the gangs that are launched and extended.

    A region that is not `free`, because a call to it is in progress, is told of no launch. A launch is held while an
    earlier gang of its job may still run in another region, and until its checkpoint is in the region's storage.
    """

    def __init__(
        self,
        regions: Collection[str],
        where: Whereabouts,
        held: HeldLaunches,
        copies: Copies,
        *,
        free: Collection[str],
        now_s: float,
    ) -> None:
        self._where, self._held, self._copies, self._free, self._now_s = where, held, copies, free, now_s
        self.batches: dict[str, list[Instruction]] = {name: [] for name in regions}

    def add(self, instruction: Instruction) -> None:
        """Put an instruction into the batches of the regions that it is for. Raises NotFound."""
        match instruction:
            case SetResources():
                self._set_resources(instruction)
            case LaunchGang():
                self._launch(instruction)
            case PrepareGang():
                self._put(instruction, [self._region_of(instruction.gang.worker_ids[0])])
            case CordonNode():
                self._put(instruction, [self._region_of(instruction.node)])
            case KeepCheckpoint():
                self._put(instruction, self._of_job(instruction.job_id))
            case _:
                self._for_gang(instruction)

    def _set_resources(self, instruction: SetResources) -> None:
        parts: dict[str, list[EphemeralResource]] = {}
        for each in instruction.resources:
            parts.setdefault(self._region_of(each.node), []).append(each)
        for region, resources in parts.items():
            self._put(replace(instruction, resources=tuple(resources)), [region])

    def _launch(self, instruction: LaunchGang) -> None:
        region, key = self._region_of(instruction.worker_ids[0]), (instruction.job_id, instruction.generation)
        if other := self._where.may_live_elsewhere(instruction.job_id, region):
            self._held.hold(instruction, f"an earlier gang of the job may run in region {other} until its lease ends")
        elif self._where.get(key) is None and (held := self._copies.held(instruction, region)) is not None:
            self._held.hold(instruction, held.why)
            if held.left is not None:
                self._end_without_checkpoint(instruction, held.why, held.left)
        elif region in self._free:
            self._held.release(key)
            self._where.launched(instruction, region)
            self._put(instruction, [region])

    def _end_without_checkpoint(self, launch: LaunchGang, why: str, left: str) -> None:
        """End a held gang: its job goes on from what is left; one that began with another job's checkpoint cannot."""
        key = (launch.job_id, launch.generation)
        if launch.checkpoint is None:
            self._held.end(key, GangOutcome.NOT_STARTED, why, self._now_s)
        else:
            self._held.end(key, GangOutcome.LOST, why, self._now_s, checkpoint_left=left)

    def _for_gang(self, instruction: ExtendLease | StopGang | SaveCheckpoint | ForgetGang) -> None:
        key = (instruction.job_id, instruction.generation)
        recorded = self._where.get(key)
        if key in self._held:
            self._for_held(instruction, key)
        elif recorded is not None:
            self._note(instruction, key)
            if recorded.is_over or not isinstance(instruction, ForgetGang):  # else its last reports are still to come
                self._put(instruction, [recorded.region])
        else:
            self._put(instruction, self.batches)

    def _for_held(self, instruction: Instruction, key: GangKey) -> None:
        match instruction:
            case ExtendLease():
                self._held.extend(instruction)
            case StopGang():
                self._held.end(key, GangOutcome.PREEMPTED, instruction.reason, self._now_s)
            case ForgetGang():
                self._held.forget(key)

    def _note(self, instruction: Instruction, key: GangKey) -> None:
        match instruction:
            case ExtendLease():
                self._where.extended(key, instruction.expires_at_s)
            case ForgetGang():
                self._where.forget(key)

    def _of_job(self, job_id: str) -> Iterable[str]:
        region = self._where.region_of_job(job_id)
        return [region] if region else self.batches

    def _region_of(self, name: str) -> str:
        region = region_of(name)
        if region not in self.batches:
            raise NotFound(f"{name} is in no region; there are {', '.join(self.batches)}")
        return region

    def _put(self, instruction: Instruction, regions: Iterable[str]) -> None:
        own = inner_instruction(instruction)
        for region in regions:
            self.batches[region].append(own)
