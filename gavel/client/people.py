"""The clients' calls about tiers, users and tokens."""

from collections.abc import Sequence
from typing import Unpack

from gavel.client.answers import BearerToken, Secret, Tier, Usage, User, UserLink
from gavel.client.bodies import TierPut
from gavel.client.script import Method, Script, call, get, listed, part


class PeopleCalls:
    """Calls about tiers, users and tokens, part of both clients."""

    @Method
    def tiers(self) -> Script[list[Tier]]:
        """Return all tiers, by name."""
        return listed("/v1/tiers")

    @Method
    def tier(self, name: str) -> Script[Tier]:
        """Return one tier. Give its `version` to `put_tier` to replace it."""
        return get(f"/v1/tiers/{part(name)}")

    @Method
    def put_tier(self, name: str, *, version: int | None = None, **rules: Unpack[TierPut]) -> Script[Tier]:
        """Replace the tier if it still has `version`; None: create it. 412 if somebody else changed it before."""
        headers = {"If-None-Match": "*"} if version is None else {"If-Match": f'"{version}"'}
        return call("PUT", f"/v1/tiers/{part(name)}", json=dict(rules), headers=headers)

    @Method
    def usage(self, tier: str, month: str | None = None) -> Script[Usage]:
        """Return what the tier used in a month (`2026-11`, UTC; None: this month), with its limits."""
        return get(f"/v1/tiers/{part(tier)}/usage", month=month)

    @Method
    def users(self) -> Script[list[User]]:
        """Return all users, by name."""
        return listed("/v1/users")

    @Method
    def user(self, name: str) -> Script[User]:
        """Return one user."""
        return get(f"/v1/users/{part(name)}")

    @Method
    def put_user(self, name: str, tiers: Sequence[str]) -> Script[User]:
        """Create or replace a user; the first tier is its default."""
        return call("PUT", f"/v1/users/{part(name)}", json={"tiers": list(tiers)})

    @Method
    def user_link(self, name: str) -> Script[UserLink]:
        """Return who at the OpenID provider logs in as the user. 404 if nobody does."""
        return get(f"/v1/users/{part(name)}/link")

    @Method
    def link_user(self, name: str, subject: str) -> Script[UserLink]:
        """Let the person with this subject at the OpenID provider log in as the user."""
        return call("PUT", f"/v1/users/{part(name)}/link", json={"subject": subject})

    @Method
    def unlink_user(self, name: str) -> Script[User]:
        """Let nobody at the OpenID provider log in as the user any more; end the sessions that began so."""
        return call("DELETE", f"/v1/users/{part(name)}/link")

    @Method
    def secrets(self) -> Script[list[Secret]]:
        """Return the caller's secrets by name, without their values."""
        return listed("/v1/secrets")

    @Method
    def put_secret(self, name: str, value: str) -> Script[Secret]:
        """Store a secret of the caller, or replace its value, which nothing shows again."""
        return call("PUT", f"/v1/secrets/{part(name)}", may_repeat=True, json={"value": value})

    @Method
    def delete_secret(self, name: str) -> Script[list[Secret]]:
        """Delete a secret of the caller. Return those that are left."""
        left = yield from call("DELETE", f"/v1/secrets/{part(name)}")
        return list(left["items"])

    @Method
    def create_token(self, user: str, scope: str = "user") -> Script[str]:
        """Create a bearer token of scope `user`, `operator`, `viewer` or `node`. It cannot be shown again."""
        made = yield from call("POST", f"/v1/users/{part(user)}/tokens", json={"scope": scope})
        return str(made["token"])

    @Method
    def tokens(self, user: str) -> Script[list[BearerToken]]:
        """Return the user's bearer tokens, oldest first."""
        return listed(f"/v1/users/{part(user)}/tokens")

    @Method
    def revoke_token(self, user: str, token_id: str) -> Script[list[BearerToken]]:
        """Revoke a token. Return those that are left."""
        left = yield from call("DELETE", f"/v1/users/{part(user)}/tokens/{part(token_id)}")
        return list(left["items"])
