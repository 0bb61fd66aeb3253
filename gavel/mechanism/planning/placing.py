"""Chooses the gangs of a round and their workers together: what there is no room for makes way for others."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from gavel.mechanism.cluster.feasibility import Workers
from gavel.mechanism.cluster.placement import Layout, place
from gavel.mechanism.planning.priority import fastest_first
from gavel.mechanism.planning.selection import SelectionProblem, choose
from gavel.types import NO_NEEDS, FloatArray, Needs

CHOICES_MAX = 8  # per round; then workers may stay idle until the next
GATHERING_PAYS_FROM_ROUNDS = 0.1  # a gang over several nodes loses more of a round than this by not moving together

Chosen = dict[int, int]
"""row -> column of its type."""


def chosen_and_placed(
    selection: SelectionProblem, layout: Layout, held: Mapping[int, Workers], needs: Sequence[Needs]
) -> tuple[Chosen, FloatArray, dict[int, Workers]]:
    """Return the type's column of each row that gets a gang, the ledger (n, m) after the round, and the rows' workers.

    `held`: the workers of each job's row in the round before; `needs`: of each of the n jobs, () if none has any.
    Selection counts workers by type; a gang for which no node has room is left out, and others are chosen instead.
    """
    pairs = {len(selection.rates) + index: pair for index, pair in enumerate(selection.pairs)}
    for _ in range(CHOICES_MAX):
        chosen, ledger = choose(selection)
        placed = _placed(selection, layout, held, needs, chosen, pairs)
        failed = [(row, column) for row, column in chosen.items() if row not in placed]
        if not failed:
            break
        closed = selection
        selection = _without(selection, failed)
    for row, column in failed:  # nothing was given: nothing is charged
        jobs = list(pairs.get(row, (row,)))
        ledger[jobs, column] = np.maximum(ledger[jobs, column], closed.ledger[jobs, column])
    return {row: column for row, column in chosen.items() if row in placed}, ledger, placed


def _placed(
    selection: SelectionProblem,
    layout: Layout,
    held: Mapping[int, Workers],
    needs: Sequence[Needs],
    chosen: Chosen,
    pairs: Mapping[int, tuple[int, int]],
) -> dict[int, Workers]:
    sizes = selection.scale_factor.tolist()
    members = {row: pairs.get(row, (row,)) for row in chosen}
    gangs = [(row, layout.types[column], sizes[members[row][0]]) for row, column in chosen.items()]
    of_row: dict[int, Needs] = {}
    if needs:
        of_row = {row: together([needs[job] for job in jobs]) for row, jobs in members.items()}
    return place(
        gangs,
        layout,
        held,
        pairs=pairs,
        pinned=selection.pinned,
        gathers=gathers(selection),
        needs=of_row,
        worth=_worth(selection, members, chosen) if needs else {},
    )


def together(needs: Sequence[Needs]) -> Needs:
    """Return what each worker of a gang needs, or of two gangs that share their workers."""
    return needs[0] if len(needs) == 1 else needs[0].colocated_with(needs[1])


def _worth(selection: SelectionProblem, members: Mapping[int, tuple[int, ...]], chosen: Chosen) -> dict[int, float]:
    """What each chosen gang is worth if not all can be placed: its workers, more for jobs that lag more."""
    rows, columns = list(chosen), list(chosen.values())
    ends = [np.array([members[row][end] for row in rows], dtype=np.int64) for end in (0, -1)]  # one job, or a pair
    lag, target = (
        np.max([of_job[jobs, columns] for jobs in ends], axis=0)
        for of_job in (selection.ledger, selection.target_fraction)
    )
    counted = np.maximum(0.0, lag) if selection.planner == "lag" else 0.0
    worth = (1e-3 + target + counted) * selection.scale_factor[ends[0]]
    return dict(zip(rows, worth.tolist(), strict=True))


def _without(selection: SelectionProblem, failed: Sequence[tuple[int, int]]) -> SelectionProblem:
    """The same selection, in which these rows cannot have these types."""
    count, gone = len(selection.rates), set(failed)
    rates, of_pair = selection.rates.copy(), selection.pair_target_fraction.copy()
    for row, column in failed:
        if row < count:
            rates[row, column] = 0.0
        else:
            of_pair[row - count, column] = 0.0
    rows = {row for row, _ in failed}
    return replace(
        selection,
        rates=rates,
        fastest_first=selection.fastest_first or fastest_first(selection.rates),  # whatever is closed now
        pair_target_fraction=of_pair,
        profiling=[cell for cell in selection.profiling if tuple(cell) not in gone],
        pinned=[row for row in selection.pinned if row not in rows],
    )


def gathers(selection: SelectionProblem) -> set[int]:
    """Return the rows that may move to fewer nodes: gangs of several workers whose move costs little."""
    if selection.planner != "lag":
        return set()
    price = selection.stay_rounds if selection.stay_rounds.size else np.zeros(len(selection.rates))
    cheap = np.flatnonzero((selection.scale_factor > 1) & (price**2 / 2 <= GATHERING_PAYS_FROM_ROUNDS))
    return set(cheap.tolist()) - set(selection.pinned)


def needs_of(every: Sequence[Needs]) -> Sequence[Needs]:
    """Return the needs of n jobs as `chosen_and_placed` takes them: () if none needs more than workers."""
    return every if any(needs != NO_NEEDS for needs in every) else ()
