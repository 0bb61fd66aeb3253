"""What the API is sent about tiers and users.

Made by scripts/client_types.py of the API's description: change that, then `make client-types`.
"""

from collections.abc import Sequence
from typing import Literal, NotRequired, TypedDict


class UserPut(TypedDict):
    """The tiers a user may submit to; the first is the default."""

    tiers: Sequence[str]


class UserLinkPut(TypedDict):
    """The person at the OpenID provider who is to log in as the user."""

    subject: str  # The provider's own key of the person; the login page shows it to whom it refuses.


class TokenCreate(TypedDict):
    """What a new token may do."""

    scope: NotRequired[Literal["user", "operator", "viewer", "node"]]


class SecretPut(TypedDict):
    """A secret's value, which no answer ever has."""

    value: str  # Text without NUL.
