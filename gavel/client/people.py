"""The clients' calls about tiers, users and tokens."""

from collections.abc import Sequence
from typing import TypedDict, Unpack

from gavel.client.answers import Tier, TierLimits, Usage, User
from gavel.client.script import Method, Script, call, get, listed, part


class BearerToken(TypedDict):
    """A bearer token, without what it opens with."""

    id: str
    user: str
    scope: str
    created_at_s: float


class PeopleCalls:
    """Part of both clients."""

    @Method
    def tiers(self) -> Script[list[Tier]]:
        """All tiers, by name."""
        return listed("/v1/tiers")

    @Method
    def tier(self, name: str) -> Script[Tier]:
        """One tier; its `version` is what `put_tier` replaces."""
        return get(f"/v1/tiers/{part(name)}")

    @Method
    def put_tier(
        self,
        name: str,
        *,
        weight: float = 1.0,
        objective: str = "fairness",
        guarantee: float = 0.0,
        version: int | None = None,
        **limits: Unpack[TierLimits],
    ) -> Script[Tier]:
        """Replace the tier if it still has `version`; None: create it. 412 if somebody was faster."""
        headers = {"If-None-Match": "*"} if version is None else {"If-Match": f'"{version}"'}
        body = {"weight": weight, "objective": objective, "guarantee": guarantee, **limits}
        return call("PUT", f"/v1/tiers/{part(name)}", json=body, headers=headers)

    @Method
    def usage(self, tier: str, month: str | None = None) -> Script[Usage]:
        """What the tier used in a month (`2026-11`, UTC; None: this one), beside its limits."""
        return get(f"/v1/tiers/{part(tier)}/usage", month=month)

    @Method
    def users(self) -> Script[list[User]]:
        """All users, by name."""
        return listed("/v1/users")

    @Method
    def user(self, name: str) -> Script[User]:
        """One user."""
        return get(f"/v1/users/{part(name)}")

    @Method
    def put_user(self, name: str, tiers: Sequence[str]) -> Script[User]:
        """Create or replace a user; the first tier is its default."""
        return call("PUT", f"/v1/users/{part(name)}", json={"tiers": list(tiers)})

    @Method
    def create_token(self, user: str, scope: str = "user") -> Script[str]:
        """A new bearer token of scope `user` or `operator`; there is no way to see it again."""
        made = yield from call("POST", f"/v1/users/{part(user)}/tokens", json={"scope": scope})
        return str(made["token"])

    @Method
    def tokens(self, user: str) -> Script[list[BearerToken]]:
        """The user's bearer tokens, oldest first."""
        return listed(f"/v1/users/{part(user)}/tokens")

    @Method
    def revoke_token(self, user: str, token_id: str) -> Script[list[BearerToken]]:
        """Take a token back: it opens nothing any more. Returns those that are left."""
        left = yield from call("DELETE", f"/v1/users/{part(user)}/tokens/{part(token_id)}")
        return list(left["items"])
