"""How many workers the gangs that no round may preempt can hold, so that they stop nobody.

Elsewhere caps and guarantees are kept over time. Such a gang stays for as long as its job lasts, so for these gangs
they hold at every instant: a cap of the tier is not exceeded, and beside them there is room for what every tier is
guaranteed, also for tiers that have no jobs now.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence

from gavel.types import AcceleratorType, JobSpec, Tier, chain_of

ROUNDING = 1e-6  # workers


class Room:
    """What is left for such gangs. `take` counts one that holds workers, or may on each of several types."""

    def __init__(self, tiers: Mapping[str, Tier], capacity_workers: Mapping[AcceleratorType, int]) -> None:
        self._tiers, self._capacity = tiers, Counter(capacity_workers)  # none of a type whose nodes have all gone
        self._below: dict[str | None, list[Tier]] = {}
        for tier in tiers.values():
            parent = tier.parent if tier.parent in tiers else None
            self._below.setdefault(parent, []).append(tier)
        self._held = defaultdict[tuple[str, AcceleratorType], float](float)  # with the tiers below, as the next
        self._own = defaultdict[tuple[str, AcceleratorType], float](float)  # of the tier itself
        self._in_all = defaultdict[str, float](float)

    @property
    def is_bounded(self) -> bool:
        """Return whether any tier has a limit, a cap or a guarantee; without them there is room for all."""
        return any(
            tier.non_preemptible_workers is not None or tier.cap < 1 or tier.guarantee > 0
            for tier in self._tiers.values()
        )

    def take(self, tier: str, size: float, types: Collection[AcceleratorType]) -> None:
        """Count a gang of `size` workers of the tier on each of the types; once in its number of workers.

        A worker that two gangs share counts half for each.
        """
        for name in chain_of(tier, self._tiers):
            self._in_all[name] += size
            for each in types:
                self._held[name, each] += size
        for each in types:
            self._own[tier, each] += size

    def types(self, tier: str, size: float, types: Collection[AcceleratorType]) -> list[AcceleratorType]:
        """Return those of the types on which one more gang of so many workers may stay."""
        if self._full(tier, size) is not None:
            return []
        return [name for name in types if self._is_within_caps(tier, size, name) and self._leaves(tier, size, name)]

    def overcommitted(self) -> tuple[AcceleratorType, float, int] | None:
        """Return a type of which more is held and guaranteed than there is: its name, that number, and its workers."""
        wanted = {name: self._wanted_by_all(name) for name in self._capacity}
        over = [name for name, workers in wanted.items() if workers > self._capacity[name] + ROUNDING]
        return (over[0], wanted[over[0]], self._capacity[over[0]]) if over else None

    def why_never(self, spec: JobSpec, types: Collection[AcceleratorType]) -> str | None:
        """Return why no round can ever start the job, which fits on `types`; None if one can. For an empty room."""
        if not self.is_bounded or not types or self.types(spec.tier, spec.scale_factor, types):
            return None
        full = self._full(spec.tier, spec.scale_factor)
        if full is not None:
            most = f"{full.non_preemptible_workers} workers are all that jobs of tier {full.name} may hold"
        else:
            most = "its tier's cap and the guarantees of other tiers leave no accelerator type with so many workers"
        return f"a gang of {spec.scale_factor} that may not be preempted could never start: {most} without preemption"

    def why_not(self, tier: str, size: int) -> str:
        """Return the sentence for a job of the tier whose gang of so many workers may stay on no type."""
        full = self._full(tier, size)
        if full is None:
            return (
                f"The job may not be preempted and needs {size} more of one accelerator type. Its tier's cap and the"
                " guarantees of other tiers do not leave so many to jobs that stay."
            )
        held, most = self._in_all[full.name], full.non_preemptible_workers
        return (
            f"Jobs that may not be preempted hold {held:g} of the {most} workers that tier {full.name} lets them hold;"
            f" this one needs {size} more."
        )

    def _full(self, tier: str, size: float) -> Tier | None:
        """The tier, or the one above it, whose number of workers does not allow so many more."""
        for name in chain_of(tier, self._tiers):
            most = self._tiers[name].non_preemptible_workers
            if most is not None and self._in_all[name] + size > most + ROUNDING:
                return self._tiers[name]
        return None

    def _is_within_caps(self, tier: str, size: float, name: AcceleratorType) -> bool:
        return all(
            self._held[each, name] + size <= self._tiers[each].cap * self._capacity[name] + ROUNDING
            for each in chain_of(tier, self._tiers)
        )

    def _leaves(self, tier: str, size: float, name: AcceleratorType) -> bool:
        """Whether all tiers can have what they hold and what they are guaranteed, with one more gang."""
        self._own[tier, name] += size
        wanted = self._wanted_by_all(name)
        self._own[tier, name] -= size
        return wanted <= self._capacity[name] + ROUNDING

    def _wanted_by_all(self, name: AcceleratorType) -> float:
        return self._wanted(self._below.get(None, ()), name)

    def _wanted(self, tiers: Sequence[Tier], name: AcceleratorType) -> float:
        return sum(
            max(
                self._own[tier.name, name] + self._wanted(self._below.get(tier.name, ()), name),
                tier.guarantee * self._capacity[name],
            )
            for tier in tiers
        )


def beyond_guarantees(tiers: Mapping[str, Tier], capacity_workers: Mapping[AcceleratorType, int]) -> dict[str, int]:
    """Return the tiers that allow jobs which may not be preempted more workers than guarantees of others leave them.

    Each with the number that these leave, on all types together.
    """
    beyond = {}
    for name, tier in tiers.items():
        left = 1.0 - _guaranteed_to_others(name, tiers)
        most = sum(math.floor(max(0.0, left) * workers + ROUNDING) for workers in capacity_workers.values())
        if left < 1.0 and tier.non_preemptible_workers is not None and tier.non_preemptible_workers > most:
            beyond[name] = most
    return beyond


def _guaranteed_to_others(name: str, tiers: Mapping[str, Tier]) -> float:
    """The part of each type that is guaranteed to tiers which are neither above nor below this one."""
    chain = chain_of(name, tiers)
    parents = {tiers[each].parent if tiers[each].parent in tiers else None for each in chain}
    siblings = (
        tier
        for tier in tiers.values()
        if tier.name not in chain and (tier.parent if tier.parent in tiers else None) in parents
    )
    return sum(tier.guarantee for tier in siblings)
