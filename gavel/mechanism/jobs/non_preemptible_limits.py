"""How many workers the gangs that no round may preempt can hold, so that they stop nobody.

Elsewhere caps and guarantees are kept over time. Such a gang stays for as long as its job lasts, so for these gangs
they hold at every instant: a cap of the tier is not exceeded, and beside them there is room for what every tier is
guaranteed, also for tiers that have no jobs now.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from gavel.types import AcceleratorType, JobSpec, Tier, chain_of

ROUNDING = 1e-6  # workers


class Room:
    """What is left for such gangs. `take` counts one that holds workers, or may on each of several types."""

    def __init__(self, tiers: Mapping[str, Tier], capacity_workers: Mapping[AcceleratorType, int]) -> None:
        self._tiers, self._capacity = tiers, capacity_workers
        self._below: dict[str | None, list[Tier]] = {}
        for tier in tiers.values():
            parent = tier.parent if tier.parent in tiers else None
            self._below.setdefault(parent, []).append(tier)
        self._held: Counter[tuple[str, AcceleratorType]] = Counter()  # with the tiers below, as the next
        self._own: Counter[tuple[str, AcceleratorType]] = Counter()  # of the tier itself
        self._in_all: Counter[str] = Counter()

    @property
    def is_bounded(self) -> bool:
        """Return whether any tier has a limit, a cap or a guarantee; without them there is room for all."""
        return any(
            tier.non_preemptible_workers is not None or tier.cap < 1 or tier.guarantee > 0
            for tier in self._tiers.values()
        )

    def take(self, tier: str, size: int, types: Collection[AcceleratorType]) -> None:
        """Count a gang of `size` workers of the tier on each of the types; once in its number of workers."""
        for name in chain_of(tier, self._tiers):
            self._in_all[name] += size
            for each in types:
                self._held[name, each] += size
        for each in types:
            self._own[tier, each] += size

    def types(self, tier: str, size: int, types: Collection[AcceleratorType]) -> list[AcceleratorType]:
        """Return those of the types on which one more gang of so many workers may stay."""
        if self._full(tier, size) is not None:
            return []
        return [name for name in types if self._is_within_caps(tier, size, name) and self._leaves(tier, size, name)]

    def why_not(self, spec: JobSpec) -> str:
        """Return the sentence for a job whose gang may stay on no type."""
        size, full = spec.scale_factor, self._full(spec.tier, spec.scale_factor)
        if full is None:
            return (
                f"The job may not be preempted and needs {size} more of one accelerator type. Its tier's cap and the"
                " guarantees of other tiers do not leave so many to jobs that stay."
            )
        held, most = self._in_all[full.name], full.non_preemptible_workers
        return (
            f"Jobs that may not be preempted hold {held} of the {most} workers that tier {full.name} lets them hold;"
            f" this one needs {size} more."
        )

    def _full(self, tier: str, size: int) -> Tier | None:
        """The tier, or the one above it, whose number of workers does not allow so many more."""
        for name in chain_of(tier, self._tiers):
            most = self._tiers[name].non_preemptible_workers
            if most is not None and self._in_all[name] + size > most:
                return self._tiers[name]
        return None

    def _is_within_caps(self, tier: str, size: int, name: AcceleratorType) -> bool:
        return all(
            self._held[each, name] + size <= self._tiers[each].cap * self._capacity[name] + ROUNDING
            for each in chain_of(tier, self._tiers)
        )

    def _leaves(self, tier: str, size: int, name: AcceleratorType) -> bool:
        """Whether all tiers can have what they hold and what they are guaranteed, with one more gang."""
        self._own[tier, name] += size
        wanted = self._wanted(self._below.get(None, ()), name)
        self._own[tier, name] -= size
        return wanted <= self._capacity[name] + ROUNDING

    def _wanted(self, tiers: Sequence[Tier], name: AcceleratorType) -> float:
        return sum(
            max(
                self._own[tier.name, name] + self._wanted(self._below.get(tier.name, ()), name),
                tier.guarantee * self._capacity[name],
            )
            for tier in tiers
        )
