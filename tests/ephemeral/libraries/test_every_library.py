"""What holds of every library, and of anything that wants to be one."""

import pytest

from gavel.ephemeral.libraries import (
    AntiAffinity,
    Barrier,
    BinPacking,
    CoLocation,
    DataLocality,
    FairSharing,
    GangPool,
    Library,
    LoadBalancing,
    Objective,
    Priority,
    Queue,
    Share,
    Soft,
    StaticLoadBalancing,
    compose,
)
from tests.ephemeral.libraries.scene import a_scene

CPU = {"node/cpu": 1}
POOL = GangPool("app/slots", {"a": 2, "b": 2})
LIBRARIES: dict[str, Library] = {
    "anti-affinity": AntiAffinity("app/x"),
    "barrier": Barrier(("app/x", "app/y"), frozenset({"app/x", "app/y"})),
    "bin packing": BinPacking("app/x", CPU),
    "co-location": CoLocation("app/x", CPU, 2),
    "data locality": DataLocality("app/x", ("a", "b")),
    "fair sharing": FairSharing(Share("all", children=(Share("app/x"), Share("app/y"))), frozenset({"app/x"})).of(
        "app/x"
    ),
    "gang": POOL.of("x", 2),
    "gang pool": POOL,
    "load balancing": LoadBalancing("app/x", CPU),
    "objective": Objective("app/x", {"a": 4, "b": 9}),
    "priority": Priority((Queue("app/x", 2), Queue("app/y", 2)), CPU).of("app/x"),
    "soft": Soft((AntiAffinity("app/x"), compose()), 5.0),
    "static load balancing": StaticLoadBalancing("app/x", 3),
    "composition": compose(LoadBalancing("app/x", CPU), CoLocation("app/y", CPU, 1)),
}


@pytest.fixture(params=LIBRARIES)
def library(request: pytest.FixtureRequest) -> Library:
    return LIBRARIES[request.param]


def test_applied_again_to_a_cluster_at_rest_it_changes_nothing(library: Library) -> None:
    scene = a_scene(a=2, b=2)
    scene.settle(library)
    at_rest = scene.capacities()
    for _ in range(3):
        library.apply(scene.cluster)
        assert scene.capacities() == at_rest


def test_its_names_live_as_long_as_it_is_applied_and_end_with_their_lease(library: Library) -> None:
    scene = a_scene(a=2, b=2)
    scene.settle(library)
    at_rest = scene.capacities()
    for scene.now_s in (50.0, 100.0, 150.0):
        library.apply(scene.cluster)
    scene.now_s = 209.0
    assert scene.capacities() == at_rest
    scene.now_s = 210.0
    assert scene.capacities() == {}


def test_a_task_that_asks_what_it_says_starts_and_its_first_wish_is_open_at_once(library: Library) -> None:
    scene = a_scene(a=2, b=2)
    scene.settle(library)
    scene.submit("x", library)
    assert scene.start() == ["x"] and scene.choices == {"x": 0}
    opens = [each.after_s for each in library.asks()]
    assert opens[0] == 0 and opens == sorted(opens)


def test_it_survives_the_loss_of_every_node_and_their_return(library: Library) -> None:
    scene = a_scene(a=2, b=2)
    scene.settle(library)
    at_rest = scene.capacities()
    for node in "ab":
        scene.table.remove_node(node)
    scene.settle(library)
    assert scene.capacities() == {}
    for node in "ab":
        scene.table.add_node(node, {"cpu": 2})
    scene.settle(library)
    assert scene.capacities() == at_rest
