"""The scheduler over two backends with real processes: the link to one is cut, and what runs there runs on."""

import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gavel.backends.several.backend import SeveralBackend
from gavel.clock import SystemClock
from gavel.config import Settings
from gavel.estimator.reconciled import ReconciledThroughputs
from gavel.mechanism.driver import Driver
from gavel.policies.equal_share import EqualShare
from gavel.policies.inline import InlineRunner
from gavel.store.sql import SqlStore
from gavel.types import Job, JobId, JobState, Tier
from tests.backends.clusters import GRACE_S, eventually
from tests.backends.several.clusters import HOME, OTHER, SeveralHarness
from tests.backends.several.links import Line, LinkedCluster, State
from tests.builders import a_spec

SILENT_S = 3.0
LIMIT_S = 120.0
STEPS = 400
PROGRAM = """
import sys, time
from gavel_runtime import job

def save(folder):
    (folder / "step").write_text(str(done))

def restore(folder):
    global done
    done = int((folder / "step").read_text())

done, shown = 0, False
for step in job.steps(checkpoint=save, restore=restore, total=int(sys.argv[1])):
    if not shown:
        print("begins at", done, flush=True)
        shown = True
    done += 1
    time.sleep(0.02)
"""


class LinkedRegions(SeveralHarness):
    """Two local backends, each behind a link."""

    def __init__(self, folder: Path) -> None:
        self.lines: dict[str, Line] = {}
        super().__init__(folder)

    def open(self, **over: object) -> SeveralBackend:  # type: ignore[override]
        for name in ("checkpoints", "elsewhere"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        self.lines = {name: Line(self.open_region(name)) for name in (HOME, OTHER)}
        return SeveralBackend(
            state_dir=self.folder / "regions",
            logs=self.folder,
            regions={name: ("local", lambda line=line: LinkedCluster(line)) for name, line in self.lines.items()},
            clock=self.clock,
            lease_grace_s=GRACE_S,
            checkpoints={HOME: str(self.folder / "checkpoints"), OTHER: str(self.folder / "elsewhere")},
            answer_limit_s=0.5,
            silent_limit_s=SILENT_S,
        )

    def close(self) -> None:
        for line in self.lines.values():
            line.become(State.FAILS)
            line.cluster.close()
        super().close()


@pytest.fixture
def linked(tmp_path: Path) -> Iterator[LinkedRegions]:
    made = LinkedRegions(tmp_path / "state")
    yield made
    made.close()


class Scheduled:
    """A scheduler over both regions, and jobs that each may be in one of them only."""

    def __init__(self, harness: LinkedRegions) -> None:
        self.harness = harness
        folder = harness.folder
        self.store = SqlStore(f"sqlite:///{folder}/gavel.db")
        self.store.put_tier(Tier(name="gold"), expected_version=None, by="test", now_s=harness.now_s())
        settings = Settings(round_duration_s=12.0, lease_grace_s=GRACE_S, lost_backoff_s=0.0, regions={})
        self.driver = Driver(
            store=self.store,
            backend=harness.backend,
            runner=InlineRunner(),
            estimator=ReconciledThroughputs(),
            fallback=EqualShare(),
            clock=SystemClock(),
            settings=settings,
        )
        (folder.parent / "train.py").write_text(PROGRAM)

    def submit(self, region: str, steps: int = STEPS) -> JobId:
        argv = (sys.executable, str(self.harness.folder.parent / "train.py"), str(steps))
        spec = a_spec(argv=argv, total_steps=steps, regions=(region,), tier="gold")
        return self.store.submit(spec, key=None, body_hash="", now_s=self.harness.now_s()).job.id

    def job(self, job_id: JobId) -> Job:
        return self.store.job(job_id)

    def tick_until(self, holds: Callable[[], bool]) -> None:
        def ticked() -> bool:
            self.driver.tick()
            return holds()

        eventually(ticked, LIMIT_S)

    def runs(self, *job_ids: JobId) -> None:
        """Tick until all these jobs have trained, and run."""
        self.tick_until(lambda: all(self.job(each).steps_reported > 0 for each in job_ids))
        assert all(self.job(each).state is JobState.LEASED for each in job_ids)


@pytest.mark.full
@pytest.mark.parametrize("cut", [State.FAILS, State.HANGS])
def test_a_gang_runs_on_through_a_cut_and_the_other_region_is_planned(linked: LinkedRegions, cut: State) -> None:
    """1 A job in each region. 2 The link to `eu` is cut: its job runs on, a new one in `us` starts. 3 It is back."""
    scheduled = Scheduled(linked)
    far, near = scheduled.submit(HOME), scheduled.submit(OTHER)
    scheduled.runs(far, near)
    generation = scheduled.job(far).generation
    linked.lines[HOME].become(cut)
    scheduled.tick_until(lambda: regions(scheduled) == {OTHER})
    done = scheduled.job(near).steps_reported
    scheduled.tick_until(lambda: scheduled.job(near).steps_reported > done)
    assert scheduled.job(far).state is JobState.LEASED
    assert linked.processes() >= 2
    linked.lines[HOME].become(State.UP)
    scheduled.tick_until(lambda: regions(scheduled) == {HOME, OTHER})
    scheduled.tick_until(lambda: all(scheduled.job(each).state.is_terminal for each in (far, near)))
    ended = [scheduled.job(each) for each in (far, near)]
    assert [(each.state, each.steps_done) for each in ended] == [(JobState.COMPLETED, STEPS)] * 2, ended
    assert ended[0].generation <= generation + 2  # at most once more for each round that it could not be told of


@pytest.mark.full
def test_a_job_of_a_region_that_stays_cut_waits_for_it_and_starts_nowhere_else(linked: LinkedRegions) -> None:
    scheduled = Scheduled(linked)
    far = scheduled.submit(HOME)
    scheduled.runs(far)
    linked.lines[HOME].become(State.FAILS)
    scheduled.tick_until(lambda: scheduled.job(far).state is JobState.QUEUED)
    near = scheduled.submit(OTHER, steps=20)
    scheduled.tick_until(lambda: scheduled.job(near).state is JobState.COMPLETED)
    waiting = scheduled.job(far)
    assert (waiting.state, waiting.residence.region) == (JobState.QUEUED, HOME)
    assert linked.processes() == 0
    linked.lines[HOME].become(State.UP)
    scheduled.tick_until(lambda: scheduled.job(far).state is JobState.COMPLETED)
    assert scheduled.job(far).steps_done == STEPS


@pytest.mark.full
@pytest.mark.timeout(400)
@pytest.mark.parametrize("keeps", [True, False])
def test_a_job_whose_checkpoint_is_gone_says_so_and_goes_on_from_what_is_left(
    linked: LinkedRegions, keeps: bool
) -> None:
    """1 It saves at the end of each lease, 2 the checkpoint goes while no gang runs, 3 an older one counts, or none."""
    scheduled = Scheduled(linked)
    job_id = scheduled.submit(HOME, steps=600)
    scheduled.tick_until(lambda: scheduled.job(job_id).checkpoint is not None)
    eventually(lambda: linked.processes() == 0)  # its lease ends, as nobody extends it
    folder = linked.folder / "checkpoints" / job_id
    for each in folder.iterdir():
        shutil.rmtree(each)
    if keeps:
        (folder / "1-1").mkdir()
        (folder / "1-1" / "step").write_text("1")
    scheduled.tick_until(lambda: scheduled.job(job_id).state is JobState.COMPLETED)
    lines = [event.message for event in scheduled.store.events(job_id)]
    left = "1-1" if keeps else "no older one"
    why = f"is gone, no region has it (eu and us); {left} is left. The job goes on from step {1 if keeps else 0}."
    assert any(why in each for each in lines), lines
    printed = linked.backend.read_log(job_id)[0].decode().splitlines()
    assert f"begins at {1 if keeps else 0}" in printed[1:]


def regions(scheduled: Scheduled) -> set[str]:
    return {node.region for node in scheduled.store.cluster().nodes}
