"""On which nodes the waiting replicas of a service may be."""

from gavel.mechanism.services.spreading import Domain, nodes_of


def domain(name: str, replicas: int = 0, free: int = 2) -> Domain:
    return Domain(nodes=(name,), replicas=replicas, free=free, open=free)


def test_hard_leaves_only_places_without_a_replica_and_none_to_two() -> None:
    there = [domain("a", replicas=1), domain("b"), domain("c")]
    assert nodes_of(there, [1, 1], is_hard=True) == [("b",), ("c",)]
    assert nodes_of(there, [1, 1, 1], is_hard=True) == [("b",), ("c",), None]
    assert nodes_of(there[:1], [1], is_hard=True) == [None]


def test_hard_skips_places_that_could_never_hold_the_gang_now() -> None:
    assert nodes_of([domain("a", free=0), domain("b", free=2)], [2], is_hard=True) == [("b",)]


def test_soft_takes_the_place_with_the_fewest_and_anywhere_if_none_has_room() -> None:
    there = [domain("a", replicas=1), domain("b", free=1), domain("c", free=3)]
    assert nodes_of(there, [1, 1, 1, 1], is_hard=False) == [("c",), ("b",), ("a",), ("c",)]
    assert nodes_of([domain("a", free=0)], [1], is_hard=False) == [()]
