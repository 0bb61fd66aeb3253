"""The part of `gavel.store.conformance` about bearer tokens that are listed and taken back."""

from collections.abc import Callable

from gavel.errors import NotFound
from gavel.ports import Store
from gavel.store.samples import refused
from gavel.types import Scope, User


def a_token_that_is_taken_back_opens_nothing(store: Store) -> None:
    """The user's tokens are listed by the start of their SHA-256, those of its jobs are not; the audit log knows."""
    first, second, of_a_job = ("a" * 64, "b" * 64, "c" * 64)
    store.put_user(User(name="ann", tiers=("default",)), by="op", now_s=1.0)
    store.add_token(second, user="ann", scope=Scope.OPERATOR, now_s=1.0)
    store.add_token(first, user="ann", scope=Scope.USER, now_s=2.0)
    store.add_token(of_a_job, user="ann", scope=Scope.JOB, job_id="j", now_s=3.0)
    expected = [("b" * 16, Scope.OPERATOR, 1.0), ("a" * 16, Scope.USER, 2.0)]
    assert [(each.id, each.scope, each.created_at_s) for each in store.tokens("ann")] == expected
    assert store.tokens("bob") == ()
    for user, token_id in (("bob", "b" * 16), ("ann", "c" * 16), ("ann", "b" * 15), ("ann", "%")):
        with refused(NotFound):
            store.revoke_token(user, token_id, by="op", now_s=4.0)
    store.revoke_token("ann", "b" * 16, by="op", now_s=5.0)
    assert store.identify(second) is None and store.identify(first) is not None
    assert [each.id for each in store.tokens("ann")] == ["a" * 16]
    newest = store.audit(limit=1)[0]
    assert (newest.action, newest.by, newest.user) == ("token.revoked", "op", "ann")
    assert newest.before == {"id": "b" * 16, "scope": "operator"}


CHECKS: tuple[Callable[[Store], None], ...] = (a_token_that_is_taken_back_opens_nothing,)
