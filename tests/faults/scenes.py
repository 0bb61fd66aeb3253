"""Small scenarios, each about one thing that happens to a job."""

from collections.abc import Sequence
from dataclasses import replace

from gavel.faults.scenario import (
    Behaviour,
    ClientRequest,
    Fault,
    FaultKind,
    NodePlan,
    Program,
    Request,
    Scenario,
)

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
    "a program that fails": scene(replace(program(), behaviour=Behaviour.EXITS_1, retries=1)),
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
FOLLOWED = replace(
    scene(
        program(seconds=60.0),
        nodes=TWO_NODES,
        faults=(
            Fault(at_s=24.6, kind=FaultKind.PARTITION, target=0, lasts_s=40.0),
            Fault(at_s=27.6, kind=FaultKind.CRASH, target=0, lasts_s=60.0),
        ),
    ),
    processes=2,
    process_rates=(1.0, 1.0),
    shares_folder=False,
    faults_until_s=120.0,
)
"""A node is cut off, the leader dies, and a service with a state folder of its own follows."""

NOTICED_IN = {
    "a_lost_node_is_taken_for_dead": (
        1,
        scene(
            program(seconds=60.0),
            nodes=TWO_NODES,
            faults=(Fault(at_s=24.6, kind=FaultKind.PARTITION, target=0, lasts_s=12.0),),
        ),
    ),
    "a_gang_on_a_node_that_is_away_is_forgotten": (1, FOLLOWED),
    "workers_are_numbered_by_each_service": (1, FOLLOWED),
    "a_node_has_no_fence": (
        2,
        scene(
            program(seconds=3.0),
            faults=(Fault(at_s=0.1, kind=FaultKind.DUPLICATE, target=0, lasts_s=15.0, amount=14.0),),
        ),
    ),
    "a_node_starts_what_is_late": (
        1,
        scene(
            program(seconds=30.0),
            faults=(Fault(at_s=0.1, kind=FaultKind.DELAY, target=0, lasts_s=60.0, amount=30.0),),
        ),
    ),
}
"""Bugs that seeds notice rarely: the seed and the scenario that always do."""
