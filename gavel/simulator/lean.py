"""The same decisions without the papers: solves, chooses and places with the production functions, keeps numbers only.

A simulation through the driver commits every round and speaks to its cluster gang by gang. Where throughputs are known
and nothing fails, none of that changes a decision, so this replay skips it: jobs are rows of one array, a round is a
few operations on it. A test holds it to the rounds that the driver plans.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

import numpy as np

from gavel.config import Settings
from gavel.errors import InvalidRequest, InvariantViolated, SolveFailed
from gavel.mechanism.invariants import check_allocation
from gavel.mechanism.placement import Layout, place
from gavel.mechanism.planner import Standing, choose, time_per_job
from gavel.mechanism.problem import equal_share_rate
from gavel.policies.equal_share import EqualShare
from gavel.policies.inline import InlineRunner
from gavel.ports import PolicyRunner
from gavel.simulator.active import Active
from gavel.simulator.cluster import ROUNDING, Throughput
from gavel.simulator.report import JobRow
from gavel.simulator.timeline import Timeline
from gavel.types import AcceleratorType, AllocationProblem, Cluster, FloatArray, JobState, Tier, WorkerId
from workloads.traces.job import TraceJob


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What is simulated. `measure`: jobs [first, last) count, arrivals go on until they have ended; None: all.

    `spread` holds the steps/s of gangs over several nodes (None: as fast as on one), which policies do not know;
    `switch_cost_s` is what each start of a gang costs before its first step, by job kind; `""`: any other kind.
    """

    cluster: Cluster
    throughput: Throughput
    settings: Settings
    tiers: Sequence[Tier] = (Tier(name="default"),)
    measure: tuple[int, int] | None = None
    switch_cost_s: Mapping[str, float] = field(default_factory=dict)
    spread: Throughput | None = None


