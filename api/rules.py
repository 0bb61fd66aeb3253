"""What a submit is checked against, as it was at one moment."""

from collections.abc import Mapping
from dataclasses import dataclass

from api.schemas import CatalogueEntry
from api.services import Services
from gavel.types import AcceleratorType, Tier


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Tiers by name, workers by accelerator type (empty: no cluster seen yet), the catalogue's kinds, and the time."""

    tiers: Mapping[str, Tier]
    capacity: Mapping[AcceleratorType, int]
    catalogue: Mapping[str, CatalogueEntry]
    now_s: float


def rules_of(services: Services) -> Rules:
    """Return the rules as they are now. Raise StoreUnavailable."""
    return Rules(
        tiers={tier.name: tier for tier in services.store.tiers()},
        capacity=services.store.cluster().capacity_workers(),
        catalogue=services.catalogue,
        now_s=services.clock.now_s(),
    )
