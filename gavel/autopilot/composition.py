"""Compositions whose policies are checked: `read` asks the registry, of which the scheduler knows nothing."""

from functools import partial

from gavel.composition import PARTS, Composition, parsed
from gavel.config import Settings
from gavel.policies import registry

__all__ = ["PARTS", "Composition", "read"]


def read(text: str, service: Settings) -> Composition:
    """Return the composition of `POLICY/PART=VALUE/..`, its policy canonical. Raise InvalidRequest with the choices."""
    return parsed(text, service, partial(registry.canonical, folder=service.policy_dir))
