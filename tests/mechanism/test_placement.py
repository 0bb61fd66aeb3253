"""Fewest nodes, nobody moves without need, and who stays where pairs part or meet."""

from hypothesis import given, settings
from hypothesis import strategies as st

from gavel.mechanism.cluster.placement import Layout, place
from gavel.types import Cluster, Node, Worker
from tests.conftest import IS_FULL


def a_layout(*nodes: int, name: str = "fast") -> Layout:
    """`a_layout(4, 2)`: workers fast-0/0 .. fast-0/3 on one node, fast-1/0 and fast-1/1 on another."""
    workers = tuple(
        Worker(id=f"{name}-{node}/{index}", node=f"{name}-{node}", accelerator_type=name)
        for node, count in enumerate(nodes)
        for index in range(count)
    )
    return Layout(Cluster(nodes=tuple(Node(name=f"{name}-{i}") for i in range(len(nodes))), workers=workers))


def ids(node: int, *indices: int) -> tuple[str, ...]:
    return tuple(f"fast-{node}/{index}" for index in indices)


def test_a_gang_takes_the_tightest_node_that_holds_it() -> None:
    assert place([(0, "fast", 2)], a_layout(4, 2, 3), {}) == {0: ids(1, 0, 1)}


def test_a_gang_that_fits_no_node_takes_whole_nodes_and_the_tightest_for_the_rest() -> None:
    placed = place([(0, "fast", 5)], a_layout(3, 4, 1), {})
    assert set(placed[0]) == {*ids(1, 0, 1, 2, 3), *ids(2, 0)}


def test_large_gangs_choose_first_and_single_ones_use_up_the_tightest_node() -> None:
    layout = a_layout(4, 4)
    placed = place([(0, "fast", 1), (1, "fast", 4), (2, "fast", 2)], layout, {})
    assert [layout.nodes(placed[row]) for row in (1, 2)] == [1, 1]
    assert placed[0][0].split("/")[0] == placed[2][0].split("/")[0]


@given(st.lists(st.integers(1, 6), min_size=1, max_size=6), st.integers(1, 40))
def test_the_fewest_nodes_for_a_gang_are_the_largest_ones(nodes: list[int], size: int) -> None:
    largest = sorted(nodes, reverse=True)
    enough = (count for count in range(1, len(nodes) + 1) if sum(largest[:count]) >= size)
    assert a_layout(*nodes).fewest_nodes("fast", size) == next(enough, len(nodes) + 1)


def test_a_gang_whose_worker_is_gone_or_of_another_type_is_placed_anew() -> None:
    layout = a_layout(2)
    for held in (("fast-0/0", "lost"), ("slow-0/0", "slow-0/1"), ("fast-0/0",)):
        assert place([(0, "fast", 2)], layout, {0: held}) == {0: ids(0, 0, 1)}


def test_a_gang_over_two_nodes_moves_together_when_there_is_room_and_it_may() -> None:
    held = {0: (*ids(0, 0), *ids(1, 0)), 1: ids(0, 1)}
    gangs, layout = [(0, "fast", 2), (1, "fast", 1)], a_layout(2, 2)
    assert place(gangs, layout, held)[0] == held[0]
    together = place(gangs, layout, held, gathers={0})
    assert layout.nodes(together[0]) == 1 and together[1] == held[1]
    full = held | {2: ids(1, 1)}
    assert place([*gangs, (2, "fast", 1)], layout, full, gathers={0}) == full  # no room


def test_of_two_jobs_that_shared_a_worker_one_stays_when_they_part() -> None:
    held = {0: ids(0, 0), 1: ids(0, 0), 2: ids(0, 1)}
    placed = place([(0, "fast", 1), (1, "fast", 1), (2, "fast", 1)], a_layout(3), held)
    assert placed[2] == ids(0, 1) and sorted(placed.values()) == [ids(0, 0), ids(0, 1), ids(0, 2)]
    assert ids(0, 0) in (placed[0], placed[1])


def test_as_many_pairs_as_can_stay_when_partners_change() -> None:
    """1. Jobs 0 and 1 shared worker 0, jobs 2 and 3 worker 1. 2. Now 1 and 2 are a pair, 0 and 3 alone.

    Job 0 keeps worker 0 and 3 keeps worker 1, so the pair has to move; or the pair keeps one of them and one moves.
    """
    held = {0: ids(0, 0), 1: ids(0, 0), 2: ids(0, 1), 3: ids(0, 1)}
    placed = place([(4, "fast", 1), (0, "fast", 1), (3, "fast", 1)], a_layout(3), held, pairs={4: (1, 2)})
    assert sum(workers != ids(0, 2) for workers in placed.values()) == 2
    same = place([(4, "fast", 1), (5, "fast", 1)], a_layout(3), held, pairs={4: (0, 1), 5: (2, 3)})
    assert same == {4: ids(0, 0), 5: ids(0, 1)}


