"""People whom an OpenID provider vouches for."""

from dataclasses import dataclass

from gavel.types.people import Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class FederatedIdentity:
    """A person at an OpenID provider. The provider never gives a subject to another person, unlike a name."""

    issuer: str
    subject: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FederatedLogin:
    """What a provider reported of a person who logged in. No tiers: those that the user has, else the default."""

    person: FederatedIdentity
    name: str
    tiers: tuple[str, ...]
    scope: Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSession:
    """A session of a browser that is to begin: the SHA-256 of its id (hex), its begin and its end."""

    digest: str
    now_s: float
    ends_at_s: float
