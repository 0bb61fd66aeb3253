"""Any sequence of calls: both stores against a plain dictionary."""

import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from gavel.errors import Conflict, GavelError, InvariantViolated, KeyReused, StaleVersion
from gavel.ports import Changes, JobEdit, JobEvent, JobFilter
from gavel.store.memory import MemoryStore
from gavel.store.samples import SimulationStore, WholeStore, round_record
from gavel.store.sql import SqlStore
from gavel.types import Job, JobId, JobState, Tier
from tests.builders import a_spec

IS_FULL = os.environ.get("GAVEL_TEST_PROFILE") == "full"
PROFILE = settings(
    max_examples=400 if IS_FULL else 5,
    stateful_step_count=50 if IS_FULL else 20,
    suppress_health_check=list(HealthCheck),
)
USERS = st.sampled_from(["ann", "bob"])
TIERS = st.sampled_from(["default", "gold"])
KEYS = st.sampled_from([None, "k1", "k2"])
BODIES = st.sampled_from(["h1", "h2"])
SCHEDULERS = st.sampled_from([0, 1])  # each decides on the last view it took


class StoreMachine(RuleBasedStateMachine):
    """The model: jobs in a dictionary, keys in another, a version, a list of rounds, events counted."""

    def __init__(self, store: SimulationStore) -> None:
        super().__init__()
        self.store = store
        self.jobs: dict[JobId, Job] = {}
        self.keys: dict[tuple[str, str], tuple[str, JobId]] = {}
        self.tiers = {"default": Tier(name="default")}
        self.version = 0
        self.rounds: list[int] = []
        self.histories: dict[JobId, list[str]] = {}
        self.views = [self.store.snapshot(), self.store.snapshot()]
        self.now_s = 0.0

    # --- requests ------------------------------------------------------------------------------------------------

    @rule(user=USERS, tier=TIERS, key=KEYS, body=BODIES)
    def submit(self, user: str, tier: str, key: str | None, body: str) -> None:
        spec = a_spec(user=user, tier=tier, labels={"body": body})
        earlier = self.keys.get((user, key)) if key else None
        if earlier and earlier[0] != body:
            with pytest.raises(KeyReused):
                self.store.submit(spec, key=key, body_hash=body, now_s=self.now_s)
            return
        answer = self.store.submit(spec, key=key, body_hash=body, now_s=self.now_s)
        assert answer.created is (earlier is None)
        if earlier:
            assert answer.job == self.jobs[earlier[1]]
            return
        assert answer.job.id not in self.jobs
        self.jobs[answer.job.id] = Job(id=answer.job.id, spec=spec, submitted_at_s=self.now_s)
        self.histories[answer.job.id] = ["job.submitted"]
        if key:
            self.keys[user, key] = (body, answer.job.id)

    @rule(pick=st.integers(0, 99))
    def cancel(self, pick: int) -> None:
        if not self.jobs:
            return
        job = list(self.jobs.values())[pick % len(self.jobs)]
        if job.state in (JobState.COMPLETED, JobState.FAILED):
            with pytest.raises(Conflict):
                self.store.request_cancel(job.id, now_s=self.now_s)
            return
        if not job.cancel_requested and job.state is not JobState.CANCELLED:
            self.jobs[job.id] = replace(job, cancel_requested=True, version=job.version + 1)
            self.histories[job.id].append("cancel.requested")
        assert self.store.request_cancel(job.id, now_s=self.now_s) == self.jobs[job.id]

    @rule(pick=st.integers(0, 99), is_paused=st.booleans())
    def pause(self, pick: int, is_paused: bool) -> None:
        if not self.jobs:
            return
        job = list(self.jobs.values())[pick % len(self.jobs)]
        if job.state.is_terminal:
            with pytest.raises(Conflict):
                self.store.request_pause(job.id, is_paused=is_paused, now_s=self.now_s)
            return
        if job.pause_requested is not is_paused:
            self.jobs[job.id] = replace(job, pause_requested=is_paused, version=job.version + 1)
            self.histories[job.id].append("pause.requested" if is_paused else "job.resumed")
        assert self.store.request_pause(job.id, is_paused=is_paused, now_s=self.now_s) == self.jobs[job.id]

    @rule(pick=st.integers(0, 99), weight=st.sampled_from([1.0, 2.0]), behind=st.sampled_from([0, 0, 1]))
    def edit(self, pick: int, weight: float, behind: int) -> None:
        if not self.jobs:
            return
        job = list(self.jobs.values())[pick % len(self.jobs)]
        edit, seen = JobEdit(weight=weight), job.version - behind
        if job.state.is_terminal or behind:
            with pytest.raises(Conflict if job.state.is_terminal else StaleVersion):
                self.store.edit_job(job.id, edit, expected_version=seen, now_s=self.now_s)
            return
        if job.spec.weight != weight:
            self.jobs[job.id] = replace(job, spec=replace(job.spec, weight=weight), version=job.version + 1)
            self.histories[job.id].append("job.edited")
        assert self.store.edit_job(job.id, edit, expected_version=seen, now_s=self.now_s) == self.jobs[job.id]

    @rule(name=TIERS, weight=st.floats(0.1, 10), expected=st.sampled_from([None, 1, 2, 3]))
    def put_tier(self, name: str, weight: float, expected: int | None) -> None:
        tier = Tier(name=name, weight=weight)
        current = self.tiers[name].version if name in self.tiers else None
        if current != expected:
            with pytest.raises(StaleVersion):
                self.store.put_tier(tier, expected_version=expected, by="op", now_s=self.now_s)
            return
        self.tiers[name] = self.store.put_tier(tier, expected_version=expected, by="op", now_s=self.now_s)
        assert self.tiers[name] == replace(tier, version=(current or 0) + 1)

    # --- the schedulers -----------------------------------------------------------------------------------------

    @rule(who=SCHEDULERS)
    def look(self, who: int) -> None:
        self.views[who] = self.store.snapshot()

    @rule(
        who=SCHEDULERS,
        state=st.sampled_from(JobState),
        generation=st.integers(0, 3),
        steps=st.integers(0, 110),
        picks=st.lists(st.integers(0, 99), unique=True, max_size=3),
        plans=st.sampled_from([None, 0, 1, 2]),
    )
    def commit(
        self, who: int, state: JobState, generation: int, steps: int, picks: list[int], plans: int | None
    ) -> None:
        """`plans`: how far the planned round is ahead of the newest; only 1 may be stored."""
        view = self.views[who]
        seen = list(view.jobs.values())
        picked = {seen[pick % len(seen)].id for pick in picks} if seen else set()
        jobs = tuple(
            replace(view.jobs[job_id], state=state, generation=generation, steps_done=steps)
            for job_id in sorted(picked)
        )
        newest = self.rounds[-1] if self.rounds else 0
        planned = None if plans is None else round_record(newest + plans)
        changes = Changes(jobs=jobs, events=tuple(self._event(job.id) for job in jobs), round=planned)
        error = self._error_of(view.version, jobs, plans)
        if error is not None:
            with pytest.raises(error):
                self.store.commit(view.version, changes)
            return
        self.version = self.store.commit(view.version, changes)
        assert self.version == view.version + 1
        for job in jobs:
            stored = self.jobs[job.id]
            kept: dict[str, Any] = {
                "spec": stored.spec,
                "cancel_requested": stored.cancel_requested,
                "pause_requested": stored.pause_requested,
                "version": stored.version + 1,
            }
            self.jobs[job.id] = replace(job, **kept)
            self.histories[job.id].append("job.changed")
        self.rounds += [newest + 1] if planned else []

    def _event(self, job_id: JobId) -> JobEvent:
        return JobEvent(job_id=job_id, at_s=self.now_s, kind="job.changed")

    def _error_of(self, version: int, jobs: tuple[Job, ...], plans: int | None) -> type[GavelError] | None:
        if version != self.version:
            return StaleVersion
        for job in jobs:
            stored = self.jobs[job.id]
            is_reborn = stored.state.is_terminal and job.state is not stored.state
            if is_reborn or job.generation < stored.generation or not stored.steps_done <= job.steps_done <= 100:
                return InvariantViolated
        return StaleVersion if plans not in (None, 1) else None

    # --- the world ----------------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.0, 0.001, 10.0]))
    def wait(self, seconds: float) -> None:
        self.now_s += seconds

    @invariant()
    def agrees(self) -> None:
        snapshot = self.store.snapshot()
        assert dict(snapshot.jobs) == {name: job for name, job in self.jobs.items() if not job.state.is_terminal}
        assert list(snapshot.jobs) == sorted(snapshot.jobs)
        assert (snapshot.version, dict(snapshot.tiers)) == (self.version, self.tiers)
        assert [record.plan.round_index for record in snapshot.round_records] == self.rounds[-2:]
        assert [self.store.job(name) for name in self.jobs] == list(self.jobs.values())

    @invariant()
    def tells_the_whole_story(self) -> None:
        for job_id, history in self.histories.items():
            assert [event.kind for event in self.store.events(job_id)] == history


