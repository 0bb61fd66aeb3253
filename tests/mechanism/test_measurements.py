"""What the reports of a gang are taken for: alone or beside a partner, on as few nodes as can be or spread."""

from dataclasses import replace
from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from gavel.mechanism.cluster.placement import place
from gavel.mechanism.observing.accounting import measurements_of, silence_of
from gavel.types import GangSeen, GangState, Report, ReportKind, WorkerId
from tests.builders import a_job
from tests.mechanism.test_placement import a_layout, ids
from tests.mechanism.world import World, a_cluster_of_nodes

REPORT = Report(sequence=1, kind=ReportKind.PROGRESS, step=10, steps=10, seconds=1.0)


def placement_of(workers: tuple[WorkerId, ...], *nodes: int) -> str:
    """What a gang's report is labelled with, on nodes of so many workers."""
    gang = GangSeen(
        job_id="j1",
        generation=1,
        state=GangState.RUNNING,
        accelerator_type="fast",
        worker_ids=workers,
        reports=(REPORT,),
    )
    (measured,) = measurements_of(a_job(), gang, a_layout(*nodes))
    return measured.placement


def test_a_gang_on_more_nodes_than_it_needs_is_spread() -> None:
    assert placement_of((*ids(0, 0), *ids(1, 0)), 2, 2) == "spread"
    assert placement_of(ids(0, 0, 1), 2, 2) == "consolidated"
    assert placement_of(ids(0, 0), 1, 1) == "consolidated"


def test_a_gang_that_no_node_holds_is_consolidated_on_as_few_as_can_be() -> None:
    assert placement_of((*ids(0, 0, 1), *ids(1, 0)), 2, 2, 2) == "consolidated"
    assert placement_of((*ids(0, 0), *ids(1, 0), *ids(2, 0)), 2, 2, 2) == "spread"


def test_of_a_gang_whose_node_has_gone_nothing_is_said() -> None:
    assert placement_of((*ids(0, 0), *ids(7, 0)), 2, 2) == "consolidated"


def test_a_gang_that_does_nothing_beside_another_for_a_round_is_told_of() -> None:
    gang = GangSeen(
        job_id="j1",
        generation=1,
        state=GangState.RUNNING,
        accelerator_type="fast",
        worker_ids=ids(0, 0),
        started_at_s=100.0,
    )
    silent = partial(silence_of, layout=a_layout(1), round_s=10.0)
    (measured,) = silent(a_job(), gang, partner="rnn", now_s=110.0)
    assert (measured.steps, measured.seconds, measured.partner) == (0, 10.0, "rnn")
    assert not silent(a_job(), gang, partner="rnn", now_s=109.0)  # it may still be starting
    assert not silent(a_job(), gang, partner=None, now_s=200.0)  # alone it is only slow
    assert not silent(replace(a_job(), trained_steps=1), gang, partner="rnn", now_s=200.0)


@given(nodes=st.lists(st.integers(1, 5), min_size=1, max_size=6), size=st.integers(1, 8))
def test_a_gang_that_had_the_whole_cluster_to_choose_from_is_never_spread(nodes: list[int], size: int) -> None:
    size = min(size, sum(nodes))
    workers = place([(0, "fast", size)], a_layout(*nodes), {})[0]
    assert placement_of(workers, *nodes) == "consolidated"


def test_the_driver_tells_the_gang_that_had_to_be_spread_from_those_that_had_not() -> None:
    """Three gangs of two on two nodes of three: one of them lies on both."""
    world = World(cluster=a_cluster_of_nodes(a="fast fast fast", b="fast fast fast"))
    jobs = [world.submit(400, scale_factor=2) for _ in range(3)]
    world.run(lambda: world.is_done(*jobs))
    assert {row.placement for row in world.store.throughputs()} == {"consolidated", "spread"}
