"""Draws a scenario from a seed. Each seed enables only some kinds of fault, so that rare ones meet each other."""

import random
from collections import Counter
from dataclasses import replace

from gavel.faults.drawing_operators import OF_OPERATORS, asked_by_operators, one_after_another, settings_of
from gavel.faults.scenario import (
    CRASHES,
    OF_REGIONS,
    ROUND_S,
    TYPES,
    Behaviour,
    ClientRequest,
    Fault,
    FaultKind,
    NodePlan,
    Program,
    Request,
    Scenario,
)

POLICIES = ("equal_share", "equal_share", "equal_share", "max_min_fairness", "fifo")
DURABLE_EVERY = 23  # of so many seeds one runs on SQLite
QUIET_EVERY = 9  # of so many seeds one has no faults at all, and the fourth after it has only crashes
ONLY_CRASHES = 4
MAY_CHANGE, STAY = (7, 8), (0,)  # last digits of seeds whose jobs may be elastic or have plans; may be never preempted
SHARE = (4,)  # and of those whose jobs may share accelerators: sessions, trainings beside them, packed pairs
RESERVE_EVERY, RESERVE = 50, 5  # one of so many seeds, the one with this rest, has reserved sessions
REGIONS_EVERY, REGIONS_AT = 7, 3  # likewise: its nodes are in regions, with a backend for each
REGIONS = ("east", "north", "west")
DRIFTS = (0.0, 1e-3, 2e-2)  # of nodes' clocks: at most half a second over a round, as P2 supposes
CLOCK_STEPS_S = (-3600.0, -90.0, -7.0, 7.0, 90.0, 3600.0)
SOLVER_FAULTS = 5
PAUSES = (FaultKind.PAUSE, FaultKind.PAUSE_BEFORE_COMMIT, FaultKind.PAUSE_AFTER_COMMIT)
OF_A_PROCESS = (
    *CRASHES,
    *PAUSES,
    FaultKind.CLOCK_STEP,
    FaultKind.BRIDGE_DOWN,
)
OF_A_NODE = (
    FaultKind.PARTITION,
    FaultKind.DELAY,
    FaultKind.DUPLICATE,
    FaultKind.REBOOT,
    FaultKind.AGENT_CRASH,
    FaultKind.SUPERVISOR_PAUSE,
    FaultKind.HANG,
)


def draw(seed: int) -> Scenario:
    """Return the scenario of a seed: always the same one."""
    chance = random.Random(seed)  # noqa: S311 - not for secrets
    nodes = _nodes(chance)
    if _has_regions(seed):
        nodes = _in_regions(seed, nodes)
    until_s = chance.uniform(60.0, 140.0)
    tiers = {"gold": chance.choice((1.0, 2.0, 4.0))} if chance.random() < 0.4 else {}
    programs = tuple(_program(chance, nodes, [*tiers, "default"]) for _ in range(chance.randint(2, 6)))
    programs = one_after_another(seed, _varied(seed, programs, nodes))
    processes = chance.choice((1, 2, 2, 2, 3))
    return Scenario(
        seed=seed,
        nodes=nodes,
        programs=programs,
        requests=(
            *_requests(chance, len(programs), len(nodes), until_s),
            *_of_kinds(seed, programs, until_s),
            *asked_by_operators(seed, nodes, tiers, until_s),
        ),
        faults=_all_faults(chance, seed, len(nodes), processes, until_s) if seed % QUIET_EVERY else (),
        faults_until_s=until_s,
        processes=processes,
        policy=chance.choice(POLICIES),
        is_durable=seed % DURABLE_EVERY == 0 or _may_reserve(seed),  # the store in memory accepts every reservation
        shares_folder=chance.random() < 0.5,
        process_rates=tuple(1.0 + chance.uniform(-1e-3, 1e-3) for _ in range(processes)),
        tiers=tiers,
        shares_disk=not _has_regions(seed) or seed % 2 == 0,
        leave_after_s=0.0 if seed % 3 else 2 * ROUND_S,
        settings=settings_of(seed),
    )


