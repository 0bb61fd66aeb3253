"""What happens between decisions: gangs start, run, share workers and end; and what is counted of it."""

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from gavel.mechanism.cluster.placement import Layout
from gavel.simulator.active import Active
from gavel.simulator.cluster import Throughput
from gavel.simulator.envy import Envy, mean_speed
from gavel.simulator.gang import ROUNDING
from gavel.simulator.outcome import Scenario, Tally
from gavel.simulator.timeline import Timeline
from gavel.types import FloatArray, IntArray, WorkerId, worker_s
from workloads.traces.throughputs import PairThroughput


class Motion:
    """Moves the gangs of `active` through time and keeps `tally` and `timeline`."""

    def __init__(self, scenario: Scenario, layout: Layout, active: Active, tally: Tally, timeline: Timeline) -> None:
        self._scenario = scenario
        self._layout = layout
        self._active = active
        self._tally = tally
        self._timeline = timeline
        self._column_of = {name: column for column, name in enumerate(layout.types)}
        self.envy = Envy(scenario.tiers)

    # --- gangs start --------------------------------------------------------------------------------------------

    def start(self, now_s: float, placed: Mapping[int, tuple[WorkerId, ...]], anew: Collection[int] = ()) -> None:
        """Start the gangs whose workers differ from those of the previous round, and those `anew`. The others go on."""
        active, started = self._active, []
        for row, before in enumerate(active.workers):
            workers = placed.get(row, ())
            if workers == before and row not in anew:
                self._tally.kept += bool(workers)
                continue
            if before:
                active.preemptions[row] += 1
                self._end_lease(row, now_s)
            self._put(row, workers)
            if workers:
                started.append(row)
        self._begin(started, now_s)
        if self._scenario.colocated is not None:
            self._pair(now_s, placed, self._scenario.colocated)
        running = list(placed)
        active.rounds_received[running, active.column[running]] += 1

    def _end_lease(self, row: int, now_s: float) -> None:
        """Count a lease that ends, as the service does (gavel/mechanism/jobs/lifecycle.py)."""
        active, held_s = self._active, now_s - float(self._active.started_at_s[row])
        is_vain = active.steps_done[row] <= active.begun_steps[row]
        longest_s = max(float(active.longest_without_checkpoint_s[row]), held_s)
        active.leases_without_checkpoint[row] = active.leases_without_checkpoint[row] + 1 if is_vain else 0
        active.longest_without_checkpoint_s[row] = longest_s if is_vain else 0.0

    def add(self, now_s: float, placed: Mapping[int, tuple[WorkerId, ...]]) -> None:
        """Start more gangs in the middle of a round. All others go on."""
        for row, workers in placed.items():
            self._put(row, workers)
        started = list(placed)
        self._begin(started, now_s)
        self._active.rounds_received[started, self._active.column[started]] += 1

    def lose(self, now_s: float, away: frozenset[WorkerId]) -> None:
        """End the gangs that hold workers which are away, with what they did since their last checkpoint."""
        active, period_s = self._active, self._scenario.checkpoint_period_s
        for row in [row for row, workers in enumerate(active.workers) if not away.isdisjoint(workers)]:
            trained_s = max(0.0, now_s - float(active.training_from_s[row]))
            saved_s = trained_s // period_s * period_s if period_s <= trained_s else 0.0
            saved = np.floor(active.base_steps[row] + saved_s * active.running_rate[row] + ROUNDING)
            self._undo(row, float(min(active.steps_done[row], saved)))
            active.lost_s[row] += trained_s - saved_s
            active.preemptions[row] += 1
            self._end_lease(row, now_s)
            self._put(row, ())

    def _undo(self, row: int, steps: float) -> None:
        """Set the steps of a job back to these."""
        active = self._active
        own = active.isolated_rate(self._layout.capacity)[row]
        undone = active.steps_done[row] - steps
        active.isolated_steps[row] = max(0.0, active.isolated_steps[row] - undone * active.whole_rate[row] / own)
        active.steps_done[row] = steps

    def _put(self, row: int, workers: tuple[WorkerId, ...]) -> None:
        active = self._active
        active.workers[row] = workers
        active.column[row] = self._column_of[self._layout.type_of[workers[0]]] if workers else -1
        active.partner[row] = -1

    def _begin(self, started: list[int], now_s: float) -> None:
        active = self._active
        active.base_steps[started] = active.steps_done[started]
        active.training_from_s[started] = active.started_at_s[started] = now_s
        active.begun_steps[started] = active.steps_done[started]
        if self._scenario.switch_cost_s:
            costs = [self.start_s(active.jobs[row].spec.kind) for row in started]
            active.training_from_s[started] += costs
            active.lost_s[started] += costs
        active.alone_rate[started] = active.rates[started, active.column[started]]
        if self._scenario.spread is not None:
            self._slow_down(started, self._scenario.spread)
        active.running_rate[started] = active.alone_rate[started]
        self._tally.starts += len(started)

    def _slow_down(self, started: Sequence[int], spread: Throughput) -> None:
        """Set the rates of gangs whose workers lie on several nodes, since they communicate over the network."""
        for row in started:
            workers, spec = self._active.workers[row], self._active.jobs[row].spec
            if len({self._layout.node_of[worker] for worker in workers}) > 1:
                rate = spread.get((spec.kind, spec.scale_factor, self._layout.type_of[workers[0]]), 0.0)
                self._active.alone_rate[row] = rate or self._active.alone_rate[row]

    def start_s(self, kind: str) -> float:
        """Return the seconds that a start of a gang of this kind costs."""
        costs = self._scenario.switch_cost_s
        return costs.get(kind, costs.get("", 0.0))

    def _pair(self, now_s: float, placed: Mapping[int, tuple[WorkerId, ...]], colocated: PairThroughput) -> None:
        """Set the rates of gangs that share workers from now on, and of those whose partner has left."""
        active = self._active
        on: dict[tuple[WorkerId, ...], list[int]] = {}
        for row, workers in placed.items():
            on.setdefault(workers, []).append(row)
        for workers, rows in on.items():
            for row, other in zip(rows, reversed(rows), strict=True):
                partner = active.indices[other] if len(rows) == 2 else -1
                self._tally.packed += partner >= 0
                if partner == active.partner[row]:
                    continue
                spec, name = active.jobs[row].spec, self._layout.type_of[workers[0]]
                key = spec.kind, active.jobs[other].spec.kind, spec.scale_factor, name
                active.go_on(row, now_s, colocated[key] if partner >= 0 else float(active.alone_rate[row]))
                active.partner[row] = partner

    # --- gangs run ----------------------------------------------------------------------------------------------

    def next_end_s(self, end_s: float) -> float:
        """Return when the first of the gangs ends, but no later than `end_s`."""
        running = np.flatnonzero(self._active.column >= 0)
        return min(end_s, float(self._active.finishes_at_s(running).min(initial=end_s)))

    def run(self, now_s: float, end_s: float) -> tuple[float, IntArray, FloatArray]:
        """Let the gangs run. Return when the round ends, the rows that have ended, and when each of them did.

        The round ends at `end_s`, or with its last gang if all end sooner.
        """
        active = self._active
        running = np.flatnonzero(active.column >= 0)
        shared_s = self._part(now_s, end_s) if active.is_sharing else np.zeros(len(active.jobs))
        finishes_at_s = active.finishes_at_s(running)
        end_s = min(end_s, float(finishes_at_s.max()))
        total, rate = active.total_steps[running], active.running_rate[running]
        trained_s = np.maximum(0.0, end_s - active.training_from_s[running])
        active.has_trained[running] = np.maximum(active.has_trained[running], active.training_from_s[running] <= end_s)
        steps = np.minimum(np.floor(active.base_steps[running] + trained_s * rate + ROUNDING), total)
        is_over = finishes_at_s <= end_s
        steps[is_over] = total[is_over]
        held_s = np.minimum(end_s, finishes_at_s) - now_s
        shared_s = np.minimum(shared_s[running], held_s)
        held_worker_s = worker_s(held_s, shared_s, active.scale_factor[running])
        self._account(running, steps, held_s, shared_s, held_worker_s)
        self._watch(now_s, end_s, running, held_worker_s)
        return end_s, running[is_over], finishes_at_s[is_over]

    def _part(self, now_s: float, end_s: float) -> FloatArray:
        """Let the gang that outlives its partner go on at its own speed.

        Return the seconds that each job shares workers, (n,).
        """
        active, shared_s = self._active, np.zeros(len(self._active.jobs))
        row_of = {index: row for row, index in enumerate(active.indices)}
        for row, partner in enumerate(active.partner):
            if partner < active.indices[row]:  # no partner, or a pair that was handled before
                continue
            pair = [row, row_of[partner]]
            until_s = active.finishes_at_s(pair)
            first, last = pair if until_s[0] <= until_s[1] else pair[::-1]
            shared_s[pair] = min(end_s, float(until_s.min())) - now_s
            if until_s.min() <= end_s:
                active.go_on(last, float(until_s.min()), float(active.alone_rate[last]))
                active.partner[first] = active.partner[last] = -1
        return shared_s

    # --- what is counted ----------------------------------------------------------------------------------------

    def _account(
        self, running: IntArray, steps: FloatArray, held_s: FloatArray, shared_s: FloatArray, held_worker_s: FloatArray
    ) -> None:
        active = self._active
        columns = active.column[running]
        active.received_s[running, columns] += held_s
        active.shared_s[running, columns] += shared_s
        own = active.isolated_rate(self._layout.capacity)[running]
        active.isolated_steps[running] += (steps - active.steps_done[running]) * active.whole_rate[running] / own
        active.steps_done[running] = steps
        np.add.at(self._tally.busy_s, (active.tier[running], columns), held_worker_s)

    def _watch(self, now_s: float, end_s: float, running: IntArray, held_worker_s: FloatArray) -> None:
        """Record the mean number of workers that each tier holds until `end_s`, for the plots and for envy."""
        active, tiers = self._active, self._scenario.tiers
        workers = held_worker_s / max(end_s - now_s, 1e-9)
        if len(tiers) == 1 and not self._timeline.is_due:
            self._timeline.skip()
            return
        held = np.zeros((len(tiers), len(self._layout.types)))
        np.add.at(held, (active.tier[running], active.column[running]), workers)
        waiting = len(active.jobs) - len(running)
        self._timeline.add(now_s, held.sum(axis=0).tolist(), waiting, held.sum(axis=1).tolist())
        if len(tiers) > 1:
            speed = mean_speed(active.rates, active.scale_factor, active.tier, len(tiers))
            self.envy.add(held, *speed, end_s - now_s)
