"""Gangs that their cluster placed elsewhere than they were planned: workers change places, and nothing else does."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gavel.backends.nodes.allocations import Holdings
from gavel.backends.nodes.fleet import Fleet
from gavel.backends.nodes.gang import NodesGang
from gavel.backends.nodes.numbering import Numbering
from gavel.backends.nodes.placed import follow
from gavel.backends.nodes.protocol import Answer, ListedNode, Seen, Slot
from gavel.ports import LaunchGang
from gavel.types import EphemeralResource

NOW_S = 10.0


class Cluster:
    """Nodes with so many accelerators each of types a and b, as a service sees them."""

    def __init__(self, folder: Path, sizes: Mapping[str, Mapping[str, int]]) -> None:
        self.folder = folder
        self.fleet = Fleet(Numbering(folder / "workers.json", is_current=True), "Slurm")
        self.holdings = Holdings(self.fleet, (), "Slurm")
        nodes = tuple(ListedNode(node_id=name, name=name, slots=tuple(slots(kinds))) for name, kinds in sizes.items())
        answers = {name: Answer(boot_id="b", node_boottime_s=1.0) for name in sizes}
        self.seen = Seen(nodes=nodes, answers=answers, is_connected=True)
        self.fleet.take(self.seen)
        self.holdings.update((), NOW_S)

    def nodes_of(self, gang: NodesGang) -> Counter[str]:
        return Counter(self.fleet.place_of[worker][0] for worker in gang.instruction.worker_ids)

    def follow(self, gangs: list[NodesGang], name: str, nodes: Mapping[str, int], kind: str = "a") -> bool:
        """Whether the gang of this job could follow its group to these nodes."""
        bundles = tuple((node, f"acc:{kind}", units) for node, units in nodes.items())
        return not follow(self.fleet, self.holdings, gangs, {f"gavel/{name}/1": bundles}, NOW_S)


def slots(kinds: Mapping[str, int]) -> list[Slot]:
    return [
        Slot(accelerator_type=kind, resource=f"acc:{kind}", index=index)
        for kind, count in kinds.items()
        for index in range(count)
    ]


def a_gang(folder: Path, job_id: str, *workers: str) -> NodesGang:
    instruction = LaunchGang(
        job_id=job_id,
        generation=1,
        user="ann",
        argv=("x",),
        env={},
        accelerator_type=workers[0][0],
        worker_ids=workers,
        resource=f"gavel/gang-{job_id}-1",
        lease_expires_at_s=60.0,
        start_step=0,
        total_steps=1,
        checkpoint=None,
    )
    return NodesGang(instruction=instruction, directory=folder / job_id, lease_boottime_s=1e12)


@pytest.fixture
def two(tmp_path: Path) -> Cluster:
    """a-0 and a-1 on n0, with b-0; a-2 and a-3 on n1."""
    return Cluster(tmp_path, {"n0": {"a": 2, "b": 1}, "n1": {"a": 2}})


def test_a_gang_that_is_where_it_was_planned_moves_nobody(two: Cluster) -> None:
    before = dict(two.fleet.place_of)
    assert two.follow([a_gang(two.folder, "j1", "a-0", "a-1")], "j1", {"n0": 2})
    assert two.fleet.place_of == before


def test_its_workers_and_those_of_the_chosen_node_change_places_for_good(two: Cluster) -> None:
    """1 planned on n0, placed on n1, 2 the observed cluster says so, 3 and so does the next service."""
    gang = a_gang(two.folder, "j1", "a-0", "a-1")
    assert two.follow([gang], "j1", {"n1": 2})
    two.fleet.take(two.seen)
    nodes = {worker.id: worker.node for worker in two.fleet.cluster.workers}
    assert nodes == {"a-0": "n1", "a-1": "n1", "a-2": "n0", "a-3": "n0", "b-0": "n0"}
    again = Fleet(Numbering(two.folder / "workers.json", is_current=True), "Slurm")
    again.take(two.seen)
    assert {worker.id: worker.node for worker in again.cluster.workers} == nodes


def test_a_gang_takes_its_ephemeral_resource_along(two: Cluster) -> None:
    """1 it is set where the gang was planned, which has matched it, 2 it is where the gang is, and held there."""
    gang = a_gang(two.folder, "j1", "a-0", "a-1")
    own = EphemeralResource(
        name="gang-j1-1", node="n0", capacity=2, owner="gavel", lease_expires_at_s=70.0, generation=1
    )
    two.holdings.set_resources([own], NOW_S)
    assert two.holdings.match([gang], NOW_S) == {("j1", 1)}
    assert two.follow([gang], "j1", {"n0": 1, "n1": 1})
    there = {each.node: each.capacity for each in two.holdings.table.resources(NOW_S) if each.capacity}
    assert there == {"n0": 2, "n1": 1}
    assert two.holdings.table.holds(gang.key)
    held = two.holdings.table.held()
    assert (held["gavel/gang-j1-1", "n0"], held["gavel/gang-j1-1", "n1"]) == (1, 1)


def test_a_gang_that_only_waits_gives_its_planned_place_to_one_that_is_placed(two: Cluster) -> None:
    """Its own place is no more than planned, too: it is planned where the other one was."""
    placed, waiting = a_gang(two.folder, "j1", "a-0"), a_gang(two.folder, "j2", "a-2", "a-3")
    assert two.follow([placed, waiting], "j1", {"n1": 1})
    assert (two.nodes_of(placed), two.nodes_of(waiting)) == ({"n1": 1}, {"n0": 1, "n1": 1})


def test_a_gang_that_only_waits_takes_its_ephemeral_resource_along(two: Cluster) -> None:
    """1 it is planned on n1 and has not matched, 2 one of its workers is now on n0: it matches there and on n1."""
    placed, waiting = a_gang(two.folder, "j1", "a-0"), a_gang(two.folder, "j2", "a-2", "a-3")
    own = EphemeralResource(
        name="gang-j2-1", node="n1", capacity=2, owner="gavel", lease_expires_at_s=70.0, generation=1
    )
    two.holdings.set_resources([own], NOW_S)
    assert two.follow([placed, waiting], "j1", {"n1": 1})
    assert two.holdings.match([waiting], NOW_S) == {("j2", 1)}


def test_a_place_that_another_placed_gang_has_is_refused(two: Cluster) -> None:
    """What Slurm never does: then nothing is moved, and the gang is not started."""
    first, second = a_gang(two.folder, "j1", "a-2", "a-3"), a_gang(two.folder, "j2", "a-0")
    before = dict(two.fleet.place_of)
    where = {"gavel/j1/1": (("n1", "acc:a", 2),), "gavel/j2/1": (("n1", "acc:a", 1),)}
    lost = follow(two.fleet, two.holdings, [first, second], where, NOW_S)
    assert (lost, two.fleet.place_of) == ({"gavel/j2/1"}, before)


def test_a_node_that_is_not_listed_yet_is_waited_for(two: Cluster) -> None:
    assert not two.follow([a_gang(two.folder, "j1", "a-0")], "j1", {"n9": 1})


def a_resource(node: str, capacity: int, generation: int = 1) -> EphemeralResource:
    """That of the gang of job j1."""
    return EphemeralResource(
        name="gang-j1-1", node=node, capacity=capacity, owner="gavel", lease_expires_at_s=70.0, generation=generation
    )


@pytest.mark.parametrize(
    ("to", "after"),
    [
        ({"n0": 2, "n2": 1}, [a_resource("n0", 2), a_resource("n2", 1)]),
        ({"n0": 1, "n1": 2}, [a_resource("n0", 2), a_resource("n1", 2, 2)]),
        ({"n1": 2, "n2": 1}, [a_resource("n1", 2, 2), a_resource("n2", 1)]),
    ],
)
def test_the_resource_of_a_gang_that_moves_is_there_where_its_ranks_are(
    tmp_path: Path, to: Mapping[str, int], after: list[EphemeralResource]
) -> None:
    """It grows on a node that gets more ranks, ends on one that has none any more, and stays as it is elsewhere."""
    three = Cluster(tmp_path, {"n0": {"a": 2}, "n1": {"a": 2}, "n2": {"a": 1}})
    gang, waiting = a_gang(tmp_path, "j1", "a-0", "a-1", "a-2"), a_gang(tmp_path, "j2", "a-3")
    three.holdings.set_resources([a_resource("n0", 2), a_resource("n1", 1)], NOW_S)
    assert three.follow([gang, waiting], "j1", to)
    assert list(three.holdings.table.resources(NOW_S)) == after
    if "n0" not in to or "n1" not in to:
        gone = a_resource("n0" if "n0" not in to else "n1", 1)
        assert not three.holdings.set_resources([gone], NOW_S), "one that has ended is not set again"


def test_units_that_a_group_has_in_several_bundles_are_counted_together(two: Cluster) -> None:
    gang, before = a_gang(two.folder, "j1", "a-0", "a-1"), dict(two.fleet.place_of)
    bundles = (("n0", "acc:a", 1), ("n0", "acc:a", 1))
    assert not follow(two.fleet, two.holdings, [gang], {"gavel/j1/1": bundles}, NOW_S)
    assert two.fleet.place_of == before


def test_a_gang_whose_node_has_gone_is_left_where_it_is(two: Cluster) -> None:
    assert two.follow([a_gang(two.folder, "j1", "a-9")], "j1", {"n1": 1})


def test_a_group_that_has_fewer_places_than_its_gang_has_ranks_moves_nobody(two: Cluster) -> None:
    before = dict(two.fleet.place_of)
    assert not two.follow([a_gang(two.folder, "j1", "a-0", "a-1")], "j1", {"n1": 1})
    assert two.fleet.place_of == before


def test_a_gang_that_cannot_follow_its_group_keeps_no_other_from_it(two: Cluster) -> None:
    first, second = a_gang(two.folder, "j1", "a-0"), a_gang(two.folder, "j2", "a-1")
    where = {"gavel/j1/1": (("n9", "acc:a", 1),), "gavel/j2/1": (("n1", "acc:a", 1),)}
    assert follow(two.fleet, two.holdings, [first, second], where, NOW_S) == {"gavel/j1/1"}
    assert (two.nodes_of(first), two.nodes_of(second)) == ({"n0": 1}, {"n1": 1})


@given(st.data())
def test_whatever_the_cluster_chooses_workers_only_change_places(data: st.DataObject) -> None:
    """Gangs are planned and then placed anywhere that has room: each is found there, and every worker is somewhere."""
    sizes = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=5))
    with TemporaryDirectory() as folder:
        cluster = Cluster(Path(folder), {f"n{index}": {"a": size, "b": 1} for index, size in enumerate(sizes)})
        planned = data.draw(st.permutations([f"a-{index}" for index in range(sum(sizes))]))
        chosen = data.draw(st.permutations([f"n{index}" for index, size in enumerate(sizes) for _ in range(size)]))
        cuts = sorted(data.draw(st.sets(st.integers(1, sum(sizes)), max_size=3)))
        spans = list(zip([0, *cuts], cuts, strict=False))
        gangs = [a_gang(Path(folder), f"j{index}", *planned[one:end]) for index, (one, end) in enumerate(spans)]
        where = {gang.group_name: Counter(chosen[one:end]) for gang, (one, end) in zip(gangs, spans, strict=True)}
        bundles = {
            name: tuple((node, "acc:a", units) for node, units in nodes.items()) for name, nodes in where.items()
        }
        order = data.draw(st.permutations(gangs))
        everywhere = {worker: slot.accelerator_type for worker, (_, slot) in cluster.fleet.place_of.items()}
        for count in range(data.draw(st.integers(1, max(len(order), 1))), len(order) + 1):
            placed = {gang.group_name: bundles[gang.group_name] for gang in order[:count]}
            lost = follow(cluster.fleet, cluster.holdings, gangs, placed, NOW_S)
            assert not lost
            for gang in order[:count]:
                assert cluster.nodes_of(gang) == where[gang.group_name]
        after = {worker: slot.accelerator_type for worker, (_, slot) in cluster.fleet.place_of.items()}
        assert after == everywhere
        at = Counter(node for node, _ in cluster.fleet.place_of.values())
        assert at == {f"n{index}": size + 1 for index, size in enumerate(sizes)}