def _nodes(chance: random.Random) -> tuple[NodePlan, ...]:
    count, drift = chance.choice((2, 2, 3, 3, 4, 5, 8)), chance.choice(DRIFTS)
    return tuple(
        NodePlan(
            accelerator_type=TYPES[0] if index == 0 else chance.choice(TYPES),
            slots=chance.choice((1, 1, 2)),
            clock_rate=1.0 + chance.uniform(-drift, drift),
        )
        for index in range(count)
    )


def _has_regions(seed: int) -> bool:
    return seed % REGIONS_EVERY == REGIONS_AT


def _in_regions(seed: int, nodes: tuple[NodePlan, ...]) -> tuple[NodePlan, ...]:
    """Return the nodes, each in one of two or three regions; none of these is without a node."""
    chance = random.Random(f"regions {seed}")  # noqa: S311 - not for secrets
    names = REGIONS[: min(len(nodes), chance.choice((2, 2, 3)))]
    places = [*names, *(chance.choice(names) for _ in nodes[len(names) :])]
    chance.shuffle(places)
    return tuple(replace(node, region=place) for node, place in zip(nodes, places, strict=True))


def _program(chance: random.Random, nodes: tuple[NodePlan, ...], tiers: list[str]) -> Program:
    largest = min(3, _most_workers(nodes))
    fast = chance.uniform(1.0, 20.0)
    behaviour = chance.choice(list(Behaviour)) if chance.random() < 0.15 else Behaviour.GOOD
    return Program(
        kind=f"kind-{chance.randrange(3)}",
        size=chance.choice((1, 1, 1, *range(2, largest + 1))),
        steps=max(1, int(fast * chance.uniform(5.0, 60.0))),
        rates={"fast": fast, "slow": fast * chance.uniform(0.2, 1.2)},
        checkpoint_every_s=chance.uniform(3.0, 20.0),
        behaviour=behaviour,
        claim=chance.choice((None, 1.0, 10.0, 0.1)),
        tier=chance.choice(tiers),
        preemptible=chance.random() > 0.05,
        retries=chance.choice((0, 0, 1)),
    )


def _varied(seed: int, programs: tuple[Program, ...], nodes: tuple[NodePlan, ...]) -> tuple[Program, ...]:
    """Return the programs, of some seeds as other kinds of jobs; what else the seed draws does not depend on it."""
    chance = random.Random(f"kinds of jobs {seed}")  # noqa: S311 - not for secrets
    if seed % 10 in MAY_CHANGE:
        return tuple(_that_may_change(chance, each, _most_workers(nodes)) for each in programs)
    if seed % 10 in STAY:
        return tuple(_that_stays(chance, each) for each in programs)
    if seed % 10 in SHARE:
        return tuple(_that_shares(chance, each) for each in programs)
    if _may_reserve(seed):
        return tuple(_that_is_reserved(chance, each) for each in programs)
    return programs


def _may_reserve(seed: int) -> bool:
    return seed % RESERVE_EVERY == RESERVE


def _most_workers(nodes: tuple[NodePlan, ...]) -> int:
    """Return how many workers of one type there are at most, in one region."""
    workers: Counter[tuple[str, str]] = Counter()
    for node in nodes:
        workers[node.accelerator_type, node.region] += node.slots
    return max(workers.values())


def _that_may_change(chance: random.Random, program: Program, most: int) -> Program:
    """Return the program as one of an elastic job, of one with execution plans, of both, or as it is."""
    sizes = tuple(sorted(chance.sample(range(1, min(4, most) + 1), k=chance.randint(1, min(3, most)))))
    factors = chance.choice(({"tensor=1": 1.0, "tensor=2": 1.6}, {"tensor=1": 1.0, "tensor=2": 0.0, "pipeline=2": 0.7}))
    match chance.choice(("elastic", "elastic", "plans", "both", "")):
        case "elastic":
            changed = replace(program, sizes=sizes)
        case "plans":
            changed = replace(program, plans=factors)
        case "both":
            changed = replace(program, sizes=sizes, plans=factors)
        case _:
            return program
    kind = f"{program.kind}-of-{len(changed.plans)}" if changed.plans else program.kind  # one kind, the same plans
    return replace(changed, kind=kind, claim=None, preemptible=True)