class ApiMachine(StoreMachine):
    """Adds the operations that only the API's port has, and a store that is closed and opened again."""

    store: WholeStore

    def __init__(self, open_store: Callable[[], WholeStore]) -> None:
        super().__init__(open_store())
        self.open_store = open_store

    def teardown(self) -> None:
        self.store.close()

    @rule(user=USERS, key=KEYS, body=BODIES, count=st.integers(1, 3), is_array=st.booleans())
    def submit_many(self, user: str, key: str | None, body: str, count: int, is_array: bool) -> None:
        specs = [a_spec(user=user, tier="default", name=f"n{index}") for index in range(count)]
        wanted: dict[str, Any] = {"key": key, "body_hash": body, "now_s": self.now_s, "is_array": is_array}
        earlier = self.keys.get((user, key)) if key else None
        if earlier and earlier[0] != body:
            with pytest.raises(KeyReused):
                self.store.submit_many(specs, **wanted)
            return
        answers = self.store.submit_many(specs, **wanted)
        assert {each.created for each in answers} == {earlier is None}
        if earlier:
            assert answers[0].job == self.jobs[earlier[1]]
            return
        for each in answers:
            assert each.job.id not in self.jobs
            assert each.job.spec.array_id == (answers[0].job.id if is_array else None)
            self.jobs[each.job.id] = each.job
            self.histories[each.job.id] = ["job.submitted"]
        if key:
            self.keys[user, key] = (body, answers[0].job.id)

    @rule(user=USERS, keep=st.integers(0, 99))
    def cancel_all(self, user: str, keep: int) -> None:
        kept = [list(self.jobs)[keep % len(self.jobs)]] if self.jobs else []
        fit = [job for job in self.jobs.values() if job.spec.user == user and not job.state.is_terminal]
        expected = [job for job in fit if job.id not in kept]
        for job in expected:
            if not job.cancel_requested:
                self.jobs[job.id] = replace(job, cancel_requested=True, version=job.version + 1)
                self.histories[job.id].append("cancel.requested")
        cancelled = self.store.request_cancel_all(JobFilter(user=user), keep=kept, now_s=self.now_s)
        assert sorted(cancelled) == sorted(job.id for job in expected)

    @rule()
    def restart(self) -> None:
        self.store.close()
        self.store = self.open_store()

    @invariant()
    def lists_and_counts(self) -> None:
        assert self.store.jobs(JobFilter(), limit=200).jobs == tuple(
            self.jobs[name] for name in sorted(self.jobs)[::-1]
        )
        assert sum(self.store.count_jobs().values()) == len(self.jobs)


def test_the_memory_store_agrees_with_a_dictionary() -> None:
    run_state_machine_as_test(lambda: StoreMachine(MemoryStore()), settings=PROFILE)  # type: ignore[arg-type]


def test_the_sql_store_agrees_with_a_dictionary(empty_database: Path, tmp_path: Path) -> None:
    def one_database() -> Callable[[], WholeStore]:
        path = tempfile.mkdtemp(dir=tmp_path) + "/gavel.db"
        shutil.copy(empty_database, path)
        return lambda: SqlStore(f"sqlite:///{path}")

    run_state_machine_as_test(lambda: ApiMachine(one_database()), settings=PROFILE)  # type: ignore[arg-type]
