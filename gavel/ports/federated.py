"""Which user of the service each person at an OpenID provider is."""

from typing import Protocol

from gavel.types.federated import FederatedIdentity, FederatedLogin, NewSession


class FederatedStore(Protocol):
    """Links between persons at an OpenID provider and users. What a call wrote is committed when it returns."""

    def log_in(self, login: FederatedLogin, session: NewSession) -> str:
        """Begin a session and return the user's name, all in one transaction.

        A person who is linked to no user gets a new one of the name that the login has, and is linked to it. Raises
        Conflict if there is a user of that name, so that no name at the provider opens somebody else's account;
        NotFound for an unknown tier.
        """

    def link(self, person: FederatedIdentity, user: str, *, by: str, now_s: float) -> None:
        """Let the person log in as this user from now on. Raises NotFound (user), Conflict (is another user)."""

    def unlink(self, user: str, *, by: str, now_s: float) -> None:
        """Undo the link of the user, and end the sessions that it began. Raises NotFound if there is none."""

    def linked(self, user: str) -> FederatedIdentity | None:
        """Return who logs in as this user; None: nobody."""