def _that_stays(chance: random.Random, program: Program) -> Program:
    """Return the program as a session, as a service, or as it is."""
    match chance.choice(("session", "service", "", "")):
        case "session":
            return replace(program, steps=0, longest_s=chance.uniform(10.0, 60.0), preemptible=False, claim=None)
        case "service":
            return replace(program, steps=0, replicas=chance.randint(1, 3), preemptible=False, claim=None, retries=0)
        case _:
            return program


def _that_is_reserved(chance: random.Random, program: Program) -> Program:
    """Return the program as a session that is reserved, as one that is not, or as a training that may hold for long."""
    match chance.choice(("reserved", "reserved", "session", "holds", "")):
        case "reserved":
            session = replace(program, steps=0, longest_s=chance.uniform(15.0, 60.0), preemptible=False, claim=None)
            return replace(session, reserved_after_s=chance.uniform(1.8, 6.0) * ROUND_S)
        case "session":
            return replace(program, steps=0, longest_s=chance.uniform(15.0, 90.0), preemptible=False, claim=None)
        case "holds":
            return replace(program, preemptible=False)
        case _:
            return program


def _that_shares(chance: random.Random, program: Program) -> Program:
    """Return the program as a session that lets another job onto its accelerators, or as a training of known memory."""
    memory_bytes = chance.choice((2, 4, 8))
    if chance.random() < 0.5:
        return replace(program, accelerator_memory_bytes=memory_bytes)
    session = replace(program, steps=0, longest_s=chance.uniform(10.0, 60.0), preemptible=False, claim=None)
    size = chance.choice((1, program.size))
    return replace(session, size=size, accelerator_memory_bytes=memory_bytes, accelerator_share=0.5)


def _of_kinds(seed: int, programs: tuple[Program, ...], until_s: float) -> list[ClientRequest]:
    """Return requests that only services and sessions know: other numbers, new versions, more time."""
    chance = random.Random(f"requests of kinds of jobs {seed}")  # noqa: S311 - not for secrets
    asked = [
        (job, kind, amount)
        for job, program in enumerate(programs)
        for kind, amount in (
            *(((Request.REPLICAS, chance.randint(0, 3)), (Request.VERSION, 0)) if program.replicas else ()),
            *(((Request.EXTEND, chance.uniform(20.0, 90.0)),) if program.longest_s else ()),
        )
        if chance.random() < 0.5
    ]
    return [
        ClientRequest(at_s=chance.uniform(until_s / 4, until_s), kind=kind, target=job, amount=amount)
        for job, kind, amount in asked
    ]


def _requests(chance: random.Random, jobs: int, nodes: int, until_s: float) -> tuple[ClientRequest, ...]:
    submits = [
        ClientRequest(at_s=chance.uniform(0.0, until_s / 2), kind=Request.SUBMIT, target=job) for job in range(jobs)
    ]
    others = [
        ClientRequest(
            at_s=chance.uniform(1.0, until_s),
            kind=kind,
            target=chance.randrange(jobs if kind in _OF_JOBS else nodes),
            amount=chance.choice((0.5, 1.0, 3.0, 10.0)),
        )
        for kind in chance.choices(_KINDS, k=chance.randrange(5))
    ]
    return tuple(sorted((*submits, *others), key=lambda each: each.at_s))


_OF_JOBS = (Request.CANCEL, Request.PAUSE, Request.RESUME, Request.EDIT)
_OF_KINDS = (Request.REPLICAS, Request.VERSION, Request.EXTEND)
_NOT_DRAWN = (Request.SUBMIT, *OF_OPERATORS, *_OF_KINDS)
_KINDS = tuple(kind for kind in Request if kind not in _NOT_DRAWN)


