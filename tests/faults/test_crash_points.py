"""A process dies at every act of a scenario, one run for each: everything holds each time, whatever the database."""

import os
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path

import psutil
import pytest

from gavel.backends.ray.gang import RayGang
from gavel.faults.crash_points import ActKind, CrashCounter, CrashPoint, CrashWay, crash_points
from gavel.faults.scenario import Scenario
from gavel.faults.search import silenced
from gavel.faults.stores import InDatabase, InMemory, OnFile, OpenStores
from gavel.faults.world import run
from tests.faults.scenes import ACTS, SCENES
from tests.postgresql import emptied, migrated_postgresql, postgresql

__all__ = ["migrated_postgresql", "postgresql"]

IS_FULL = os.environ.get("GAVEL_TEST_PROFILE") == "full"
DATABASES = ("memory", "sqlite", "postgresql")
STEPS = {"memory": 4, "sqlite": 12, "postgresql": 30}  # the small profile strikes one point in so many
CASES = [(name, kind) for name in SCENES for kind in DATABASES] if IS_FULL else [("a job", kind) for kind in DATABASES]


def on_server(url: str, seed: int, _: Path) -> InDatabase:
    """The stores of a run in the one database of the test, as empty as a fresh one."""
    return InDatabase(seed, emptied(url))


@pytest.fixture
def open_stores(request: pytest.FixtureRequest, kind: str) -> OpenStores:
    """Opens a database of the kind for each run."""
    if kind == "postgresql":
        return partial(on_server, request.getfixturevalue("migrated_postgresql"))
    return OnFile if kind == "sqlite" else InMemory


@pytest.mark.timeout(1800 if IS_FULL else 400)
@pytest.mark.parametrize(("name", "kind"), CASES)
def test_a_crash_at_any_point_breaks_nothing(name: str, kind: str, open_stores: OpenStores) -> None:
    """1. Count. 2. Strike each point once; the crash strikes exactly there, and everything holds and ends."""
    scenario = SCENES[name]
    with silenced():
        whole = counted(scenario, open_stores)
        for point in chosen(whole, 1 if IS_FULL else STEPS[kind]):
            counter = CrashCounter(point)
            outcome = run(scenario, crashes=counter, open_stores=open_stores)
            assert (outcome.violation, point) == (None, point)
            assert counter.struck >= 1, point


def counted(scenario: Scenario, open_stores: OpenStores) -> CrashCounter:
    """The acts of a run without a crash."""
    whole = CrashCounter()
    assert run(scenario, crashes=whole, open_stores=open_stores).violation is None
    return whole


def chosen(whole: CrashCounter, step: int) -> Iterator[CrashPoint]:
    return islice(crash_points(whole), 0, None, step)


def test_every_act_of_each_scenario_is_in_the_matrix() -> None:
    """The numbers of acts are as written down: a commit that is new fails here, and is struck by the test above."""
    assert len(SCENES) == 20 and SCENES.keys() == ACTS.keys()
    with silenced():
        wholes = {name: counted(scenario, InMemory) for name, scenario in SCENES.items()}
    assert {name: {str(act): whole.began[act] for act in ActKind} for name, whole in wholes.items()} == ACTS
    for whole in wholes.values():
        began, done = sum(whole.began.values()), sum(whole.done.values())
        assert len(list(crash_points(whole))) == began + 2 * done


@pytest.mark.parametrize("kind", DATABASES)
def test_the_acts_are_the_same_on_every_database(open_stores: OpenStores) -> None:
    with silenced():
        whole, again = counted(SCENES["a job"], open_stores), counted(SCENES["a job"], InMemory)
    assert (whole.began, whole.done) == (again.began, again.done)


@pytest.mark.parametrize("shares_folder", [True, False])
@pytest.mark.parametrize("name", ["a job", "a gang over nodes"])
def test_a_launch_that_was_written_down_and_not_sent_is_made_again_at_once(
    monkeypatch: pytest.MonkeyPatch, name: str, shares_folder: bool
) -> None:
    """1. The service dies before it sends the first launch. 2. The next one sends it, or I10 would not hold."""
    scenario = replace(SCENES[name], shares_folder=shares_folder)
    point = CrashPoint(act=ActKind.EXCHANGE, way=CrashWay.BEFORE, number=2)
    with silenced():
        assert run(scenario, crashes=CrashCounter(point)).violation is None
        monkeypatch.setattr(RayGang, "never_arrived", lambda *_: False)
        late = run(scenario, crashes=CrashCounter(point)).violation
    assert late is not None and late.name == "I10_prompt_hand_over"


def test_a_run_leaves_no_descriptor_behind() -> None:
    """Also one whose process died in its middle."""
    with silenced():
        point = CrashPoint(act=ActKind.COMMIT, way=CrashWay.AFTER, number=2)
        run(SCENES["a job"], crashes=CrashCounter(point), open_stores=OnFile)
        before = psutil.Process().num_fds()
        run(SCENES["a job"], crashes=CrashCounter(point), open_stores=OnFile)
    assert psutil.Process().num_fds() == before
