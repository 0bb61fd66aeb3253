"""The part of `gavel.store.conformance` about persons at an OpenID provider: whom they log in as."""

from dataclasses import replace

from gavel.errors import Conflict, NotFound
from gavel.store.samples import WholeStore, refused
from gavel.types import Identity, Scope, User
from gavel.types.federated import FederatedIdentity, FederatedLogin, NewSession

ANN = FederatedIdentity(issuer="https://login.example.org", subject="1")
MALLORY = FederatedIdentity(issuer="https://login.example.org", subject="2")
LOGIN = FederatedLogin(person=ANN, name="ann", tiers=("default",), scope=Scope.USER)


def _session(number: int) -> NewSession:
    return NewSession(digest=f"{number:064x}", now_s=1.0, ends_at_s=9.0)


def a_person_stays_the_same_user_whatever_its_name_becomes(store: WholeStore) -> None:
    """The tiers and the scope are those of the newest login; another scope ends the sessions before it."""
    assert store.federated.log_in(LOGIN, _session(1)) == "ann" and store.federated.linked("ann") == ANN
    holder = Identity(user="ann", scope=Scope.USER, tiers=("default",))
    assert store.session_holder(_session(1).digest, 2.0) == holder
    renamed = replace(LOGIN, name="bob", tiers=())
    assert store.federated.log_in(renamed, _session(2)) == "ann"
    assert store.session_holder(_session(1).digest, 2.0) == store.session_holder(_session(2).digest, 2.0) == holder
    assert [user.name for user in store.users()] == ["ann"] and len(store.tokens("ann")) == 1
    assert store.federated.log_in(replace(LOGIN, scope=Scope.OPERATOR), _session(3)) == "ann"
    assert store.session_holder(_session(1).digest, 2.0) is None
    assert store.session_holder(_session(3).digest, 2.0) == replace(holder, scope=Scope.OPERATOR)
    with refused(NotFound):
        store.federated.log_in(replace(LOGIN, tiers=("none",)), _session(4))


def a_name_at_the_provider_opens_nobody_s_account(store: WholeStore) -> None:
    """Neither that of a local user nor that of another person, until an operator links them."""
    store.put_user(User(name="ann", tiers=("default",)), by="op", now_s=1.0)
    for person in (ANN, MALLORY):
        with refused(Conflict):
            store.federated.log_in(replace(LOGIN, person=person), _session(1))
    assert store.session_holder(_session(1).digest, 2.0) is None and store.federated.linked("ann") is None
    with refused(NotFound):
        store.federated.link(ANN, "nobody", by="op", now_s=1.0)
    store.federated.link(ANN, "ann", by="op", now_s=1.0)
    store.federated.link(ANN, "ann", by="op", now_s=1.0)
    assert store.federated.log_in(LOGIN, _session(1)) == "ann"
    with refused(Conflict):
        store.federated.log_in(replace(LOGIN, person=MALLORY), _session(2))
    store.put_user(User(name="bob", tiers=("default",)), by="op", now_s=1.0)
    with refused(Conflict):
        store.federated.link(ANN, "bob", by="op", now_s=1.0)


def a_link_that_is_undone_or_replaced_ends_its_sessions(store: WholeStore) -> None:
    """Who may log in as a user changes at once; each change is in the audit log."""
    store.federated.log_in(LOGIN, _session(1))
    version = store.cache_version
    store.federated.link(MALLORY, "ann", by="op", now_s=1.0)
    assert store.session_holder(_session(1).digest, 2.0) is None and store.cache_version > version
    assert store.federated.linked("ann") == MALLORY
    store.federated.log_in(replace(LOGIN, person=MALLORY), _session(2))
    store.federated.unlink("ann", by="op", now_s=1.0)
    assert store.session_holder(_session(2).digest, 2.0) is None and store.tokens("ann") == ()
    with refused(NotFound):
        store.federated.unlink("ann", by="op", now_s=1.0)
    with refused(Conflict):
        store.federated.log_in(LOGIN, _session(3))
    actions = [each.action for each in store.audit(subject="user/ann", limit=20) if "linked" in each.action]
    assert actions == ["user.unlinked", "user.linked", "user.unlinked", "user.linked"]


CHECKS = (
    a_person_stays_the_same_user_whatever_its_name_becomes,
    a_name_at_the_provider_opens_nobody_s_account,
    a_link_that_is_undone_or_replaced_ends_its_sessions,
)
