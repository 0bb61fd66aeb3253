"""Chooses the workers of gangs that need more than workers: labelled nodes, cores and memory of nodes.

Nodes are vectors here, and what was chosen by counting workers may not fit. So gangs are placed in several orders, from
the one that moves fewest gangs to the one that packs best, and the first that places all of them is taken, else the one
whose gangs are worth most together.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gavel.mechanism.cluster.feasibility import Room, Workers
from gavel.types import AcceleratorType, Needs

Gang = tuple[int, AcceleratorType, int]
"""(row of the job or pair, type, scale factor)."""
EXPONENTS = (1.0, 0.5, 1.5)  # of a gang's part of its type, where not all fit


@dataclass(frozen=True, slots=True, kw_only=True)
class PackingProblem:
    """Gangs to place in the room that `new_room` makes, and the needs of each row's ranks.

    `staying`: the workers that rows hold and keep if they can; rows of `pinned` go first. Rows of `gathers` that keep
    theirs move to fewer nodes if there is room. `worth`: what each row is worth, where not all can be placed.
    """

    gangs: Sequence[Gang]
    new_room: Callable[[], Room]
    needs: Mapping[int, Needs]
    staying: Mapping[int, Workers] = field(default_factory=dict)
    pinned: Collection[int] = ()
    gathers: Collection[int] = ()
    worth: Mapping[int, float] = field(default_factory=dict)


def pack(problem: PackingProblem) -> dict[int, Workers]:
    """Return the workers of the rows that could be placed; no node is beyond its cores or memory."""
    best: dict[int, Workers] = {}
    best_worth = -1.0
    failed: list[Gang] = []
    for order, stays in _orders(problem, failed):
        placed = _placed(problem, order, stays)
        failed[:] = [gang for gang in problem.gangs if gang[0] not in placed]
        worth = sum(problem.worth.get(row, 1.0) for row in placed)
        if worth > best_worth:
            best, best_worth = placed, worth
        if not failed:
            break
    return best


def _orders(problem: PackingProblem, failed: Sequence[Gang]) -> Iterator[tuple[list[Gang], bool]]:
    """Yield orders of the gangs that are not pinned, and whether those that hold workers keep them if they can.

    `failed`: what the order before could not place.
    """
    sizes = _sizes(problem)
    by_size = sorted(problem.gangs, key=lambda gang: (-sizes[gang[0]], gang[0]))
    by_worth = _by_worth(problem, by_size, sizes, 1.0)
    holds = [gang for gang in by_size if gang[0] in problem.staying]
    rest = [gang for gang in by_size if gang[0] not in problem.staying]
    yield holds + rest, True
    first = {gang[0] for gang in failed}
    promoted = [gang for gang in by_worth if gang[0] in first]
    yield promoted + [gang for gang in holds + rest if gang[0] not in first], True
    yield by_size, False
    for exponent in EXPONENTS:
        yield _by_worth(problem, by_size, sizes, exponent), False
    first = {gang[0] for gang in failed}
    yield [gang for gang in by_worth if gang[0] in first] + [gang for gang in by_worth if gang[0] not in first], False


def _by_worth(
    problem: PackingProblem, gangs: Sequence[Gang], sizes: Mapping[int, float], exponent: float
) -> list[Gang]:
    """The gangs by their worth for what they take: with a larger exponent those that are easy to place go first."""
    return sorted(gangs, key=lambda gang: -problem.worth.get(gang[0], 1.0) / sizes[gang[0]] ** exponent)


def _sizes(problem: PackingProblem) -> dict[int, float]:
    """How hard each gang is to place: its part of all that its type's nodes could hold of ranks like its own."""
    room, parts = problem.new_room(), {}
    ranks: dict[tuple[AcceleratorType, Needs], int] = {}
    for row, name, size in problem.gangs:
        key = name, problem.needs[row]
        if key not in ranks:
            ranks[key] = int(room.ranks(*key).sum())
        parts[row] = size / max(1, ranks[key])
    return parts


def _placed(problem: PackingProblem, order: Sequence[Gang], stays: bool) -> dict[int, Workers]:
    """The workers of each gang that fits when it is its turn."""
    room, placed = problem.new_room(), dict[int, Workers]()
    too_large: set[tuple[AcceleratorType, Needs, int]] = set()  # the room only shrinks here
    pinned = [gang for gang in problem.gangs if gang[0] in problem.pinned]
    for row, name, size in (*pinned, *order):
        if row in placed:
            continue
        held, needs = problem.staying.get(row, ()), problem.needs[row]
        if held and (stays or row in problem.pinned) and room.hold(held, needs):
            placed[row] = held
        elif (name, needs, size) in too_large:
            continue
        elif (workers := room.take(name, needs, size)) is not None:
            placed[row] = workers
        else:
            too_large.add((name, needs, size))
    for row, name, _ in problem.gangs:
        if row in problem.gathers and placed.get(row) == problem.staying.get(row, ()):
            placed[row] = _gathered(room, name, problem.needs[row], placed[row])
    return placed


def _gathered(room: Room, name: AcceleratorType, needs: Needs, workers: Workers) -> Workers:
    """The workers of a gang on fewer nodes if there is room, else those that it has."""
    before = room.spread(workers)
    if before == 1:
        return workers
    room.give_back(workers, needs)
    other = room.take(name, needs, len(workers))
    if other is not None and room.spread(other) < before:
        return other
    if other is not None:
        room.give_back(other, needs)
    room.hold(workers, needs)
    return workers