def _kinds(seed: int) -> tuple[FaultKind, ...]:
    """Return the kinds of fault that the seed may draw: those after which I10 is asked, or all."""
    of_all = tuple(kind for kind in FaultKind if kind not in (*OF_REGIONS, FaultKind.ACCELERATOR_LOST))
    return CRASHES if seed % QUIET_EVERY == ONLY_CRASHES else of_all


def _all_faults(chance: random.Random, seed: int, nodes: int, processes: int, until_s: float) -> tuple[Fault, ...]:
    faults = _faults(chance, _kinds(seed), nodes, processes, until_s)
    if _kinds(seed) == CRASHES:
        return faults
    held_up = _held_up(seed, nodes, until_s) if _has_regions(seed) else []
    return tuple(sorted((*faults, *held_up, *_lost_accelerators(seed, nodes, until_s)), key=lambda each: each.at_s))


def _held_up(seed: int, nodes: int, until_s: float) -> list[Fault]:
    """Return what befalls calls to regions; what else the seed draws does not depend on it."""
    chance = random.Random(f"calls to regions {seed}")  # noqa: S311 - not for secrets
    return [
        Fault(
            at_s=chance.uniform(1.0, until_s),
            kind=chance.choice(OF_REGIONS),
            target=chance.randrange(nodes),
            lasts_s=chance.choice((2.0, 8.0, 20.0, 60.0)),
        )
        for _ in range(chance.randrange(4))
    ]


def _lost_accelerators(seed: int, nodes: int, until_s: float) -> list[Fault]:
    """Return which nodes lose an accelerator, in one seed of four; what else it draws does not depend on it."""
    chance = random.Random(f"lost accelerators {seed}")  # noqa: S311 - not for secrets
    return [
        Fault(
            at_s=chance.uniform(1.0, until_s),
            kind=FaultKind.ACCELERATOR_LOST,
            target=chance.randrange(nodes),
            lasts_s=chance.choice((1.0, 8.0, 25.0, 60.0)),
            amount=float(chance.choice((0, 1))),
        )
        for _ in range(chance.choice((0, 0, 0, 0, 0, 0, 1, 2)))
    ]


def _faults(
    chance: random.Random, drawn: tuple[FaultKind, ...], nodes: int, processes: int, until_s: float
) -> tuple[Fault, ...]:
    kinds = chance.sample(drawn, k=min(len(drawn), chance.randint(1, 6)))
    faults = [_fault(chance, chance.choice(kinds), nodes, processes, until_s) for _ in range(chance.randint(1, 12))]
    if chance.random() < 0.15 and drawn != CRASHES:
        faults += _clogs(chance, nodes, until_s)
    return tuple(sorted(faults, key=lambda each: each.at_s))


def _fault(chance: random.Random, kind: FaultKind, nodes: int, processes: int, until_s: float) -> Fault:
    target = chance.randrange(processes) if kind in OF_A_PROCESS else chance.randrange(nodes)
    lasts_s = chance.choice((1.0, 4.0, 12.0, 30.0))
    if kind in PAUSES:
        lasts_s = chance.choice((3.0, 15.0, 40.0, 120.0))
    amount = {
        FaultKind.CLOCK_STEP: chance.choice(CLOCK_STEPS_S),
        FaultKind.SOLVER: float(chance.randrange(SOLVER_FAULTS)),
    }.get(kind, chance.choice((0.3, 1.0, 3.0, 8.0)))
    return Fault(at_s=chance.uniform(1.0, until_s), kind=kind, target=target, lasts_s=lasts_s, amount=amount)


def _clogs(chance: random.Random, nodes: int, until_s: float) -> list[Fault]:
    """Return a swizzle: every node is cut off, one after the other, and they come back in another order."""
    begin_s = chance.uniform(1.0, until_s)
    order = chance.sample(range(nodes), k=nodes)
    heals_s = {node: begin_s + chance.uniform(4.0, 25.0) for node in order}
    return [
        Fault(
            at_s=begin_s + place,
            kind=FaultKind.PARTITION,
            target=node,
            lasts_s=max(0.5, heals_s[node] - begin_s - place),
        )
        for place, node in enumerate(order)
    ]