@settings(max_examples=150 if IS_FULL else 50)
@given(st.data())
def test_whoever_stays_on_its_type_stays_on_its_workers_and_nobody_is_placed_twice(data: st.DataObject) -> None:
    """Needless moves are 0: gangs of the same job and type, whose workers are there, on others without fewer nodes."""
    layout = a_layout(*data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    free, gangs = layout.capacity_workers["fast"], []
    for row, size in enumerate(data.draw(st.lists(st.sampled_from([1, 2, 3]), max_size=10))):
        if size <= free:
            gangs.append((row, "fast", size))
            free -= size
    before = place(gangs, layout, {})
    stays = [gang for gang in gangs if data.draw(st.booleans())]
    rest = sum(size for _, _, size in gangs) - sum(size for _, _, size in stays)
    new = [(100 + index, "fast", 1) for index in range(data.draw(st.integers(0, rest)))]
    gathers = {row for row, _, _ in stays if data.draw(st.booleans())}
    after = place([*stays, *new], layout, before, gathers=gathers)
    taken = [worker for workers in after.values() for worker in workers]
    assert len(set(taken)) == len(taken)
    for row, _, size in stays:
        assert len(after[row]) == size
        is_gathered = row in gathers and layout.nodes(after[row]) < layout.nodes(before[row])
        assert after[row] == before[row] or is_gathered


def test_of_two_jobs_that_part_the_one_that_is_pinned_stays() -> None:
    held = {0: ids(0, 0), 1: ids(0, 0)}
    for pinned in (0, 1):
        placed = place([(0, "fast", 1), (1, "fast", 1)], a_layout(2), held, pinned={pinned})
        assert placed == {pinned: ids(0, 0), 1 - pinned: ids(0, 1)}


NODE = 8
sizes_that_divide_a_node = st.lists(st.sampled_from([1, 2, 4, 8]), max_size=40)


def _as_many_as_fit(sizes: list[int], workers: int) -> list[int]:
    fitting: list[int] = []
    for size in sizes:
        if sum(fitting) + size <= workers:
            fitting.append(size)
    return fitting


@settings(max_examples=200 if IS_FULL else 30)
@given(sizes_that_divide_a_node, st.integers(1, 6))
def test_gangs_whose_sizes_divide_a_node_each_have_one(drawn: list[int], nodes: int) -> None:
    """They may fill the cluster to the last worker: what smaller ones leave is no hole for a larger one."""
    layout = a_layout(*[NODE] * nodes)
    sizes = _as_many_as_fit(drawn, NODE * nodes)
    placed = place([(row, "fast", size) for row, size in enumerate(sizes)], layout, {})
    assert [layout.nodes(placed[row]) for row in range(len(sizes))] == [1] * len(sizes)


@settings(max_examples=200 if IS_FULL else 30)
@given(st.data(), sizes_that_divide_a_node, st.integers(1, 6))
def test_gangs_of_a_whole_node_have_one_each_while_there_is_a_free_one(
    data: st.DataObject, drawn: list[int], nodes: int
) -> None:
    """Some gangs of a round before stay where they are, and any others come: smaller ones take no node from larger."""
    layout = a_layout(*[NODE] * nodes)
    before = _as_many_as_fit(drawn, NODE * nodes)
    held = place([(row, "fast", size) for row, size in enumerate(before)], layout, {})
    stay = [row for row in held if data.draw(st.booleans())]
    coming = _as_many_as_fit(data.draw(sizes_that_divide_a_node), NODE * nodes - sum(before[row] for row in stay))
    gangs = [(row, "fast", before[row]) for row in stay]
    gangs += [(len(before) + index, "fast", size) for index, size in enumerate(coming)]
    placed = place(gangs, layout, held)
    whole = [row for row, _, size in gangs if size == NODE and row not in stay]
    free = nodes - len({layout.node_of[worker] for row in stay for worker in held[row]})
    assert sum(layout.nodes(placed[row]) == 1 for row in whole) == min(len(whole), free)
