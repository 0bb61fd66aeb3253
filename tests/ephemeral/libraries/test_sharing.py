"""Priority and hierarchical fair sharing: who gets what there is not enough of."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gavel.ephemeral.libraries import FairSharing, Priority, Queue, Share, compose
from gavel.ephemeral.libraries.primitives import UNBOUNDED
from gavel.errors import InvalidResource
from tests.ephemeral.libraries.scene import Scene, a_scene, histories

CPU = {"node/cpu": 1}
A, B, C = "res/a", "res/b", "res/c"


# --- priority ---


def queues(high: int, low: int, *, low_waits_s: float = 0.0, max_wait_s: float = 600.0) -> Priority:
    return Priority((Queue("q/high", high), Queue("q/low", low, low_waits_s)), CPU, max_wait_s)


def test_the_lower_queue_gets_only_what_the_higher_one_leaves() -> None:
    scene = a_scene(a=2, b=2)
    queues(high=3, low=5).apply(scene.cluster)
    granted = scene.capacities()
    assert sum(granted["q/high"].values()) == 3 and sum(granted["q/low"].values()) == 1


def test_capacity_follows_completions_and_the_higher_queue_overtakes() -> None:
    scene = a_scene(a=2)
    for index in range(3):
        scene.submit(f"low{index}", queues(0, 3).of("q/low"))
    queues(0, 3).apply(scene.cluster)
    assert len(scene.start()) == 2
    scene.submit("high0", queues(1, 1).of("q/high"))
    scene.end("low0")
    queues(1, 1).apply(scene.cluster)
    assert scene.start() == ["high0"]
    scene.end("low1", "high0")
    queues(0, 1).apply(scene.cluster)
    assert scene.start() == ["low2"]


def test_units_granted_to_nobody_in_particular_are_taken_back() -> None:
    scene = a_scene(a=2)
    queues(0, 2).apply(scene.cluster)
    queues(2, 2).apply(scene.cluster)
    assert scene.capacities() == {"q/high": {"a": 2}}


def test_a_task_that_waited_too_long_goes_first_but_not_its_whole_queue() -> None:
    scene = a_scene(a=2)
    queues(5, 5, low_waits_s=600).apply(scene.cluster)
    assert scene.capacities() == {"q/high": {"a": 1}, "q/low": {"a": 1}}


def test_a_queue_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(InvalidResource, match="no queue 'q/mid'; queues: q/high, q/low"):
        queues(1, 1).of("q/mid")


# --- fair sharing ---


def sharing(*active: str, a: float = 2, b: float = 3) -> FairSharing:
    team = Share("one", children=(Share(A, a), Share(B, b)))
    return FairSharing(Share("all", children=(team, Share("two", children=(Share(C),)))), frozenset(active))


def counts(scene: Scene) -> dict[str, int]:
    return {user: len(nodes) for user, nodes in scene.capacities().items()}


def where(scene: Scene, user: str) -> set[str]:
    return set(scene.capacities().get(user, ()))


def test_the_papers_example_lends_idle_shares_and_takes_them_back_with_as_few_moves_as_possible() -> None:
    """100 nodes; a and b share a team 2 to 3, c has an equal team alone. 1 a alone, 2 b comes, 3 c comes, 4 c goes."""
    scene = a_scene(**{f"n{index}": 1 for index in range(100)})
    expected = [
        ((A,), {A: 100}),
        ((A, B), {A: 40, B: 60}),
        ((A, B, C), {A: 20, B: 30, C: 50}),
        ((A, B), {A: 40, B: 60}),
    ]
    before: dict[str, set[str]] = {}
    for active, wanted in expected:
        sharing(*active).apply(scene.cluster)
        assert counts(scene) == wanted
        for user in set(active) & set(before):
            kept = where(scene, user) & before[user]
            assert len(kept) == min(wanted[user], len(before[user])), f"{user} moved without need"
        before = {user: where(scene, user) for user in active}


def test_reclaiming_waits_for_running_tasks_and_starts_with_nodes_where_none_run() -> None:
    scene = a_scene(n0=1, n1=1)
    both = sharing(A, C)
    sharing(A).apply(scene.cluster)
    scene.submit("a0", both.of(A))
    scene.start()
    (busy,) = scene.running["a0"]
    both.apply(scene.cluster)
    assert where(scene, A) == {busy} and busy not in where(scene, C)
    scene.submit("a1", both.of(A))
    scene.submit("c0", both.of(C))
    assert scene.start() == ["c0"]


def test_a_lender_that_returns_gets_the_name_at_once_and_the_room_when_the_borrowers_task_ends() -> None:
    scene = a_scene(n0=1, n1=1)
    sharing(A).apply(scene.cluster)
    for name in ("a0", "a1", "a2"):
        scene.submit(name, sharing(A).of(A))
    scene.start()
    sharing(A, C).apply(scene.cluster)
    scene.submit("c0", sharing(C).of(C))
    assert scene.start() == []
    (lent,) = where(scene, C)
    scene.end(next(name for name, (node,) in scene.running.items() if node == lent))
    assert scene.start() == ["c0"], "a2 was there first, but may not come back here"


def test_a_user_whose_part_is_less_than_a_node_is_a_guest_in_its_own_team() -> None:
    scene = a_scene(n0=4, n1=4)
    sharing(A, B, C).apply(scene.cluster)
    assert counts(scene) == {A: 1, B: 1, C: 1}
    assert where(scene, A) == where(scene, B) != where(scene, C)


def test_a_child_library_works_inside_its_parents_nodes() -> None:
    scene = a_scene(n0=1, n1=1, n2=1, n3=1)
    outer = FairSharing(Share("all", children=(Share(A), Share(C))), frozenset({A, C}))
    inner = FairSharing(Share("a", children=(Share("res/a1"), Share("res/a2"))), frozenset({"res/a1", "res/a2"}))
    both = compose(outer.of(A), inner.of("res/a2"))
    both.apply(scene.cluster)
    assert where(scene, "res/a1") | where(scene, "res/a2") == where(scene, A)
    scene.submit("x", both)
    scene.start()
    assert set(scene.running["x"]) == where(scene, "res/a2")


def test_unknown_users_and_impossible_weights_are_refused() -> None:
    with pytest.raises(InvalidResource, match="active: no user 'res/z'; users: res/a, res/b, res/c"):
        sharing("res/z")
    with pytest.raises(InvalidResource, match="user: no user 'res/z'"):
        sharing(A).of("res/z")
    with pytest.raises(InvalidResource, match="weight: 0 of res/a"):
        Share(A, 0)


@histories
@given(
    nodes=st.integers(0, 12),
    weights=st.tuples(*[st.integers(1, 5)] * 2),
    rounds=st.lists(st.sets(st.sampled_from((A, B, C))), max_size=5),
)
def test_whoever_comes_and_goes_no_node_is_idle_and_parts_are_within_a_node_of_the_weights(
    nodes: int, weights: tuple[int, int], rounds: list[set[str]]
) -> None:
    scene = a_scene(**{f"n{index}": 1 for index in range(nodes)})
    for active in rounds:
        policy = sharing(*active, a=weights[0], b=weights[1])
        policy.apply(scene.cluster)
        nodes_of = {user: where(scene, user) for user in active}
        assert set(scene.capacities()) <= active
        if active and nodes:
            assert set().union(*nodes_of.values()) == {f"n{index}" for index in range(nodes)}
            assert all(nodes_of.values()), "everybody has somewhere to go"
        team = len(active & {A, B}) and (nodes / 2 if C in active else nodes)
        if {A, B} <= active:
            assert abs(len(nodes_of[A]) - team * weights[0] / sum(weights)) <= 2
        again = scene.capacities()
        policy.apply(scene.cluster)
        assert scene.capacities() == again, "nothing moves without reason"
        assert all(units == UNBOUNDED for where_ in again.values() for units in where_.values())
