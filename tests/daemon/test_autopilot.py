"""The autopilot of a leader: whatever becomes of the process that decides, what is in force stays or is safe."""

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gavel.autopilot.live import Frozen, think
from gavel.autopilot.schedule import circumstances
from gavel.autopilot.stored import unpack
from gavel.clock import ManualClock
from gavel.config import Settings
from gavel.daemon import autopilot
from gavel.daemon.autopilot import FAILED_MOST, Autopilot
from gavel.ports import Changes, ThroughputEstimate, ThroughputSource
from gavel.simulator.live import live_of
from gavel.store.sql import SqlStore
from gavel.types import JobState, Operation
from gavel.types.autopilot import AutopilotDecision, AutopilotMode, AutopilotSetting
from gavel.types.copying import changed
from gavel.types.execution_plans import ExecutionPlan
from tests.builders import a_cluster, a_spec

RATES = {"fast": 10.0, "slow": 5.0}
OWN = '''"""A policy of the operator's own."""
from dataclasses import dataclass
from typing import ClassVar
from gavel.policies.smallest_gang_first import SmallestGangFirst
@dataclass(frozen=True)
class Mine(SmallestGangFirst):
    """Is wrong in one way or another."""
    name: ClassVar[str] = "mine"
    def allocate(self, problem):
        {body}
POLICY = Mine
'''


def killed(_: Frozen) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def hung(_: Frozen) -> None:
    signal.pause()


def too_large(_: Frozen) -> None:
    bytearray(1 << 44)


def rubbish(_: Frozen) -> int:
    return 3


def raises(_: Frozen) -> None:
    raise RuntimeError("the simulator is dead")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(state_dir=tmp_path, policy="max_min_fairness", round_duration_s=10.0)


@pytest.fixture
def clock() -> ManualClock:
    made = ManualClock()
    made.advance(1_000_000.0)
    return made


@pytest.fixture
def store(tmp_path: Path, clock: ManualClock) -> Iterator[SqlStore]:
    """A service with four jobs on a cluster of two types, whose autopilot is in mode auto."""
    made = SqlStore(f"sqlite:///{tmp_path / 'gavel.db'}")
    for _ in range(4):
        spec = a_spec(tier="default", throughput_steps_per_s=RATES)
        made.submit(spec, key=None, body_hash="", now_s=clock.now_s())
    put(made, AutopilotSetting(mode=AutopilotMode.AUTO, candidates=("fifo", "max_min_fairness"), epoch_s=60.0))
    yield made
    made.close()


def put(store: SqlStore, setting: AutopilotSetting) -> None:
    changes = Changes(autopilot=setting, cluster=a_cluster(fast=1, slow=1))
    store.commit(store.snapshot().version, changes)


def newest(store: SqlStore) -> AutopilotDecision:
    return store.autopilot.decisions(limit=1)[0]


def switches(store: SqlStore) -> list[Operation]:
    return [each for each in store.snapshot().commands if each.kind == "autopilot.switch"]


