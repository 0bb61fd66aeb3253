"""Objective and barrier: which node is best, and what has to be done before."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gavel.ephemeral import GangRequest, Member, match
from gavel.ephemeral.libraries import Alternative, Barrier, Objective, Soft, compose
from gavel.errors import InvalidResource
from tests.ephemeral.libraries.scene import a_scene, histories


@histories
@given(scores=st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 50), min_size=1), cost=st.integers(1, 4))
def test_every_task_goes_to_a_node_within_a_factor_of_two_of_the_best(scores: dict[str, int], cost: int) -> None:
    scene, objective = a_scene(**dict.fromkeys(scores, 100)), Objective("app/worth", scores, cost)
    for index in range(8):
        objective.apply(scene.cluster)
        state = scene.cluster.get_cluster_state()
        left = {node: state[node]["app/worth"].free for node in scores}
        scene.submit(f"t{index}", objective)
        started = scene.start()
        assert bool(started) == (max(left.values()) >= cost)
        if started:
            chosen = left[scene.running[f"t{index}"][0]]
            assert 2 * chosen + 1 >= max(left.values()) and chosen >= cost
        scene.waiting.clear()


def test_a_threshold_is_compared_and_not_held() -> None:
    scene, objective = a_scene(a=4), Objective("app/worth", {"a": 8}, 3)
    objective.apply(scene.cluster)
    scene.submit("x", objective)
    scene.start()
    assert scene.cluster.get_cluster_state()["a"]["app/worth"].free == 5


def test_who_waits_for_a_threshold_is_told_which() -> None:
    scene = a_scene(a=4)
    Objective("app/worth", {"a": 8}).apply(scene.cluster)
    first = Alternative({"app/worth": 1}, at_least={"app/worth": 9})

    class Greedy(Objective):
        def asks(self) -> tuple[Alternative, ...]:
            return (first,)

    scene.submit("x", Greedy("app/worth", {"a": 8}))
    assert scene.start() == []
    assert "app/worth" in scene.table.missing(scene.waiting["x"], 0.0)


def test_a_threshold_counts_on_the_node_that_the_task_names() -> None:
    table = a_scene(a=4, b=4).table
    table.set_resource("worth", 9, "b", 60.0, "app", 0.0)
    table.set_resource("worth", 2, "a", 60.0, "app", 0.0)
    request = GangRequest(("x", 1), (Member({"app/worth": 1}, "a", {"app/worth": 5}),))
    assert match(table, [request], 0.0) == ()
    assert "app/worth" in table.missing(request, 0.0)


def test_thresholds_compose_with_other_libraries() -> None:
    objective = Objective("app/worth", {"a": 4}, 1)
    both = compose(objective, Soft((Barrier(("app/go",)), compose()), 5.0)).asks()
    assert both[0] == Alternative({"app/worth": 1, "app/go": 1}, 0.0, {"app/worth": 4})
    assert both[-1] == Alternative({"app/worth": 1}, 5.0, {"app/worth": 1})
    assert [each.after_s for each in both] == [0.0] * 3 + [5.0] * 3


@pytest.mark.parametrize("is_first", [True, False])
def test_a_barrier_opens_when_all_signals_are_there_in_either_order(is_first: bool) -> None:
    signals = ("app/a", "app/b")
    scene, waiting = a_scene(x=1, y=1), Barrier(signals)
    if is_first:
        scene.submit("late", waiting)
    for done in ({"app/b"}, {"app/b", "app/a"}):
        assert scene.start() == []
        Barrier(signals, frozenset(done)).apply(scene.cluster)
    if not is_first:
        scene.submit("late", waiting)
    assert scene.start() == ["late"]


def test_a_signal_that_is_taken_back_holds_up_those_to_come() -> None:
    scene = a_scene(x=2)
    Barrier(("app/a",), frozenset({"app/a"})).apply(scene.cluster)
    scene.submit("one", Barrier(("app/a",)))
    assert scene.start() == ["one"]
    Barrier(("app/a",)).apply(scene.cluster)
    scene.submit("two", Barrier(("app/a",)))
    assert scene.start() == [] and "one" in scene.running


def test_nonsense_is_refused() -> None:
    with pytest.raises(InvalidResource, match="scores"):
        Objective("app/x", {})
    with pytest.raises(InvalidResource, match="cost"):
        Objective("app/x", {"a": 1}, 0)
    with pytest.raises(InvalidResource, match="signals"):
        Barrier(())