@dataclass(slots=True, kw_only=True)
class Tally:
    """What a replay counts as it goes. Worker seconds: (tiers, types). `cpu_s`: CPU, `solve_s`: wall time."""

    rounds: int = 0
    solves: int = 0
    failed_solves: int = 0
    starts: int = 0
    kept: int = 0
    jobs_seen: int = 0
    most_active: int = 0
    began_at_s: float = 0.0
    ended_at_s: float = 0.0
    busy_s: FloatArray = field(default_factory=lambda: np.zeros((1, 1)))
    solve_s: list[float] = field(default_factory=list)
    cpu_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """What came of it: the measured jobs in order of arrival, what was counted, and the course over time."""

    rows: tuple[JobRow, ...]
    tally: Tally
    timeline: Timeline
    accelerator_types: tuple[str, ...]
    utilisation: float


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
        self._scenario = scenario
        self._settings = scenario.settings
        self._runner = runner
        self._layout = Layout(scenario.cluster)
        self._types = scenario.cluster.accelerator_types
        self._capacity = np.array([self._layout.capacity_workers[name] for name in self._types], dtype=np.int64)
        self._prices = _prices(scenario.cluster, self._types)
        self._tiers = tuple(sorted(scenario.tiers, key=lambda tier: tier.name))
        self._tier_index = {tier.name: index for index, tier in enumerate(self._tiers)}
        self._rates: dict[tuple[str, int], FloatArray] = {}
        self._active = Active(len(self._types))
        self._next = next(self._jobs, None)
        self._solved_at_s = -inf
        self._solved_ids: list[str] = []
        self._warm_start: Mapping[str, object] = {}
        self._rows: dict[int, JobRow] = {}
        self._tally = Tally(busy_s=np.zeros((len(self._tiers), len(self._types))))
        self._timeline = Timeline(len(self._types))
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
        """Jobs that have arrived enter at the boundary of a round."""
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
        active = self._active
        is_new = self._solve_if_due(now_s)
        self._tally.rounds += 1
        chosen, ledger = choose(
            Standing(
                rates=active.rates,
                scale_factor=active.scale_factor,
                capacity_workers=self._capacity,
                promised=active.promised,
                ledger=active.ledger,
                kept=active.column,
                round_index=self._tally.rounds,
                planner=self._settings.planner,
                is_new_allocation=is_new,
                fastest_first=active.fastest_first,
            )
        )
        active.ledger = ledger
        sizes = active.sizes
        gangs = [(row, self._types[column], sizes[row]) for row, column in chosen.items()]
        held = {row: workers for row, workers in enumerate(active.workers) if workers}
        placed = place(gangs, self._layout, held)
        taken = [worker for workers in placed.values() for worker in workers]
        if len(set(taken)) != len(taken):
            raise InvariantViolated("one_lease_per_worker", f"round {self._tally.rounds} leases a worker twice")
        return placed

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
                self._active.promised = time_per_job(EqualShare().allocate(problem), problem)
            return True
        check_allocation(allocation)
        self._tally.solve_s.append(time.perf_counter() - began_s)
        self._tally.solves += 1
        self._active.promised = time_per_job(allocation, problem)
        self._warm_start = allocation.warm_start
        self._solved_at_s, self._solved_ids = now_s, list(self._active.ids)
        return True

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
            tiers=self._tiers,
            tier_of_job=active.tier.astype(np.int64),
            users=tuple(job.spec.user for job in active.jobs),
            warm_start=self._warm_start,
        )

    # --- let it happen ------------------------------------------------------------------------------------------

    def _pass(self, now_s: float, placed: Mapping[int, tuple[WorkerId, ...]]) -> float:
        """Let the gangs run to the end of the round; its end, which is the last gang's if all end sooner."""
        active = self._active
        self._start(now_s, placed)
        running = np.flatnonzero(active.column >= 0)
        end_s = now_s + self._settings.round_duration_s
        if not running.size:
            return self._idle(now_s, end_s)
        rate = active.running_rate[running]
        from_s, base = active.training_from_s[running], active.base_steps[running]
        total = active.total_steps[running]
        finishes_at_s = from_s + (total - base) / rate
        end_s = min(end_s, float(finishes_at_s.max()))
        trained_s = np.maximum(0.0, end_s - from_s)
        steps = np.minimum(base + np.floor(trained_s * rate + ROUNDING), total)
        is_over = finishes_at_s <= end_s
        steps[is_over] = total[is_over]
        self._account(running, steps, np.minimum(end_s, finishes_at_s) - now_s, now_s)
        if is_over.any():
            self._finish(running[is_over], finishes_at_s[is_over])
        return end_s

    def _start(self, now_s: float, placed: Mapping[int, tuple[WorkerId, ...]]) -> None:
        """Gangs whose workers differ from the round before start anew, others go on."""
        active = self._active
        column_of = {name: column for column, name in enumerate(self._types)}
        started = []
        for row, before in enumerate(active.workers):
            workers = placed.get(row, ())
            if workers == before:
                self._tally.kept += bool(workers)
                continue
            active.preemptions[row] += bool(before)
            active.workers[row] = workers
            active.column[row] = column_of[self._layout.type_of[workers[0]]] if workers else -1
            if workers:
                started.append(row)
        active.base_steps[started] = active.steps_done[started]
        active.training_from_s[started] = now_s
        if self._scenario.switch_cost_s:
            costs = [self._switch_cost_s(active.jobs[row].spec.kind) for row in started]
            active.training_from_s[started] += costs
            active.lost_s[started] += costs
        active.running_rate[started] = active.rates[started, active.column[started]]
        if self._scenario.spread is not None:
            self._slow_down(started, self._scenario.spread)
        self._tally.starts += len(started)

    def _slow_down(self, started: Sequence[int], spread: Throughput) -> None:
        """Gangs whose workers lie on several nodes talk over the network."""
        for row in started:
            workers, spec = self._active.workers[row], self._active.jobs[row].spec
            if len({self._layout.node_of[worker] for worker in workers}) > 1:
                rate = spread.get((spec.kind, spec.scale_factor, self._layout.type_of[workers[0]]), 0.0)
                self._active.running_rate[row] = rate or self._active.running_rate[row]

    def _switch_cost_s(self, kind: str) -> float:
        costs = self._scenario.switch_cost_s
        return costs.get(kind, costs.get("", 0.0))

    def _idle(self, now_s: float, end_s: float) -> float:
        """Nothing fits: only an arrival can change that, and there must be one."""
        if self._next is None:
            raise InvariantViolated("every_job_ends", f"no gang fits at {now_s:g} s and no job arrives any more")
        return max(end_s, self._next.submitted_at_s)

    def _account(self, running: np.ndarray, steps: FloatArray, held_s: FloatArray, now_s: float) -> None:
        active = self._active
        columns, sizes = active.column[running], active.scale_factor[running]
        active.received_s[running, columns] += held_s
        active.rounds_received[running, columns] += 1
        share = np.minimum(1.0, self._capacity.sum() / (len(active.jobs) * sizes))
        gained = (steps - active.steps_done[running]) / (share * active.equal_rate[running])
        active.isolated_time_s[running] += gained
        active.steps_done[running] = steps
        np.add.at(self._tally.busy_s, (active.tier[running].astype(np.int64), columns), held_s * sizes)
        busy = np.bincount(columns, weights=sizes, minlength=len(self._types))
        self._timeline.add(now_s, busy.tolist(), len(active.jobs) - len(running))

    def _finish(self, rows: np.ndarray, finished_at_s: FloatArray) -> None:
        for row, at_s in zip(rows.tolist(), finished_at_s.tolist(), strict=True):
            index = self._active.indices[row]
            if index in self._measured or not self._scenario.measure:
                self._rows[index] = self._row(row, at_s)
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
            cost_usd=float(received @ self._prices) * job.spec.scale_factor / 3600.0,
            deadline_at_s=job.spec.deadline_at_s,
        )

    @property
    def completed(self) -> int:
        """Measured jobs that have ended so far."""
        return len(self._rows)

    def result(self) -> Replay:
        """What came of it so far."""
        elapsed_s = (self._tally.ended_at_s - self._tally.began_at_s) * int(self._capacity.sum())
        return Replay(
            rows=tuple(self._rows[index] for index in sorted(self._rows)),
            tally=self._tally,
            timeline=self._timeline,
            accelerator_types=self._types,
            utilisation=float(self._tally.busy_s.sum()) / elapsed_s if elapsed_s > 0 else 0.0,
        )


def _prices(cluster: Cluster, types: Sequence[str]) -> FloatArray:
    """Mean price per worker hour of each type, (types,)."""
    by_type = [[w.price_usd_per_hour for w in cluster.workers if w.accelerator_type == name] for name in types]
    return np.array([sum(prices) / len(prices) for prices in by_type])
