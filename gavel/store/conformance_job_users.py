"""The part of `gavel.store.conformance` about the uids that the jobs of users run as."""

from gavel.errors import LimitReached
from gavel.store.samples import WholeStore, refused


def a_user_keeps_its_uid_and_none_is_given_twice(store: WholeStore) -> None:
    """1 each user has one of its own, 2 also under another range, 3 a range that is given away is refused."""
    users = store.job_users
    assert [users.uid_of(name, range(2000, 2002)) for name in ("ann", "bob", "ann")] == [2000, 2001, 2000]
    with refused(LimitReached):
        users.uid_of("eve", range(2000, 2002))
    assert users.uid_of("ann", range(3000, 3002)) == 2000
    assert users.uid_of("eve", range(2000, 2003)) == 2002


CHECKS = (a_user_keeps_its_uid_and_none_is_given_twice,)
