"""Objectives of tiers that leave theirs to whoever chooses the policy: the text of a policy names them."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from urllib.parse import parse_qsl

from gavel.types.people import Tier

AUTO = "auto"  # the objective of a tier that leaves it to the policy's text
DEFAULT_OBJECTIVE = "fairness"  # what `auto` is where that text does not name the tier
TIERED = "hierarchical"  # the policy that gives each tier its own objective
PARAMETER = "objectives"  # of that policy


def read_objectives(text: str) -> dict[str, str]:
    """Return tier -> objective of `gold:speed,free:fifo`. Raise ValueError, whose text says what is wrong."""
    chosen: dict[str, str] = {}
    for part in text.split(",") if text else ():
        tier, colon, objective = part.partition(":")
        if not (tier and colon and objective):
            raise ValueError(f"{part!r}: write TIER:OBJECTIVE, as in gold:speed")
        if tier in chosen:
            raise ValueError(f"names tier {tier} twice; name each tier once")
        chosen[tier] = objective
    return chosen


def written(chosen: Mapping[str, str]) -> str:
    """Return the text that `read_objectives` reads, tiers sorted; those of the default objective are left out."""
    return ",".join(f"{tier}:{name}" for tier, name in sorted(chosen.items()) if name != DEFAULT_OBJECTIVE)


def chosen_by(policy: str) -> dict[str, str]:
    """Return tier -> objective that the text of a policy names; {} for a policy that knows no tiers."""
    name, _, parameters = policy.partition("/")[0].partition("?")
    return read_objectives(dict(parse_qsl(parameters)).get(PARAMETER, "")) if name == TIERED else {}


def not_auto(policy: str, tiers: Iterable[Tier]) -> dict[str, str]:
    """Return the tiers whose objective the policy's text names although it is not `auto`, with theirs; "": no tier."""
    own = {tier.name: tier.objective for tier in tiers}
    return {name: own.get(name, "") for name in chosen_by(policy) if own.get(name) != AUTO}


def sentence(tier: Tier, policy: str) -> str:
    """Return what the tier's jobs share by, as a sentence for users; empty where `policy` gives tiers no objectives."""
    if policy.partition("/")[0].partition("?")[0] != TIERED:
        return ""
    objective = in_force([tier], chosen_by(policy))[0].objective
    why = ": the tier leaves it to the policy in force" if tier.objective == AUTO else ""
    return f"Jobs of {tier.name} share by the objective {objective}{why}."


def in_force(tiers: Iterable[Tier], chosen: Mapping[str, str]) -> tuple[Tier, ...]:
    """Return the tiers; those of objective `auto` have the chosen one, or the default. Nothing else changes."""
    return tuple(
        replace(tier, objective=chosen.get(tier.name, DEFAULT_OBJECTIVE)) if tier.objective == AUTO else tier
        for tier in tiers
    )
