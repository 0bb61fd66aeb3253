"""A process dies at every commit and in every exchange of a scenario, one run for each: everything holds each time."""

import os
from collections.abc import Sequence
from dataclasses import replace

import pytest

from gavel.faults.crash_points import CrashCounter, crash_points
from gavel.faults.scenario import (
    ClientRequest,
    Fault,
    FaultKind,
    NodePlan,
    Program,
    Request,
    Scenario,
)
from gavel.faults.search import silenced
from gavel.faults.world import run

IS_FULL = os.environ.get("GAVEL_TEST_PROFILE") == "full"
ONE_NODE = (NodePlan(accelerator_type="fast", slots=1),)
TWO_NODES = ONE_NODE * 2


def program(size: int = 1, seconds: float = 8.0) -> Program:
    rates = {"fast": 10.0, "slow": 5.0}
    steps = int(10 * seconds)
    return Program(kind="kind-0", size=size, steps=steps, rates=rates, checkpoint_every_s=6.0, claim=1.0)


def scene(
    *programs: Program,
    nodes: tuple[NodePlan, ...] = ONE_NODE,
    asks: Sequence[tuple[float, Request, int]] = (),
    faults: tuple[Fault, ...] = (),
) -> Scenario:
    submits = [ClientRequest(at_s=0.5 + job, kind=Request.SUBMIT, target=job) for job in range(len(programs))]
    others = [ClientRequest(at_s=at_s, kind=kind, target=target, amount=3.0) for at_s, kind, target in asks]
    return Scenario(
        seed=1,
        nodes=nodes,
        programs=programs,
        requests=(*submits, *others),
        faults=faults,
        faults_until_s=max([10.0, *(at_s + 1.0 for at_s, _, _ in asks), *(fault.at_s + 20.0 for fault in faults)]),
        processes=1,
        process_rates=(1.0,),
    )


SCENES = {
    "a job": scene(program()),
    "a renewal": scene(program(seconds=30.0)),
    "a hand-over": scene(program(seconds=25.0), program(seconds=25.0)),
    "a gang over nodes": scene(program(size=2), nodes=TWO_NODES),
    "a cancellation": scene(program(seconds=25.0), asks=[(6.0, Request.CANCEL, 0)]),
    "a pause": scene(program(seconds=15.0), asks=[(6.0, Request.PAUSE, 0)]),
    "a change of weight": scene(program(seconds=12.0), asks=[(6.0, Request.EDIT, 0)]),
    "a cordon": scene(program(seconds=12.0), nodes=TWO_NODES, asks=[(4.0, Request.CORDON, 0)]),
    "a drain": scene(program(seconds=25.0), nodes=TWO_NODES, asks=[(4.0, Request.DRAIN, 0)]),
    "a new tier": scene(program(seconds=12.0), asks=[(4.0, Request.TIER, 0)]),
    "resources": scene(program(seconds=12.0), asks=[(4.0, Request.RESOURCES, 0)]),
    "a program that fails": scene(replace(program(), behaviour=program().behaviour.EXITS_1, retries=1)),
    "a node that loses power": scene(
        program(seconds=20.0),
        nodes=TWO_NODES,
        faults=(Fault(at_s=6.0, kind=FaultKind.REBOOT, target=0, lasts_s=15.0),),
    ),
    "a node that is cut off": scene(
        program(seconds=20.0),
        nodes=TWO_NODES,
        faults=(Fault(at_s=6.0, kind=FaultKind.PARTITION, target=0, lasts_s=15.0),),
    ),
    "a solver that fails": scene(
        program(), program(), faults=(Fault(at_s=0.1, kind=FaultKind.SOLVER, lasts_s=15.0, amount=1.0),)
    ),
}
STORES = {"memory": False, "SQLite": True} if IS_FULL else {"memory": False}
NAMES = list(SCENES) if IS_FULL else ["a job"]


@pytest.mark.timeout(1800 if IS_FULL else 400)
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("name", NAMES)
def test_a_crash_at_any_point_breaks_nothing(name: str, store: str) -> None:
    """1. Count. 2. Strike each point once; the crash strikes exactly there, and everything holds and ends."""
    scenario = replace(SCENES[name], is_durable=STORES[store])
    with silenced():
        whole, again = CrashCounter(), CrashCounter()
        assert run(scenario, crashes=whole).violation is None
        assert run(scenario, crashes=again).violation is None and again.counts == whole.counts
        assert whole.counts["before_commit"] == whole.counts["after_commit"] >= 3 and whole.counts["in_exchange"] >= 3
        points = list(crash_points(whole.counts))
        assert len(points) == 3 * whole.counts["after_commit"] + whole.counts["in_exchange"]
        for point in points:
            counter = CrashCounter(point)
            outcome = run(scenario, crashes=counter)
            assert (outcome.violation, point) == (None, point)
            assert counter.struck >= 1, point
