"""A fast simulation that decides with the production functions (solve, choose, place) and keeps numbers only.

A simulation through the driver commits every round and sends messages to each gang. Where throughputs are given and no
node fails, none of that changes a decision, so this simulation leaves it out: jobs are rows of one array, and a round
is a few operations on it. A test checks that both plan the same rounds.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import inf

import numpy as np

from gavel.config import Settings
from gavel.errors import InvalidRequest, InvariantViolated
from gavel.mechanism.cluster.placement import Layout
from gavel.mechanism.planning.behind import served_first
from gavel.mechanism.planning.caps import is_capped
from gavel.mechanism.planning.decision import REUSED, SOLVED, Decider
from gavel.mechanism.planning.placing import chosen_and_placed, needs_of
from gavel.mechanism.planning.planner import Shares, pinned_rows, shares_of, stay_rounds
from gavel.mechanism.planning.problem import ClusterColumns, problem_of, with_staying
from gavel.mechanism.planning.selection import TARGET_FRACTION_MIN, SelectionProblem
from gavel.policies.equal_share import EqualShare
from gavel.policies.inline import InlineRunner
from gavel.ports import PolicyRunner
from gavel.simulator.active import Active
from gavel.simulator.chosen_sizes import ChosenSizes
from gavel.simulator.ended import result_of
from gavel.simulator.free_part import FreePart, free_part, part_of
from gavel.simulator.losses import Losses
from gavel.simulator.midround import placed_now
from gavel.simulator.motion import Motion
from gavel.simulator.outcome import Scenario, SimulationOutcome, Tally
from gavel.simulator.packing import Packing
from gavel.simulator.rows import Rows
from gavel.simulator.starting import rows_staying
from gavel.simulator.timed import TimedRunner
from gavel.simulator.timeline import Timeline
from gavel.simulator.world_state import WorldState
from gavel.types import (
    AcceleratorType,
    Allocation,
    AllocationProblem,
    BoolArray,
    FloatArray,
    IntArray,
    Needs,
    WorkerId,
)
from workloads.traces.job import TraceJob

Gangs = tuple[tuple[WorkerId, ...], ...]
Plan = tuple[float, Mapping[int, tuple[WorkerId, ...]]]
"""When a round starts, and the workers of each row's gang."""


def simulate(jobs: Iterable[TraceJob], scenario: Scenario, *, runner: PolicyRunner | None = None) -> SimulationOutcome:
    """Run until every measured job has ended, and return the outcome.

    Raise InvalidRequest for a job that can run nowhere, InvariantViolated when rounds pass in which no gang can run.
    """
    world = LeanWorld(jobs, scenario, runner or InlineRunner())
    for _ in world.rounds():
        pass
    return world.result()


