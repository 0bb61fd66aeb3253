"""What a submit is checked against, as it was at one moment."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from api.schemas import CatalogueEntry
from api.services import Services
from gavel.backends.session_use import sees_use
from gavel.mechanism.cluster.configured import regions_of
from gavel.mechanism.cluster.feasibility import Feasibility
from gavel.types import Tier


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Tiers by name, where jobs can run (without types: no cluster seen yet), the catalogue's kinds, time, backend.

    `sees_use`: it is known when a session was used. `unreached`: regions with a backend of their own of which no node
    is there now. What could run there nobody knows.
    """

    tiers: Mapping[str, Tier]
    feasibility: Feasibility
    catalogue: Mapping[str, CatalogueEntry]
    now_s: float
    backend: str
    sees_use: bool
    unreached: frozenset[str] = frozenset()

    def may_be_unreached(self, regions: Collection[str]) -> bool:
        """Return whether a job that may be in these regions (none: in any) may be in one that is not there now."""
        return bool(self.unreached.intersection(regions) if regions else self.unreached)


def rules_of(services: Services) -> Rules:
    """Return the rules as they are now. Raise StoreUnavailable."""
    cluster = services.store.cluster()
    return Rules(
        tiers={tier.name: tier for tier in services.store.tiers()},
        feasibility=Feasibility(cluster),
        catalogue=services.catalogue,
        now_s=services.clock.now_s(),
        backend=services.settings.backend,
        sees_use=sees_use(services.settings),
        unreached=frozenset(services.settings.backends).difference(regions_of(cluster)),
    )
