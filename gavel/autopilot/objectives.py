"""Candidates that differ in the objectives of tiers which leave theirs to the autopilot."""

from collections.abc import Iterable, Mapping

from gavel.policies.registry import TIER_OBJECTIVES, canonical
from gavel.types import Tier
from gavel.types.tier_objectives import AUTO, PARAMETER, TIERED, written

OBJECTIVES = tuple(name for name in TIER_OBJECTIVES if name != AUTO)


def with_objectives(tiers: Iterable[Tier]) -> tuple[str, ...]:
    """Return compositions of the tiered policy: each objective for each tier of objective `auto`, the others default.

    Where there are several such tiers also each objective for all of them. () without such a tier.
    """
    names = [tier.name for tier in tiers if tier.objective == AUTO]
    groups = [[name] for name in names] + ([names] if len(names) > 1 else [])
    return tuple(dict.fromkeys(_text(dict.fromkeys(group, each)) for each in OBJECTIVES for group in groups))


def _text(chosen: Mapping[str, str]) -> str:
    return canonical(f"{TIERED}?{PARAMETER}={written(chosen)}")