class LeanWorld:
    """One simulation. `rounds` goes from round to round and yields the plan of each.

    With `resumed` it goes on from the state of another one, and `jobs` are those that arrive later.
    """

    def __init__(
        self,
        jobs: Iterable[TraceJob],
        scenario: Scenario,
        runner: PolicyRunner,
        resumed: WorldState | None = None,
    ) -> None:
        self._jobs = iter(jobs)
        scenario = replace(scenario, tiers=sorted(scenario.tiers, key=lambda tier: tier.name))
        self._scenario = scenario
        self._settings = scenario.settings
        self._layout = Layout(scenario.cluster)
        self._cluster = ClusterColumns.of(scenario.cluster)
        self._types = scenario.cluster.accelerator_types
        self._capacity = self._cluster.capacity_workers
        self._prices = self._cluster.price_usd_per_hour
        tiers = {tier.name: tier for tier in scenario.tiers}
        self._tier_index = {name: index for index, name in enumerate(tiers)}
        self._is_uncapped = np.array([not is_capped(name, tiers) for name in tiers], dtype=bool)
        self._rates: dict[tuple[str, int, Needs], FloatArray] = {}
        self._active = Active.of(resumed.active) if resumed else Active(len(self._types))
        self._sizes = ChosenSizes(self._active, self._layout, scenario) if scenario.is_elastic else None
        self._late: tuple[tuple[int, int], ...] = ()  # (row, column) of the part, in the present round
        self._resumed = resumed
        self._next = next(self._jobs, None)
        self._allocation: Allocation | None = None  # of the previous round
        self._solved_for: tuple[int, Gangs] | None = None  # `_active.changes`, and the gangs that stayed; None: failed
        self._shares = Shares(of_job=np.zeros((0, 0)), pairs=[], of_pair=np.zeros((0, 0)))
        self._rows = Rows()
        self._tally = Tally(busy_s=np.zeros((len(scenario.tiers), len(self._types))))
        if resumed:
            self._tally.jobs_seen, self._tally.rounds = resumed.jobs_seen, resumed.rounds
        self._runner = TimedRunner(runner, self._tally.solve_s)
        self._decider = self._decider_by(scenario.settings)
        self._timeline = Timeline()
        self._losses = Losses(scenario.outages, self._layout)
        self._motion = Motion(scenario, self._layout, self._active, self._tally, self._timeline)
        self._packing = self._packing_by(scenario.settings)
        first, last = scenario.measure or (0, 0)
        self._measured = range(first, last)
        self._left = last - first if scenario.measure else -1

    # --- the loop -----------------------------------------------------------------------------------------------

    def rounds(self, before_round: Callable[[float], None] = lambda now_s: None) -> Iterator[Plan]:
        """Yield each round's start and gangs, until every measured job has ended.

        `before_round` is called at the boundary, before the round is planned; there `state` and `follow` may be called.
        """
        self._runner.warm()
        began_s = time.process_time()
        now_s = self._tally.began_at_s = self._first_s()
        while self._left != 0:
            self._admit(now_s)
            self._lose(now_s)
            if not self._active.jobs:
                if self._next is None:
                    break
                now_s = self._next.submitted_at_s
                continue
            before_round(now_s)
            placed = self._plan(now_s)
            yield now_s, placed
            now_s = self._pass(now_s, placed)
        self._tally.cpu_s = time.process_time() - began_s
        self._tally.ended_at_s = now_s

    def _first_s(self) -> float:
        if self._resumed:
            return self._resumed.at_s
        return self._next.submitted_at_s if self._next else 0.0

    def state(self, now_s: float) -> WorldState:
        """Return the jobs and their progress at the boundary of a round, for another simulation to go on from."""
        tally = self._tally
        return WorldState(at_s=now_s, active=self._active.state(), jobs_seen=tally.jobs_seen, rounds=tally.rounds)

    def follow(self, settings: Settings) -> None:
        """Decide by these settings from the next round on. Gangs stay where they are until a round moves them."""
        self._settings = settings
        self._decider, self._packing = self._decider_by(settings), self._packing_by(settings)
        self._solved_for = None

    def _decider_by(self, settings: Settings) -> Decider:
        return Decider(runner=self._runner, fallback=EqualShare(), settings=settings)

    def _packing_by(self, settings: Settings) -> Packing | None:
        colocated = self._scenario.colocated
        return Packing(colocated, self._types) if colocated is not None and settings.space_sharing else None

    def named(self, plan: Plan) -> dict[int, tuple[AcceleratorType, tuple[WorkerId, ...]]]:
        """Return the type and workers of each gang of this plan, by the place of its job in the trace."""
        indices = self._active.indices
        return {indices[row]: (self._layout.type_of[workers[0]], workers) for row, workers in plan[1].items()}

    def _admit(self, now_s: float) -> None:
        """Add the jobs that have arrived by `now_s`. Raise InvalidRequest for a tier that does not exist."""
        while self._next is not None and self._next.submitted_at_s <= now_s:
            job, self._next = self._next, next(self._jobs, None)
            job = self._sizes.smallest(job) if self._sizes and job.spec.has_choice else job
            rates = self._rates_of(job)
            tier = self._tier_index.get(job.spec.tier)
            if tier is None:
                raise InvalidRequest("tier", f"job {job.spec.name}: there is no tier {job.spec.tier!r}")
            self._active.add(job, self._tally.jobs_seen, rates=rates, capacity_workers=self._capacity, tier=tier)
            self._tally.jobs_seen += 1
        self._tally.most_active = max(self._tally.most_active, len(self._active.jobs))

    def _rates_of(self, job: TraceJob) -> FloatArray:
        """Return steps/s on each type, (m,), 0 where the gang cannot run. Raise InvalidRequest if all are 0."""
        kind, size = job.spec.kind, job.spec.scale_factor
        key = (kind, size, job.spec.needs)
        if key not in self._rates and self._sizes and job.spec.has_choice:
            self._rates[key] = self._sizes.rates_of(job.spec)
        elif key not in self._rates:
            rates = [self._scenario.throughput.get((kind, size, name), 0.0) for name in self._types]
            self._rates[key] = np.where(self._layout.feasibility.mask([job.spec])[0], rates, 0.0)
        if not self._rates[key].any():
            raise InvalidRequest(
                "trace", f"job {job.spec.name} ({kind}, {size} workers) runs on none of {', '.join(self._types)}"
            )
        return self._rates[key]

    # --- decide: production functions only ----------------------------------------------------------------------

    def _plan(self, now_s: float) -> dict[int, tuple[WorkerId, ...]]:
        active, part = self._active, free_part(self._active, self._layout, self._cluster, self._losses.away)
        staying = self._staying(now_s, part)
        if self._sizes:
            self._sizes.choose(part, staying, now_s)
        selection = self._selection_problem(part, staying, is_new=self._allocate(now_s, part))
        held = {index: active.workers[row] for index, row in enumerate(part.row_of(active)) if active.workers[row]}
        needs = needs_of(active.of_rows(part.rows, active.needs)) if active.needs else ()
        chosen, ledger, placed = chosen_and_placed(selection, part.layout, held, needs)
        active.keep_ledger(part.rows, part.columns, ledger)
        row_of, count = part.row_of(active), len(selection.rates)
        pairs = {count + index: pair for index, pair in enumerate(selection.pairs)}
        members = {index: pairs.get(index, (index,)) for index in chosen}
        taken = [worker for workers in (*set(part.kept.values()), *placed.values()) for worker in workers]
        if len(set(taken)) != len(taken):
            raise InvariantViolated("one_lease_per_worker", f"round {self._tally.rounds} leases a worker twice")
        return part.kept | {row_of[job]: workers for index, workers in placed.items() for job in members[index]}

    def _allocate(self, now_s: float, part: FreePart) -> bool:
        """Take the decider's allocation for this round's problem. Return True unless the previous one was reused.

        The problem is not made where the last one had the same jobs and its answer holds whatever their progress.
        """
        shared = self._active.changes, (*part.kept.values(), tuple(self._losses.away))
        late, self._late = self._sizes.late if self._sizes else (), ()
        if self._solved_for == shared and not late and self._decider.serves_after_progress(now_s):
            return False
        problem = self._problem(now_s, part)
        if self._sizes:
            problem = replace(problem, configurations=self._sizes.configurations)
        self._allocation, outcome = self._decider.allocation_of(problem, self._allocation)
        self._shares = shares_of(self._allocation, problem)
        if late:
            first = served_first(late, problem, self._allocation)
            ids, types = problem.job_ids, problem.accelerator_types
            self._late = tuple([(ids.index(job_id), types.index(name)) for job_id, name in first])
        if outcome != REUSED:  # a reused answer may be that of other jobs, restricted to these
            self._solved_for = shared if outcome == SOLVED else None
        self._tally.solves += outcome == SOLVED
        self._tally.failed_solves += outcome not in (SOLVED, REUSED)
        return outcome != REUSED

    def _selection_problem(
        self, part: FreePart, staying: Sequence[tuple[int, ...]], *, is_new: bool
    ) -> SelectionProblem:
        active, rates = self._active, part.steps_per_s(self._active)
        shares, pinned = pinned_rows(staying, self._shares, len(rates)) if staying else (self._shares, ())
        self._tally.rounds += 1
        return SelectionProblem(
            rates=rates,
            scale_factor=active.scale_factor[part.rows],
            capacity_workers=part.layout.capacity,
            target_fraction=shares.of_job,
            ledger=part.cells(active.ledger),
            kept=part.column_held(active),
            round_index=self._tally.rounds,
            planner=self._settings.planner,
            is_new_allocation=is_new,
            pairs=shares.pairs,
            pair_target_fraction=shares.of_pair,
            pinned=pinned,
            late=self._late,
            stay_rounds=self._stay_rounds(part),
            fastest_first=active.fastest_first if isinstance(part.rows, slice) else None,
            may_fill=self._may_fill()[part.rows],
        )

    def _staying(self, now_s: float, part: FreePart) -> list[tuple[int, ...]]:
        """The rows of the part, counted in it, whose gangs have not trained for long enough to stop."""
        together = rows_staying(self._active, now_s, start_limit_s=self._settings.start_limit_s)
        index_of = part.index_of(self._active) if together else {}
        return [tuple(index_of[row] for row in rows) for rows in together if index_of.keys() >= set(rows)]

    def _stay_rounds(self, part: FreePart) -> FloatArray:
        costs = self._scenario.switch_cost_s if self._settings.price_moves else {}
        kinds = [job.spec.kind for job in self._active.of_rows(part.rows, self._active.jobs)] if costs else []
        return stay_rounds(kinds, costs, self._settings.round_duration_s)

    def _problem(self, now_s: float, part: FreePart) -> AllocationProblem:
        specs = [job.spec for job in self._active.of_rows(part.rows, self._active.jobs)] if self._packing else []
        problem = problem_of(
            part.jobs(self._active),
            part.cluster,
            tiers=tuple(self._scenario.tiers),
            now_s=now_s,
            round_duration_s=self._settings.round_duration_s,
            pair_rates=self._packing.rates(specs, part.columns) if self._packing else None,
            warm_start=self._allocation.warm_start if self._allocation else {},
        )
        return with_staying(problem, part.staying(self._active, self._layout))

    # --- let it happen ------------------------------------------------------------------------------------------

    def _pass(self, now_s: float, placed: Mapping[int, tuple[WorkerId, ...]]) -> float:
        """Let the gangs run to the end of the round. Return that instant, or the last gang's end if that is earlier."""
        self._motion.start(now_s, placed, self._sizes.settle(placed) if self._sizes else ())
        end_s = now_s + self._settings.round_duration_s
        if not placed:
            return self._idle(end_s)
        if self._settings.backfill and (self._active.needs or self._sizes):  # workers may be left to a gang not chosen
            self._backfill(now_s, end_s)
        while now_s < end_s and (self._active.column >= 0).any():
            now_s = self._run(now_s, self._next_change_s(end_s))
            self._admit(now_s)
            self._lose(now_s)
            if self._settings.backfill:
                self._backfill(now_s, end_s)
        return now_s

    def _lose(self, now_s: float) -> None:
        """Take nodes away or give them back, whatever is due."""
        if self._losses.passed(now_s):
            self._motion.lose(now_s, self._losses.away)

    def _run(self, now_s: float, until_s: float) -> float:
        reached_s, over, finished_at_s = self._motion.run(now_s, until_s)
        if over.size:
            self._finish(over, finished_at_s)
        return reached_s

    def _next_change_s(self, end_s: float) -> float:
        """Return when the next gang ends, job arrives or node goes or comes, no later than the end of the round."""
        arrives_at_s = self._next.submitted_at_s if self._next else inf
        return min(self._motion.next_end_s(end_s), arrives_at_s, self._losses.next_s)

    def _backfill(self, now_s: float, end_s: float) -> None:
        """Give free workers to waiting jobs, unless too little of the round is left for them or no gang runs."""
        if now_s < end_s and (self._active.column >= 0).any():
            active, may_start = self._active, self._may_start(end_s - now_s)
            lag = active.ledger if self._settings.planner == "lag" else np.zeros_like(active.ledger)
            targets = partial(self._targets, now_s)
            self._motion.add(now_s, placed_now(active, self._layout, lag, may_start, targets, self._losses.away))

    def _targets(self, now_s: float, rows: IntArray, free: Layout) -> FloatArray:
        """Return the fractions (k, p) that the policy gives k rows of the p types of free workers."""
        return self._decider.fractions_now(self._problem(now_s, part_of(rows, free, self._layout)))

    def _may_start(self, left_s: float) -> BoolArray:
        """Return which jobs may start now, (n,) bool: of tiers without a cap, and if they may be preempted only where
        twice the start cost, and the least part of a round, fit in `left_s`.
        """
        if left_s < self._settings.minimum_lease_fraction * self._settings.round_duration_s:
            return np.asarray((self._active.preemptible == 0) & self._may_fill())
        if not self._scenario.switch_cost_s:
            return self._may_fill()
        jobs = (job.spec for job in self._active.jobs)
        worth = [not job.preemptible or 2 * self._motion.start_s(job.kind) <= left_s for job in jobs]
        return np.array(worth, dtype=bool) & self._may_fill()

    def _may_fill(self) -> BoolArray:
        """Return which jobs may get workers beyond their targets: those of tiers without a cap, (n,) bool."""
        return np.asarray(self._is_uncapped[self._active.tier])

    def _idle(self, end_s: float) -> float:
        """Return when the next round begins if no gang runs: at `end_s`, or when a job arrives or a node comes before.

        Raise InvariantViolated if nothing is to come and no waiting job has a target fraction.
        """
        end_s = min(end_s, self._losses.next_s)
        if self._next is None and self._losses.next_s == inf and not (self._shares.of_job > TARGET_FRACTION_MIN).any():
            raise InvariantViolated("every_job_ends", f"no gang may start by {end_s:g} s and no job arrives any more")
        return min(end_s, self._next.submitted_at_s) if self._next else end_s

    def _finish(self, rows: IntArray, finished_at_s: FloatArray) -> None:
        for row, at_s in zip(rows.tolist(), finished_at_s.tolist(), strict=True):
            index = self._active.indices[row]
            if index in self._measured or not self._scenario.measure:
                result = result_of(self._active, row, at_s, self._cluster)
                self._rows.add(index, result)
                self._left -= 1
        self._active.remove(rows)

    @property
    def completed(self) -> int:
        """Return how many measured jobs have ended so far."""
        return len(self._rows)

    def result(self) -> SimulationOutcome:
        """Return the outcome so far."""
        self._tally.envy = self._motion.envy.by_tier()
        elapsed_s = (self._tally.ended_at_s - self._tally.began_at_s) * int(self._capacity.sum())
        return SimulationOutcome(
            rows=self._rows,
            tally=self._tally,
            timeline=self._timeline,
            accelerator_types=self._types,
            utilisation=float(self._tally.busy_s.sum()) / elapsed_s if elapsed_s > 0 else 0.0,
        )
