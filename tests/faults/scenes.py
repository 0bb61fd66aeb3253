"""Small scenarios, each about one thing that happens to a job."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from gavel.faults.scenario import (
    COMPOSITIONS,
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


def session(reserved_after_s: float) -> Program:
    reserved = replace(program(), steps=0, longest_s=30.0, preemptible=False, claim=None)
    return replace(reserved, reserved_after_s=reserved_after_s)


def scene(
    *programs: Program,
    nodes: tuple[NodePlan, ...] = ONE_NODE,
    asks: Sequence[tuple[float, Request, int] | tuple[float, Request, int, float]] = (),
    faults: tuple[Fault, ...] = (),
    processes: int = 1,
    tiers: Mapping[str, float] | None = None,
) -> Scenario:
    submits = [ClientRequest(at_s=0.5 + job, kind=Request.SUBMIT, target=job) for job in range(len(programs))]
    others = [
        ClientRequest(at_s=at_s, kind=kind, target=target, amount=amount[0] if amount else 3.0)
        for at_s, kind, target, *amount in asks
    ]
    return Scenario(
        seed=1,
        nodes=nodes,
        programs=programs,
        requests=(*submits, *others),
        faults=faults,
        faults_until_s=max([10.0, *(ask[0] + 1.0 for ask in asks), *(fault.at_s + 20.0 for fault in faults)]),
        processes=processes,
        process_rates=(1.0,) * processes,
        tiers=tiers or {},
    )


RESERVED = replace(scene(program(seconds=90.0), session(reserved_after_s=61.5)), is_durable=True)
"""A session is to begin soon after a round has begun."""
RESERVED_TWICE = replace(
    scene(program(), session(reserved_after_s=61.0), session(reserved_after_s=60.0)), is_durable=True
)
"""Two sessions want the only worker at the same time."""
RESERVED_BEFORE = replace(
    scene(program(), session(reserved_after_s=61.5), replace(program(seconds=90.0), preemptible=False)),
    is_durable=True,
)
"""A job that may not be preempted, and lasts for longer, comes after a session has reserved the only worker."""
_UNDER_LONGER = scene(
    program(seconds=200.0), session(reserved_after_s=46.0), asks=[(4.0, Request.POLICY, len(COMPOSITIONS) - 1)]
)
RESERVED_UNDER_LONGER_ROUNDS = replace(
    _UNDER_LONGER,
    is_durable=True,
    requests=tuple(replace(each, at_s=each.at_s + 23.5 * each.target) for each in _UNDER_LONGER.requests[:2])
    + _UNDER_LONGER.requests[2:],
)
"""A session asks for a time within a round that is four times as long as those of the settings, and in force."""

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
    "a take-over": scene(
        program(seconds=25.0),
        faults=(Fault(at_s=6.0, kind=FaultKind.CRASH, target=0, lasts_s=40.0),),
        processes=2,
    ),
    "a leader that sleeps": scene(
        program(seconds=25.0),
        faults=(Fault(at_s=6.0, kind=FaultKind.PAUSE_BEFORE_COMMIT, target=0, lasts_s=30.0),),
        processes=2,
    ),
    "a change of policy": scene(
        program(seconds=25.0),
        program(seconds=25.0),
        asks=[(4.0, Request.POLICY, 1), (30.0, Request.POLICY, 0)],
    ),
    "a job after another": scene(program(), replace(program(), after=0)),
    "a budget that ends": scene(
        replace(program(seconds=25.0), tier="gold"),
        asks=[(4.0, Request.BUDGET, 0, 0.001), (70.0, Request.BUDGET, 0, 100.0)],
        tiers={"gold": 1.0},
    ),
    "a reservation": RESERVED,
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
UNREACHED = replace(
    scene(
        program(seconds=90.0),
        nodes=(replace(ONE_NODE[0], region="east"), replace(ONE_NODE[0], region="west")),
        faults=(Fault(at_s=20.0, kind=FaultKind.BRIDGE_DOWN, target=0, lasts_s=60.0),),
    ),
    leave_after_s=0.0,
    faults_until_s=90.0,
)
"""The region in which a job runs does not answer for a minute, and the job may leave it at once."""
FOLLOWED_UNREACHED = replace(
    UNREACHED,
    faults=(
        Fault(at_s=18.7, kind=FaultKind.CRASH, target=0, lasts_s=200.0),
        Fault(at_s=30.0, kind=FaultKind.CALLS_LATE, target=0, lasts_s=200.0),
    ),
    processes=2,
    process_rates=(1.0, 1.0),
    shares_folder=False,
    faults_until_s=240.0,
)
"""A service with a state folder of its own follows, and finds the gang there before its region does not answer."""

_COUNTS = {  # commits of the scheduler, exchanges with nodes, changes of the leader, requests
    "a job": (4, 11, 1, 3),
    "a renewal": (8, 20, 1, 3),
    "a hand-over": (12, 30, 1, 5),
    "a gang over nodes": (4, 11, 1, 4),
    "a cancellation": (5, 13, 1, 4),
    "a pause": (6, 14, 1, 4),
    "a change of weight": (5, 13, 1, 4),
    "a cordon": (5, 13, 1, 5),
    "a drain": (7, 18, 1, 5),
    "a new tier": (5, 13, 1, 4),
    "resources": (5, 13, 1, 4),
    "a program that fails": (5, 12, 1, 3),
    "a node that loses power": (12, 27, 1, 4),
    "a node that is cut off": (13, 27, 1, 4),
    "a solver that fails": (7, 16, 1, 5),
    "a take-over": (8, 19, 2, 3),
    "a leader that sleeps": (6, 16, 2, 3),
    "a change of policy": (13, 30, 1, 7),
    "a job after another": (8, 16, 1, 5),
    "a budget that ends": (9, 29, 1, 6),
    "a reservation": (27, 61, 1, 5),
}
ACTS = {
    name: dict(zip(("commit", "exchange", "leadership", "request"), counts, strict=True))
    for name, counts in _COUNTS.items()
}
"""How many acts a scenario has without a crash, by their kind."""
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
    "nobody_waits_for_the_leases_of_a_region_that_does_not_answer": (1, UNREACHED),
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
    "a_reserved_session_gets_no_lease": (1, RESERVED),
    "a_round_does_not_end_when_a_reservation_begins": (1, RESERVED),
    "a_reservation_is_accepted_without_a_look": (1, RESERVED_TWICE),
    "reservations_count_with_the_rounds_of_the_settings": (1, RESERVED_UNDER_LONGER_ROUNDS),
    "a_gang_may_still_be_there_when_a_reservation_begins": (1, RESERVED_BEFORE),
}
"""Bugs that seeds notice rarely: the seed and the scenario that always do."""