@pytest.mark.small("killed-", "hung-")
@pytest.mark.parametrize(
    ("process", "why"),
    [
        (killed, "SIGKILL"),
        (hung, "took longer than"),
        (too_large, "more memory"),
        (rubbish, "unpack"),
        (raises, "the simulator is dead"),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_a_process_that_ends_otherwise_than_with_an_answer_is_a_decision_that_failed(
    store: SqlStore, settings: Settings, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, process: object, why: str
) -> None:
    monkeypatch.setattr(autopilot, "timed", process)
    if process is hung:
        monkeypatch.setattr(autopilot, "TIME_LIMIT_S", (3.0, 3.0))
    Autopilot(store, settings, clock).look()
    decision = newest(store)
    assert why in decision.failure and decision.chosen == decision.incumbent == "max_min_fairness"
    assert not decision.is_followed and not switches(store), "what is in force stays"


@pytest.mark.full
def test_after_failures_in_a_row_the_safe_composition_is_put_in_force(
    store: SqlStore, settings: Settings, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(autopilot, "timed", raises)
    for count in range(1, FAILED_MOST + 1):
        Autopilot(store, settings, clock).look()  # a new leader each time: what counts is what is stored
        assert len(switches(store)) == (count >= FAILED_MOST)
        clock.advance(61.0)
    (command,) = switches(store)
    assert command.body["policy"] == newest(store).chosen == "fifo" and command.by == "autopilot"
    assert "in a row" in newest(store).reason


@pytest.mark.full
def test_a_decision_is_made_once_and_then_after_an_epoch(
    store: SqlStore, settings: Settings, clock: ManualClock
) -> None:
    pilot = Autopilot(store, settings, clock)
    pilot.look()
    pilot.look()
    assert [each.failure for each in store.autopilot.decisions()] == [""]
    assert "needs 20" in newest(store).reason or newest(store).chosen == newest(store).incumbent
    assert not newest(store).is_followed, "too few jobs have ended"
    clock.advance(61.0)
    pilot.look()
    assert newest(store).number == 1
    assert dict(newest(store).replayed).keys() == {"fifo", "max_min_fairness"} and newest(store).actual is not None


@pytest.mark.full
@pytest.mark.parametrize("new", [{"throughput_steps_per_s": RATES}, {"sizes": (1, 2), "global_batch": 64}], ids=str)
def test_an_epoch_in_which_jobs_of_new_kinds_came_is_replayed(
    store: SqlStore, settings: Settings, clock: ManualClock, new: dict[str, Any]
) -> None:
    pilot = Autopilot(store, settings, clock)
    pilot.look()
    spec = a_spec(kind="ann/new", tier="default", **new)
    store.submit(spec, key=None, body_hash="", now_s=clock.now_s() + 30.0)
    clock.advance(61.0)
    pilot.look()
    assert (newest(store).number, newest(store).failure) == (1, "")
    assert newest(store).actual is not None


@pytest.mark.full
def test_many_cheap_decisions_take_no_more_of_an_hour_than_a_few_dear_ones(
    store: SqlStore, settings: Settings, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred of 4 s are more than a tenth of an hour: the next one waits, though each of the last was cheap."""
    monkeypatch.setattr(autopilot, "timed", raises)
    now = circumstances(store.snapshot(), store.cluster())
    for number in range(100):
        made = AutopilotDecision(
            number=number, at_s=clock.now_s(), mode=AutopilotMode.AUTO, goal="mean_jct", seed=0, incumbent="fifo",
            chosen="fifo", reason="", cpu_s=4.0, setting=now.setting, workers=now.workers, jobs=now.jobs,
        )  # fmt: skip
        store.autopilot.add(made, b"", b"", keep_questions=1)
        clock.advance(5.0)
    clock.advance(100.0)
    Autopilot(store, settings, clock).look()
    assert newest(store).number == 99
    clock.advance(3600.0)
    Autopilot(store, settings, clock).look()
    assert newest(store).number == 100


@pytest.mark.parametrize("mode", [AutopilotMode.OFF, AutopilotMode.PIN])
def test_an_autopilot_that_may_choose_nothing_starts_no_process(
    store: SqlStore, settings: Settings, clock: ManualClock, mode: AutopilotMode
) -> None:
    put(store, AutopilotSetting(mode=mode, pinned="fifo"))
    Autopilot(store, settings, clock).look()
    assert not store.autopilot.decisions()


@pytest.mark.parametrize("factor", [0.1, 10.0])
def test_estimates_that_are_wrong_by_ten_are_an_answer_too(
    store: SqlStore, settings: Settings, clock: ManualClock, factor: float
) -> None:
    spec = a_spec(tier="default", throughput_steps_per_s={name: factor * rate for name, rate in RATES.items()})
    store.submit(spec, key=None, body_hash="", now_s=clock.now_s())
    decision = think(frozen(store, settings, clock)).decision
    assert decision.scores and not decision.failure


@pytest.mark.parametrize("body", ["raise ZeroDivisionError('mine')", "return 3"])
def test_a_policy_of_the_operator_that_gives_no_allocation_leaves_the_portfolio_with_a_note(
    store: SqlStore, settings: Settings, clock: ManualClock, tmp_path: Path, body: str
) -> None:
    folder = tmp_path / "policies"
    folder.mkdir()
    (folder / "mine.py").write_text(OWN.format(body=body))
    settings = settings.model_copy(update={"policy_dir": folder})
    put(store, AutopilotSetting(candidates=("max_min_fairness", "mine", "fifo")))
    decision = think(frozen(store, settings, clock)).decision
    assert [each.composition for each in decision.scores] == ["max_min_fairness", "fifo"]
    assert "left out: mine" in decision.reason


@pytest.mark.full
def test_a_policy_of_the_operator_that_hangs_is_left_out_of_the_next_decision(
    store: SqlStore, settings: Settings, clock: ManualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "policies"
    folder.mkdir()
    (folder / "mine.py").write_text(OWN.format(body="import signal; signal.pause()"))
    settings = settings.model_copy(update={"policy_dir": folder})
    put(store, AutopilotSetting(mode=AutopilotMode.AUTO, candidates=("fifo", "mine", "max_min_fairness"), epoch_s=60.0))
    monkeypatch.setattr(autopilot, "TIME_LIMIT_S", (20.0, 20.0))
    pilot = Autopilot(store, settings, clock)
    pilot.look()
    assert "took longer than" in newest(store).failure
    monkeypatch.undo()
    clock.advance(61.0)
    pilot.look()
    assert [each.composition for each in newest(store).scores] == ["fifo", "max_min_fairness"]
    assert "left out: mine (a policy of your own" in newest(store).reason


@pytest.mark.full
def test_what_ended_is_in_the_history_and_teaches_lengths(
    store: SqlStore, settings: Settings, clock: ManualClock
) -> None:
    first = next(iter(store.snapshot().jobs.values()))
    clock.advance(30.0)
    done = changed(first, state=JobState.COMPLETED, steps_done=100, finished_at_s=clock.now_s())
    store.commit(store.snapshot().version, Changes(jobs=(done,)))
    Autopilot(store, settings, clock).look()
    assert newest(store).jobs == 3 and not newest(store).failure
    history = {each.job.spec.name: each.made_steps for each in unpack(store.autopilot.question(0)).history}
    assert len(history) == 4 and {name for name, steps in history.items() if steps} == {first.id}


def frozen(store: SqlStore, settings: Settings, clock: ManualClock) -> Frozen:
    snapshot = store.snapshot()
    live = live_of(store, snapshot, settings, clock.now_s())
    return Frozen(live=live, ended=(), setting=snapshot.autopilot, number=0)


def test_stopping_ends_the_process_at_once(
    store: SqlStore, settings: Settings, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(autopilot, "timed", hung)
    pilot = Autopilot(store, settings, clock)
    pilot.stop()
    began_s = time.monotonic()
    pilot.look()
    assert time.monotonic() - began_s < 60 and not store.autopilot.decisions()


def test_elastic_jobs_are_simulated_in_all_their_sizes_and_plans(
    store: SqlStore, settings: Settings, clock: ManualClock
) -> None:
    """A job with sizes, one with plans as well, and one that has ended: all are there with their speeds."""
    sizes = {"sizes": (1, 2), "global_batch": 64, "scale_factor": 1, "tier": "default"}
    plans = tuple(ExecutionPlan(name=f"way={way}", kind=f"ann/x[way={way}]", sizes=(1, 2)) for way in (1, 2))
    store.submit(a_spec(kind="ann/y", **sizes), key=None, body_hash="", now_s=clock.now_s())
    under = {"plans": plans, "plan": "way=1", "kind": "ann/x[way=1]"}
    store.submit(a_spec(**sizes | under), key=None, body_hash="", now_s=clock.now_s())
    asked = frozen(store, settings, clock)
    kinds = ("ann/y", *(plan.kind for plan in plans))
    measured = tuple(measured_speed(kind, size, 3.0 * size) for kind in kinds for size in (1, 2))
    (elastic,) = (job for job in asked.live.jobs if job.spec.kind == "ann/y")
    done = changed(elastic, id="ended", state=JobState.COMPLETED, steps_done=100, finished_at_s=clock.now_s())
    live = replace(asked.live, throughputs=measured, cluster=a_cluster(fast=2, slow=1))
    asked = replace(asked, live=live, ended=(done,))
    thought = think(asked)
    question = unpack(thought.question)
    rates = question.scenario.throughput
    assert question.scenario.is_elastic and not thought.decision.failure
    assert [rates[kind, 2, "fast"] for kind in kinds] == [pytest.approx(6.0)] * 3
    choosing = [job for job in question.state.active.jobs if job.spec.has_choice]
    assert [len(job.spec.plans) for job in choosing] == [0, 2]
    assert [job.fastest_steps_per_s for job in choosing] == [pytest.approx(6.0)] * 2
    (ended,) = (each for each in question.history if each.made_steps)
    assert (ended.job.spec.sizes, ended.s_per_step) == ((1, 2), pytest.approx(1 / 6.0))


def measured_speed(kind: str, size: int, steps_per_s: float) -> ThroughputEstimate:
    return ThroughputEstimate(
        kind=kind,
        scale_factor=size,
        accelerator_type="fast",
        steps_per_s=steps_per_s,
        relative_error=0.01,
        source=ThroughputSource.MEASURED,
        measurements=9,
    )
