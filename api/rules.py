"""What a submit is checked against, as it was at one moment."""

from collections.abc import Mapping
from dataclasses import dataclass

from api.schemas import CatalogueEntry
from api.services import Services
from gavel.mechanism.cluster.feasibility import Feasibility
from gavel.types import Tier


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Tiers by name, where jobs can run (without types: no cluster seen yet), the catalogue's kinds, time, backend."""

    tiers: Mapping[str, Tier]
    feasibility: Feasibility
    catalogue: Mapping[str, CatalogueEntry]
    now_s: float
    backend: str


def rules_of(services: Services) -> Rules:
    """Return the rules as they are now. Raise StoreUnavailable."""
    return Rules(
        tiers={tier.name: tier for tier in services.store.tiers()},
        feasibility=Feasibility(services.store.cluster()),
        catalogue=services.catalogue,
        now_s=services.clock.now_s(),
        backend=services.settings.backend,
    )
