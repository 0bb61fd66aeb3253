"""Rounds in any order of arrivals, ends, losses of nodes, new allocations and prices, against a model of the lags.

After each round: the invariants of production, whole and work-conserving plans, no move without need, the ledger that
the leases account for, and gangs younger than the minimum still where they were.
"""

import os
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from gavel.mechanism.planning.invariants import check_plan
from gavel.types import Allocation, Certificate, Cluster, Job, JobState, Lease, Node, RoundPlan, Worker
from tests.builders import a_job, a_problem
from tests.mechanism.planning import Planning

FULL = os.environ.get("GAVEL_TEST_PROFILE") == "full"
DURATION_S = 10.0
TYPES = ("fast", "slow")


class Rounds(RuleBasedStateMachine):
    """Jobs, nodes and an allocation that change between rounds."""

    @initialize(
        planner=st.sampled_from(["lag", "lag", "published"]),
        minimum_run_s=st.sampled_from([0.0, 0.0, 25.0]),
        cost_s=st.sampled_from([0.0, 0.0, 5.0]),
    )
    def start(self, planner: Any, minimum_run_s: float, cost_s: float) -> None:
        self.planner, self.minimum_run_s, self.cost_s = planner, minimum_run_s, cost_s
        self.jobs: dict[str, Job] = {}
        self.nodes = {"n0": ("fast", 2), "n1": ("fast", 2), "n2": ("slow", 3)}
        self.shares: dict[tuple[str, ...], Any] = {}
        self.started_at_s: dict[str, float] = {}
        self.plan: RoundPlan | None = None
        self.lag: dict[tuple[str, str], float] = {}
        self.count = 0

    # --- what may happen between rounds ---------------------------------------------------------------------------

    @rule(size=st.sampled_from([1, 1, 1, 2, 3]))
    def a_job_arrives(self, size: int) -> None:
        self.count += 1
        name = f"j{self.count:03d}"
        self.jobs[name] = a_job(name, spec={"scale_factor": size})

    @precondition(lambda self: self.jobs)
    @rule(data=st.data())
    def a_job_ends(self, data: st.DataObject) -> None:
        gone = data.draw(st.sampled_from(sorted(self.jobs)))
        del self.jobs[gone]
        self.shares = {members: share for members, share in self.shares.items() if gone not in members}

    @precondition(lambda self: any(job.state is JobState.LEASED for job in self.jobs.values()))
    @rule(data=st.data())
    def a_gang_is_lost(self, data: st.DataObject) -> None:
        held = sorted(name for name, job in self.jobs.items() if job.state is JobState.LEASED)
        name = data.draw(st.sampled_from(held))
        self.jobs[name] = replace(self.jobs[name], state=JobState.QUEUED)

    @precondition(lambda self: len(self.nodes) > 1)
    @rule(data=st.data())
    def a_node_is_lost(self, data: st.DataObject) -> None:
        del self.nodes[data.draw(st.sampled_from(sorted(self.nodes)))]

    @precondition(lambda self: len(self.nodes) < 5)
    @rule(name=st.sampled_from(["n0", "n1", "n2", "n3", "n4"]), of=st.sampled_from(TYPES), workers=st.integers(1, 3))
    def a_node_comes(self, name: str, of: str, workers: int) -> None:
        self.nodes.setdefault(name, (of, workers))

    @rule(seed=st.integers(0, 10**6), packs=st.booleans())
    def an_allocation_is_solved(self, seed: int, packs: bool) -> None:
        """Random fractions that nobody checks against capacity: the planner takes them as they are."""
        draw, names = np.random.default_rng(seed), sorted(self.jobs)
        self.shares = {(name,): draw.dirichlet([1, 1, 1])[:2] / 2 for name in names}
        alike = [(a, b) for a in names for b in names if a < b and self.size(a) == self.size(b)]
        for pair in draw.permutation(alike).tolist()[: len(names) // 2] if packs and alike else []:
            if not any(set(pair) & set(other) for other in self.shares if len(other) == 2):
                self.shares[tuple(pair)] = draw.dirichlet([1, 1, 1])[:2] / 2

    # --- a round --------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.jobs)
    @rule()
    def a_round_is_planned(self) -> None:
        view = self.view()
        plan, lag = view.plan()
        check_plan(plan, cluster=view.cluster, jobs=self.jobs, parent=self.plan)
        leases = {lease.job_id: lease for lease in plan.leases}
        self.check_work_conserving(view, leases)
        self.check_moves(view, leases)
        if self.planner == "lag":
            self.check_ledger(view, leases, lag)
        self.carry_out(plan, leases, lag)

    def view(self) -> Planning:
        jobs = [self.jobs[name] for name in sorted(self.jobs)]
        cluster = self.cluster()
        types, capacity = cluster.accelerator_types, cluster.capacity_workers()
        size = np.array([job.spec.scale_factor for job in jobs])
        rates = (np.array([capacity[name] for name in types]) >= size[:, None]) * np.array([[3.0, 1.0]])[
            :, : len(types)
        ]
        problem = a_problem(
            rates.tolist(),
            [capacity[name] for name in types],
            job_ids=tuple(job.id for job in jobs),
            accelerator_types=types,
            scale_factor=size,
        )
        return Planning(
            jobs=jobs,
            cluster=cluster,
            problem=problem,
            allocation=self.allocation(types, capacity),
            lag_rounds=self.lag,
            parent=self.plan,
            starts_at_s=self.now_s,
            duration_s=DURATION_S,
            planner=self.planner,
            switch_cost_s={"": self.cost_s},
            minimum_run_s=self.minimum_run_s,
            started_at_s=self.started_at_s,
        )

    @property
    def now_s(self) -> float:
        return self.plan.ends_at_s if self.plan else 0.0

    def size(self, name: str) -> int:
        return self.jobs[name].spec.scale_factor

    def cluster(self) -> Cluster:
        workers = tuple(
            Worker(id=f"{of}/{name}/{index}", node=name, accelerator_type=of)
            for name, (of, count) in sorted(self.nodes.items())
            for index in range(count)
        )
        return Cluster(nodes=tuple(Node(name=name) for name in sorted(self.nodes)), workers=workers)

    def allocation(self, types: tuple[str, ...], capacity: dict[str, int]) -> Allocation:
        columns = [TYPES.index(name) for name in types]
        shares = {(name,): np.zeros(2) for name in self.jobs} | self.shares
        fits = [[capacity[name] >= self.size(members[0]) for name in types] for members in shares]
        return Allocation(
            combinations=tuple(shares),
            accelerator_types=types,
            time_fraction=np.array([share[columns] for share in shares.values()]) * np.array(fits),
            certificate=Certificate(primal_violation=0.0),
            policy="random",
            solver="none",
        )

    def carry_out(self, plan: RoundPlan, leases: dict[str, Lease], lag: dict[tuple[str, str], float]) -> None:
        for name, job in self.jobs.items():
            if name not in leases:
                self.jobs[name] = replace(job, state=JobState.QUEUED)
                self.started_at_s.pop(name, None)
                continue
            if leases[name].generation != job.generation:
                self.started_at_s[name] = plan.starts_at_s
            self.jobs[name] = replace(job, state=JobState.LEASED, generation=leases[name].generation)
        self.plan, self.lag = plan, lag

    # --- what must hold -------------------------------------------------------------------------------------------

    def check_work_conserving(self, view: Planning, leases: dict[str, Lease]) -> None:
        held = {worker for lease in leases.values() for worker in lease.worker_ids}
        free = [worker.accelerator_type for worker in view.cluster.workers if worker.id not in held]
        for job in view.jobs:
            if job.id not in leases:
                assert all(free.count(name) < job.spec.scale_factor for name in TYPES)

    def check_moves(self, view: Planning, leases: dict[str, Lease]) -> None:
        """A gang on its type stays on its workers, unless it gets together or its partner, one of two, stays."""
        before = {lease.job_id: lease for lease in self.plan.leases} if self.plan else {}
        node_of = {worker.id: worker.node for worker in view.cluster.workers}
        for name, lease in leases.items():
            old, job = before.get(name), self.jobs[name]
            if old is None or not node_of.keys() >= set(old.worker_ids) or job.state is not JobState.LEASED:
                continue
            ran_s = view.starts_at_s - self.started_at_s[name]
            if old.accelerator_type != lease.accelerator_type or old.worker_ids == lease.worker_ids:
                continue
            assert ran_s >= self.minimum_run_s
            nodes, nodes_before = ({node_of[each] for each in x.worker_ids} for x in (lease, old))
            was_or_is_packed = len(old.combination) + len(lease.combination) > 2
            assert len(nodes) < len(nodes_before) or was_or_is_packed

    def check_ledger(self, view: Planning, leases: dict[str, Lease], lag: dict[tuple[str, str], float]) -> None:
        """A round given takes one off a positive lag, or off any lag if the gang had a claim; nothing else does."""
        target_fraction: dict[tuple[str, str], float] = {}
        for members, share in zip(view.allocation.combinations, view.allocation.time_fraction, strict=True):
            for name in members:
                for of, part in zip(view.allocation.accelerator_types, share, strict=True):
                    target_fraction[name, of] = target_fraction.get((name, of), 0.0) + float(part)
        held = {(lease.job_id, lease.accelerator_type) for lease in (view.parent.leases if view.parent else ())}
        most = 3.0 + self.minimum_run_s / DURATION_S + (2 * self.cost_s / DURATION_S) ** 0.5
        for key, part in target_fraction.items():
            due = max(self.lag.get(key, 0.0) + part, -most)
            due = min(due, most) if key in held else due
            given = due - lag.get(key, 0.0)
            is_cut = key not in held and lag.get(key, 0.0) >= most  # the limits of those that wait are further up
            runs = key[0] in leases and leases[key[0]].accelerator_type == key[1]
            assert abs(given) < 1e-9 or (runs and abs(given - 1.0) < 1e-9) or is_cut
            assert not (runs and due > 0 and abs(given) < 1e-9)


Rounds.TestCase.settings = settings(max_examples=2_000 if FULL else 25, stateful_step_count=50 if FULL else 25)
TestRounds = Rounds.TestCase
