"""The same decisions without the papers: solves, chooses and places with the production functions, keeps numbers only.

A simulation through the driver commits every round and speaks to its cluster gang by gang. Where throughputs are known
and nothing fails, none of that changes a decision, so this replay skips it: jobs are rows of one array, a round is a
few operations on it. A test holds it to the rounds that the driver plans.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf

import numpy as np

from gavel.errors import InvalidRequest, InvariantViolated, SolveFailed
from gavel.mechanism.caps import capped, is_capped
from gavel.mechanism.choice import PROMISED_MIN, Standing, choose
from gavel.mechanism.invariants import check_allocation
from gavel.mechanism.placement import Layout, place
from gavel.mechanism.planner import gathers, stay_rounds
from gavel.mechanism.problem import equal_share_rate
from gavel.policies.equal_share import EqualShare
from gavel.policies.inline import InlineRunner
from gavel.ports import PolicyRunner
from gavel.simulator.active import Active
from gavel.simulator.midround import placed_now
from gavel.simulator.motion import Motion
from gavel.simulator.outcome import Replay, Scenario, Tally, prices_of
from gavel.simulator.packing import Packing
from gavel.simulator.report import JobRow
from gavel.simulator.rows import Rows
from gavel.simulator.timeline import Timeline
from gavel.types import (
    AcceleratorType,
    Allocation,
    AllocationProblem,
    BoolArray,
    FloatArray,
    IntArray,
    JobState,
    WorkerId,
)
from workloads.traces.job import TraceJob

Plan = tuple[float, Mapping[int, tuple[WorkerId, ...]]]
"""When a round starts, and the workers of each row's gang."""


def replay(jobs: Iterable[TraceJob], scenario: Scenario, *, runner: PolicyRunner | None = None) -> Replay:
    """Run until every measured job has ended.

    Raises InvalidRequest for a job that can run nowhere, InvariantViolated when rounds go by and nothing moves.
    """
    world = LeanWorld(jobs, scenario, runner or InlineRunner())
    for _ in world.rounds():
        pass
    return world.result()


