"""Who of those that log in at an OpenID provider is a member here, under which name, and what members may do."""

import re
from collections.abc import Collection, Mapping
from typing import Any

from api.access.oidc import LoginFailed, claim
from gavel.config import OidcSettings
from gavel.types import Scope
from gavel.types.federated import FederatedIdentity, FederatedLogin

EVERYBODY = "*"


def member(settings: OidcSettings, claims: Mapping[str, Any]) -> FederatedLogin:
    """Return what these claims make of a person. Raises LoginFailed for one in no group that the settings name."""
    groups = {EVERYBODY, *_groups(claim(claims, settings.groups_claim))}
    tiers = tuple(dict.fromkeys(tier for group, names in settings.tiers.items() if group in groups for tier in names))
    scope = _scope(settings, groups, bool(tiers))
    if scope is None:
        raise LoginFailed(
            "You are no member of this service: none of your groups at the provider may use it. Ask its operator.",
            f"groups of {claims['sub']}: {sorted(groups - {EVERYBODY})}",
        )
    person = FederatedIdentity(issuer=settings.issuer_url, subject=str(claims["sub"]))
    return FederatedLogin(person=person, name=_name(settings, claims), tiers=tiers, scope=scope)


def _groups(value: Any) -> Collection[str]:
    values = value if isinstance(value, list) else [value]
    return {each for each in values if isinstance(each, str) and each != EVERYBODY}


def _scope(settings: OidcSettings, groups: set[str], has_tiers: bool) -> Scope | None:
    if not groups.isdisjoint(settings.operator_groups):
        return Scope.OPERATOR
    if has_tiers:
        return Scope.USER
    return None if groups.isdisjoint(settings.viewer_groups) else Scope.VIEWER


def _name(settings: OidcSettings, claims: Mapping[str, Any]) -> str:
    """Return the name as users of this service are named: what is before an @, in small letters, else hyphens."""
    text = claim(claims, settings.name_claim)
    name = re.sub(r"[^a-z0-9]+", "-", str(text or "").partition("@")[0].lower())[:63].strip("-")
    if not name:
        raise LoginFailed(
            "The provider gives no name that could be yours here. Ask the operator of this service.",
            f"claim {settings.name_claim} of {claims['sub']} is {text!r}",
        )
    return name
