"""Compositions whose policies are checked: `read` asks the registry, of which the scheduler knows nothing."""

from functools import partial

from gavel.composition import FIELD, PARTS, Composition, parsed
from gavel.config import Settings
from gavel.errors import InvalidRequest
from gavel.policies import registry

__all__ = ["PARTS", "Composition", "read"]


def read(text: str, service: Settings, field: str = FIELD) -> Composition:
    """Return the composition of `POLICY/PART=VALUE/..`, its policy canonical.

    Raise InvalidRequest for `field`, which names the choices.
    """
    try:
        return parsed(text, service, partial(registry.canonical, folder=service.policy_dir))
    except InvalidRequest as error:
        raise InvalidRequest(field, error.message) from None


def spelling(text: str, service: Settings) -> str:
    """Return the text in its one spelling; as it is, if it cannot be read, as where a policy's file is gone."""
    try:
        return read(text, service).text
    except InvalidRequest:
        return text