class LeanWorld:
    """One replay; `rounds` goes from round to round and says what each planned."""

    def __init__(self, jobs: Iterable[TraceJob], scenario: Scenario, runner: PolicyRunner) -> None:
        self._jobs = iter(jobs)
        scenario = replace(scenario, tiers=sorted(scenario.tiers, key=lambda tier: tier.name))
        self._scenario = scenario
        self._settings = scenario.settings
        self._runner = runner
        self._layout = Layout(scenario.cluster)
        self._types = scenario.cluster.accelerator_types
        self._capacity = np.array([self._layout.capacity_workers[name] for name in self._types], dtype=np.int64)
        self._prices = np.array(list(prices_of(scenario.cluster).values()))
        tiers = {tier.name: tier for tier in scenario.tiers}
        self._tier_index = {name: index for index, name in enumerate(tiers)}
        self._is_uncapped = np.array([not is_capped(name, tiers) for name in tiers], dtype=bool)
        self._rates: dict[tuple[str, int], FloatArray] = {}
        self._active = Active(len(self._types))
        self._next = next(self._jobs, None)
        self._solved_at_s = -inf
        self._solved_ids: list[str] = []
        self._pairs: Sequence[tuple[str, ...]] = ()
        self._of_pair = np.zeros((0, len(self._types)))  # (pairs, types) time fractions
        self._warm_start: Mapping[str, object] = {}
        self._rows = Rows()
        self._tally = Tally(busy_s=np.zeros((len(scenario.tiers), len(self._types))))
        self._timeline = Timeline()
        self._motion = Motion(scenario, self._layout, self._active, self._tally, self._timeline)
        self._packing = None if scenario.beside is None else Packing(scenario.beside, self._types)
        first, last = scenario.measure or (0, 0)
        self._measured = range(first, last)
        self._left = last - first if scenario.measure else -1

    # --- the loop -----------------------------------------------------------------------------------------------

    def rounds(self) -> Iterator[Plan]:
        """Each round's start and gangs, until every measured job has ended."""
        self._runner.warm()
        began_s = time.process_time()
        now_s = self._tally.began_at_s = self._next.submitted_at_s if self._next else 0.0
        while self._left != 0:
            self._admit(now_s)
            if not self._active.jobs:
                if self._next is None:
                    break
                now_s = self._next.submitted_at_s
                continue
            placed = self._plan(now_s)
            yield now_s, placed
            now_s = self._pass(now_s, placed)
        self._tally.cpu_s = time.process_time() - began_s
        self._tally.ended_at_s = now_s

    def named(self, plan: Plan) -> dict[int, tuple[AcceleratorType, tuple[WorkerId, ...]]]:
        """Type and workers of each gang of the plan just given, by the place of its job in the trace."""
        indices = self._active.indices
        return {indices[row]: (self._layout.type_of[workers[0]], workers) for row, workers in plan[1].items()}

    def _admit(self, now_s: float) -> None:
        """Jobs that have arrived enter: at the boundary of a round, or at once where it is filled up."""
        while self._next is not None and self._next.submitted_at_s <= now_s:
            job, self._next = self._next, next(self._jobs, None)
            rates = self._rates_of(job)
            tier = self._tier_index.get(job.spec.tier)
            if tier is None:
                raise InvalidRequest("tier", f"job {job.spec.name}: there is no tier {job.spec.tier!r}")
            share_rate = equal_share_rate(rates, self._capacity)
            self._active.add(job, self._tally.jobs_seen, rates=rates, equal_rate=share_rate, tier=tier)
            self._tally.jobs_seen += 1
        self._tally.most_active = max(self._tally.most_active, len(self._active.jobs))

    def _rates_of(self, job: TraceJob) -> FloatArray:
        """Steps/s on each type, 0 where the gang cannot run; raises InvalidRequest if that is everywhere."""
        key = (job.spec.kind, job.spec.scale_factor)
        if key not in self._rates:
            known = [self._scenario.throughput.get((*key, name), 0.0) for name in self._types]
            self._rates[key] = np.where(self._capacity >= key[1], known, 0.0)
        if not self._rates[key].any():
            raise InvalidRequest(
                "trace", f"job {job.spec.name} ({key[0]}, {key[1]} workers) runs on none of {', '.join(self._types)}"
            )
        return self._rates[key]

    # --- decide: production functions only ----------------------------------------------------------------------

    def _plan(self, now_s: float) -> dict[int, tuple[WorkerId, ...]]:
        active, count = self._active, len(self._active.jobs)
        standing = self._standing(is_new=self._solve_if_due(now_s))
        chosen, active.ledger = choose(standing)
        pairs = {count + index: pair for index, pair in enumerate(standing.pairs)}
        members = {row: pairs.get(row, (row,)) for row in chosen}
        gangs = [(row, self._types[column], active.sizes[members[row][0]]) for row, column in chosen.items()]
        held = {row: workers for row, workers in enumerate(active.workers) if workers}
        placed = place(gangs, self._layout, held, pairs=pairs, gathers=gathers(standing))
        taken = [worker for workers in placed.values() for worker in workers]
        if len(set(taken)) != len(taken):
            raise InvariantViolated("one_lease_per_worker", f"round {self._tally.rounds} leases a worker twice")
        return {job: workers for row, workers in placed.items() for job in members[row]}

    def _standing(self, *, is_new: bool) -> Standing:
        active = self._active
        self._tally.rounds += 1
        pairs, of_pair, promised = self._paired(active.promised)
        costs = self._scenario.switch_cost_s if self._settings.price_moves else {}
        return Standing(
            rates=active.rates,
            scale_factor=active.scale_factor,
            capacity_workers=self._capacity,
            promised=promised,
            ledger=active.ledger,
            kept=active.column,
            round_index=self._tally.rounds,
            planner=self._settings.planner,
            is_new_allocation=is_new,
            pairs=pairs,
            pair_promised=of_pair,
            stay_rounds=stay_rounds([job.spec.kind for job in active.jobs], costs, self._settings.round_duration_s),
            fastest_first=active.fastest_first,
            may_fill=self._may_fill(),
        )

    def _paired(self, alone: FloatArray) -> tuple[list[tuple[int, int]], FloatArray, FloatArray]:
        """Rows of the pairs whose jobs are both still there, their time (p, m), and each job's alone and packed."""
        if not self._pairs:
            return [], np.zeros((0, len(self._types))), alone
        row_of = {job_id: row for row, job_id in enumerate(self._active.ids)}
        there = [index for index, pair in enumerate(self._pairs) if all(job_id in row_of for job_id in pair)]
        pairs = [(row_of[self._pairs[index][0]], row_of[self._pairs[index][1]]) for index in there]
        promised, of_pair = alone.copy(), self._of_pair[there]
        np.add.at(promised, np.array(pairs, dtype=np.int64).reshape(-1, 2), of_pair[:, None, :])
        return pairs, of_pair, promised

    def _solve_if_due(self, now_s: float) -> bool:
        """The rule of `Solved.serves` on what is known here: arrivals and ends are the only events."""
        is_due = self._settings.solve_on == "change" or self._active.ids != self._solved_ids
        if not is_due or now_s - self._solved_at_s < self._settings.allocation_interval_s:
            return False
        problem = self._problem(now_s)
        began_s = time.perf_counter()
        try:
            limit_s = self._settings.solve_time_limit_s
            allocation = self._runner.allocate(self._settings.policy, problem, limit_s)
        except SolveFailed:
            self._tally.failed_solves += 1
            if self._solved_at_s == -inf:  # else the last allocation, for the jobs that are still there
                self._promise(EqualShare().allocate(replace(problem, pair_rates=None)))
            return True
        allocation = capped(allocation, problem)
        check_allocation(allocation)
        self._tally.solve_s.append(time.perf_counter() - began_s)
        self._tally.solves += 1
        self._promise(allocation)
        self._warm_start = allocation.warm_start
        self._solved_at_s, self._solved_ids = now_s, list(self._active.ids)
        return True

    def _promise(self, allocation: Allocation) -> None:
        """Each job's time alone, and that of pairs, which come behind the jobs."""
        count, fractions = len(self._active.jobs), allocation.time_fraction
        self._active.promised = fractions[:count]
        used = count + np.flatnonzero(fractions[count:].max(axis=1, initial=0.0) > PROMISED_MIN)
        self._pairs = [allocation.combinations[row] for row in used]
        self._of_pair = fractions[used]

    def _problem(self, now_s: float) -> AllocationProblem:
        active = self._active
        count = len(active.jobs)
        rates = np.zeros((count, 2, len(self._types)))
        rates[:, 0] = active.rates
        return AllocationProblem(
            now_s=now_s,
            round_duration_s=self._settings.round_duration_s,
            job_ids=tuple(active.ids),
            combinations=tuple((row,) for row in range(count)),
            accelerator_types=self._types,
            throughput_steps_per_s=rates,
            capacity_workers=self._capacity,
            price_usd_per_hour=self._prices,
            scale_factor=active.scale_factor,
            weight=active.weight.copy(),
            steps_remaining=np.maximum(1.0, active.total_steps - active.steps_done),
            age_s=np.maximum(0.0, now_s - active.submitted_at_s),
            attained_service_s=active.received_s.sum(axis=1) * active.scale_factor,
            isolated_time_s=active.isolated_time_s.copy(),
            deadline_at_s=active.deadline_at_s.copy(),
            tiers=tuple(self._scenario.tiers),
            tier_of_job=active.tier.astype(np.int64),
            users=tuple(job.spec.user for job in active.jobs),
            pair_rates=self._packing.rates([job.spec for job in active.jobs]) if self._packing else None,
            warm_start=self._warm_start,
        )

    # --- let it happen ------------------------------------------------------------------------------------------

    def _pass(self, now_s: float, placed: Mapping[int, tuple[WorkerId, ...]]) -> float:
        """Let the gangs run to the end of the round; its end, which is the last gang's if all end sooner."""
        self._motion.start(now_s, placed)
        end_s = now_s + self._settings.round_duration_s
        if not placed:
            return self._idle(end_s)
        while now_s < end_s and (self._active.column >= 0).any():
            now_s = self._run(now_s, self._next_change_s(end_s) if self._settings.backfill else end_s)
            if not self._settings.backfill:
                return now_s
            self._backfill(now_s, end_s)
        return now_s

    def _run(self, now_s: float, until_s: float) -> float:
        reached_s, over, finished_at_s = self._motion.run(now_s, until_s)
        if over.size:
            self._finish(over, finished_at_s)
        return reached_s

    def _next_change_s(self, end_s: float) -> float:
        """When a gang ends or a job arrives, the end of the round at the latest."""
        arrives_at_s = self._next.submitted_at_s if self._next else inf
        return min(self._motion.next_end_s(end_s), arrives_at_s)

    def _backfill(self, now_s: float, end_s: float) -> None:
        """What got free goes to who waits, unless too little of the round is left; without gangs the next one comes."""
        least_s = self._settings.minimum_lease_fraction * self._settings.round_duration_s
        if now_s >= end_s or not (self._active.column >= 0).any():
            return
        self._admit(now_s)
        if end_s - now_s >= least_s:
            active, may_start = self._active, self._may_start(end_s - now_s)
            owed = active.ledger if self._settings.planner == "owed" else np.zeros_like(active.ledger)
            self._motion.add(now_s, placed_now(active, self._layout, owed, may_start))

    def _may_start(self, left_s: float) -> BoolArray:
        """As in the service (`gap_of`): nobody for whom twice the cost of a start would not fit, and no capped tier."""
        worth = [2 * self._motion.start_s(job.spec.kind) <= left_s for job in self._active.jobs]
        return np.array(worth, dtype=bool) & self._may_fill()

    def _may_fill(self) -> BoolArray:
        """Jobs that may have what nobody was promised: those of tiers without a cap, (n,)."""
        return np.asarray(self._is_uncapped[self._active.tier.astype(np.int64)])

    def _idle(self, end_s: float) -> float:
        """Nobody may go: the next round comes in its time or with the next job, unless none will ever be owed time."""
        _, _, promised = self._paired(self._active.promised)
        if self._next is None and not (promised > PROMISED_MIN).any():
            raise InvariantViolated("every_job_ends", f"no gang may start by {end_s:g} s and no job arrives any more")
        return min(end_s, self._next.submitted_at_s) if self._next else end_s

    def _finish(self, rows: IntArray, finished_at_s: FloatArray) -> None:
        for row, at_s in zip(rows.tolist(), finished_at_s.tolist(), strict=True):
            index = self._active.indices[row]
            if index in self._measured or not self._scenario.measure:
                self._rows.add(index, self._row(row, at_s))
                self._left -= 1
        self._active.remove(rows)

    def _row(self, row: int, at_s: float) -> JobRow:
        active, job = self._active, self._active.jobs[row]
        received = active.received_s[row]
        isolated_s = float(active.isolated_time_s[row])
        submitted_at_s = job.submitted_at_s
        steps = job.spec.total_steps
        return JobRow(
            id=active.ids[row],
            name=job.spec.name,
            user=job.spec.user,
            tier=job.spec.tier,
            kind=job.spec.kind,
            state=JobState.COMPLETED,
            jct_s=at_s - submitted_at_s,
            rho=(at_s - submitted_at_s) / isolated_s if isolated_s > 0 else None,
            rounds={
                name: int(count)
                for name, count in zip(self._types, active.rounds_received[row], strict=True)
                if count > 0
            },
            preemptions=int(active.preemptions[row]),
            scale_factor=job.spec.scale_factor,
            submitted_at_s=submitted_at_s,
            finished_at_s=at_s,
            fastest_s=steps / float(active.rates[row].max()),
            lost_s=float(active.lost_s[row]),
            packed_s=float(active.shared_s[row].sum()),
            cost_usd=float((received - active.shared_s[row] / 2) @ self._prices) * job.spec.scale_factor / 3600.0,
            deadline_at_s=job.spec.deadline_at_s,
        )

    @property
    def completed(self) -> int:
        """Measured jobs that have ended so far."""
        return len(self._rows)

    def result(self) -> Replay:
        """What came of it so far."""
        self._tally.envy = self._motion.envy.by_tier()
        elapsed_s = (self._tally.ended_at_s - self._tally.began_at_s) * int(self._capacity.sum())
        return Replay(
            rows=self._rows,
            tally=self._tally,
            timeline=self._timeline,
            accelerator_types=self._types,
            utilisation=float(self._tally.busy_s.sum()) / elapsed_s if elapsed_s > 0 else 0.0,
        )
