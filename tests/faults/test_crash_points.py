"""A process dies at every act of a scenario, one run for each: everything holds each time, whatever the database."""

from dataclasses import replace

import psutil
import pytest

from gavel.backends.nodes.gang import NodesGang
from gavel.faults.crash_points import ActKind, CrashCounter, CrashPoint, CrashWay, crash_points
from gavel.faults.search import silenced
from gavel.faults.stores import InMemory, OnFile, OpenStores
from gavel.faults.world import run
from tests.faults.crash_matrix import IS_FULL, STRUCK, counted, strike
from tests.faults.scenes import ACTS, SCENES


@pytest.mark.timeout(1800 if IS_FULL else 400)
@pytest.mark.parametrize("name", STRUCK)
@pytest.mark.parametrize(("open_stores", "one_in"), [(InMemory, 4), (OnFile, 12)], ids=["memory", "sqlite"])
def test_a_crash_at_any_point_breaks_nothing(name: str, open_stores: OpenStores, one_in: int) -> None:
    strike(SCENES[name], open_stores, one_in=one_in)


def test_every_act_of_each_scenario_is_in_the_matrix() -> None:
    """The numbers of acts are as written down: a commit that is new fails here, and is struck by the test above."""
    assert len(SCENES) == 21 and SCENES.keys() == ACTS.keys()
    with silenced():
        wholes = {name: counted(scenario, InMemory) for name, scenario in SCENES.items()}
    assert {name: {str(act): whole.began[act] for act in ActKind} for name, whole in wholes.items()} == ACTS
    for whole in wholes.values():
        began, done = sum(whole.began.values()), sum(whole.done.values())
        assert len(list(crash_points(whole))) == began + 2 * done


def test_the_acts_are_the_same_in_a_file() -> None:
    with silenced():
        whole, again = counted(SCENES["a job"], OnFile), counted(SCENES["a job"], InMemory)
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
        monkeypatch.setattr(NodesGang, "never_arrived", lambda *_: False)
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
