"""Decisions are pure functions of their questions, and a run under the autopilot is made of them."""

import pickle
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gavel.autopilot import goals
from gavel.autopilot.decision import Question, decide, verify
from gavel.autopilot.digest import digest
from gavel.autopilot.features import COUNT
from gavel.autopilot.learning import Epoch, Experience
from gavel.autopilot.pilot import Flight, Pilot
from gavel.autopilot.safety import COOL_DOWN_EPOCHS
from gavel.autopilot.switch_rule import SwitchRule
from gavel.simulator.asking import ask
from gavel.simulator.lean import simulate
from gavel.simulator.outcome import Scenario
from tests.autopilot.test_rollout import CLUSTER, RUNNER, a_history, a_state
from tests.simulator.test_lean import a_scenario, a_trace_job
from workloads.traces.job import TraceJob

CANDIDATES = ("fifo", "shortest_job_first")
MIXED = [a_trace_job(i, "steep" if i % 2 else "flat", 400 if i % 4 == 0 else 12, at_s=9.0 * i) for i in range(24)]


def a_question(**over: Any) -> Question:
    fields: dict[str, Any] = {
        "number": 3,
        "seed": 7,
        "goal": goals.read("mean_slowdown"),
        "candidates": CANDIDATES,
        "incumbent": "fifo",
        "state": a_state(MIXED, after_s=100.0),
        "scenario": a_scenario(CLUSTER, "fifo"),
        "history": tuple(a_history()),
        "epoch_s": 100.0,
        "experience": Experience(),
        "stages": (2, 3),
    }
    return Question(**fields | over)


def test_the_better_composition_is_chosen_with_its_scores_and_a_reason() -> None:
    decision = decide(a_question(), RUNNER)
    assert decision.chosen == "shortest_job_first"
    fifo, short = decision.scores
    assert (fifo.gain, fifo.error) == (0.0, 0.0) and short.gain > 0.02 and short.cost < fifo.cost
    assert decision.reason.startswith(f"it gains {100 * short.gain:.1f} % +- ") and "over fifo" in decision.reason


def test_a_decision_is_made_again_exactly_from_its_question() -> None:
    question = a_question()
    decision = decide(question, RUNNER)
    copy: Question = pickle.loads(pickle.dumps(question))
    assert verify(decision, copy, RUNNER) == ()
    assert decide(copy, RUNNER) == decision


def test_another_question_is_noticed_and_so_is_a_forged_record() -> None:
    question = a_question()
    decision = decide(question, RUNNER)
    assert "inputs_digest" in verify(decision, replace(question, epoch_s=101.0), RUNNER)
    assert verify(replace(decision, chosen="fifo"), question, RUNNER) == ("chosen",)


def test_a_question_has_the_same_digest_in_another_process() -> None:
    question = a_question()
    assert ask(digest, question, time_limit_s=60.0, memory_limit_bytes=4 << 30) == digest(question)


def test_unlike_values_have_unlike_digests() -> None:
    values: list[Any] = [
        1,
        1.0,
        "1",
        (1,),
        ((1,),),
        {"1": 1},
        np.array([1]),
        np.array([1.0]),
        None,
        True,
        ("a", "b"),
        "ab",
    ]
    assert len({digest(value) for value in values}) == len(values)


def test_a_gain_that_is_not_clear_changes_nothing() -> None:
    decision = decide(a_question(rule=SwitchRule(margin=0.9)), RUNNER)
    assert decision.chosen == "fifo" and decision.reason.endswith("which is not clear")


def test_there_is_no_switch_too_soon_after_another_one() -> None:
    question = a_question()
    rule, at_s = SwitchRule(dwell_s=50.0), (question.state.at_s - 10.0,)
    decision = decide(replace(question, rule=rule, switched_at_s=at_s), RUNNER)
    assert decision.chosen == "fifo" and "a switch stays 50 s" in decision.reason


def test_a_composition_that_breaks_a_limit_is_not_chosen_and_one_that_does_is_left() -> None:
    """No job may get less than a given part of an equal share: shortest first would win, but one of both breaks it."""
    kept = decide(a_question(goal=goals.read("mean_slowdown,longest_wait_s<=1")), RUNNER)
    assert kept.chosen == "fifo" and kept.reason.endswith("or breaks a limit")
    waits = [decide(a_question(goal=goals.read(f"makespan,longest_wait_s<={limit}")), RUNNER) for limit in (60, 10_000)]
    assert not waits[0].scores[0].keeps_limits and waits[1].scores[0].keeps_limits


def test_while_it_is_fallen_back_the_safe_composition_is_chosen() -> None:
    decision = decide(a_question(incumbent="shortest_job_first", experience=Experience(cool_down=1)), RUNNER)
    assert decision.chosen == "fifo" and "safe composition is in force" in decision.reason


# --- experience -------------------------------------------------------------------------------------------------


def an_epoch(real: float, *, in_force: str = "b", safe: float = 10.0, **over: Any) -> Epoch:
    fields: dict[str, Any] = {
        "in_force": in_force,
        "real": real,
        "predicted": {"a": 10.0, "b": 10.0},
        "replayed": {"a": safe, "b": real},
        "whole": {"a": safe, "b": real},
        "features": np.ones(COUNT),
        "ln_rate": 1.0,
    }
    return Epoch(**fields | over)


def test_three_bad_epochs_fall_back_to_the_safe_composition_for_a_while() -> None:
    experience, fallen = Experience(), []
    for real in (12.0, 12.0, 12.0, *[10.0] * (COOL_DOWN_EPOCHS + 1)):
        experience = experience.after(an_epoch(real), safe="a")
        fallen.append(experience.is_fallen_back)
    assert fallen == [False, False, True, True, True, False, False]


def test_what_a_composition_really_costs_corrects_what_is_predicted_of_it() -> None:
    experience = Experience()
    for _ in range(20):
        experience = experience.after(an_epoch(14.0, safe=10.0), safe="a")
    half = np.sqrt(1.4)  # what both have in common changes no choice
    assert experience.correction("b", np.ones(COUNT)) == pytest.approx(half, rel=0.05)
    assert experience.correction("a", np.ones(COUNT)) == pytest.approx(1 / half, rel=0.05)
    assert experience.preference("a", "b") > 1.0


def test_a_drift_makes_all_compositions_alike_again() -> None:
    experience = Experience()
    for _ in range(10):
        experience = experience.after(an_epoch(14.0), safe="a")
    for _ in range(5):
        experience = experience.after(an_epoch(14.0, ln_rate=4.0), safe="a")
        if experience.is_drift:
            break
    assert experience.is_drift and experience.preference("a", "b") == 0.0
    assert experience.correction("b", np.ones(COUNT)) < np.sqrt(1.4)


# --- a run ------------------------------------------------------------------------------------------------------


def a_flight(**over: Any) -> Flight:
    fields: dict[str, Any] = {
        "goal": goals.read("mean_slowdown"),
        "candidates": CANDIDATES,
        "epoch_s": 90.0,
        "stages": (2,),
    }
    return Flight(**fields | over)


def flown(jobs: list[TraceJob], flight: Flight, scenario: Scenario | None = None) -> Pilot:
    pilot = Pilot(jobs, scenario or a_scenario(CLUSTER, "fifo"), RUNNER, flight, time.process_time)
    for _ in pilot.rounds():
        pass
    return pilot


def test_a_run_with_one_composition_is_the_simulation_of_it() -> None:
    pilot = flown(MIXED, a_flight(candidates=("shortest_job_first",)))
    plain = simulate(MIXED, a_scenario(CLUSTER, "shortest_job_first"), runner=RUNNER)
    assert list(pilot.result().rows) == list(plain.rows)


@pytest.mark.full
def test_a_run_that_starts_with_a_poor_composition_leaves_it_and_each_decision_can_be_made_again() -> None:
    pilot = flown(MIXED, a_flight())
    assert pilot.in_force == "shortest_job_first"
    assert [verify(each, asked, RUNNER) for each, asked in zip(pilot.decisions, pilot.questions, strict=True)] == [
        ()
    ] * len(pilot.decisions)
    ours = np.mean([row.jct_s or 0.0 for row in pilot.result().rows])
    fifo = np.mean([row.jct_s or 0.0 for row in simulate(MIXED, a_scenario(CLUSTER, "fifo"), runner=RUNNER).rows])
    assert ours < fifo


@pytest.mark.full
def test_a_decision_knows_nothing_of_the_future() -> None:
    """Jobs that come later, and where running jobs will really end, change no decision before that."""
    until_s = 150.0
    changed = [
        replace(job, ends_at_step=3 * job.stated_steps) if job.submitted_at_s >= until_s else job for job in MIXED
    ]
    one, other = flown(MIXED, a_flight()), flown([*changed, a_trace_job(99, "flat", 50, at_s=500.0)], a_flight())
    before = [each for each in one.decisions if each.at_s <= until_s]
    assert len(before) >= 2
    assert before == other.decisions[: len(before)]


@pytest.mark.parametrize("error", [0.0, 1.5])
def test_the_replay_of_what_was_in_force_costs_what_it_really_cost(error: float) -> None:
    """However wrong statements are: jobs that have not ended are as long as anybody can know, here and there."""
    random = np.random.default_rng(3)
    stated = [max(1, round(job.total_steps * float(np.exp(error * random.normal())))) for job in MIXED]
    jobs = [
        replace(job, spec=replace(job.spec, total_steps=steps), ends_at_step=job.total_steps)
        for job, steps in zip(MIXED, stated, strict=True)
    ]
    pilot = flown(jobs, a_flight(candidates=("shortest_job_first",), stages=(1,)))
    epochs = [each for asked in pilot.questions for each in asked.experience.epochs]
    assert len(epochs) > 3
    assert all(each.real == pytest.approx(each.safe, rel=0.02) for each in epochs)


def test_a_decision_on_many_jobs_tries_fewer_futures_and_none_where_one_composition_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    question = a_question(candidates=("fifo", "least_attained_service"), stages=(2, 3, 5))
    assert max(score.futures for score in decide(question, RUNNER).scores) == 5
    jobs = len(question.state.active.jobs) + 10  # about: with those that come
    monkeypatch.setattr("gavel.autopilot.decision.JOBS_MAX", 2 * 3 * jobs)
    assert {score.futures for score in decide(question, RUNNER).scores} < {3, 4}
    monkeypatch.setattr("gavel.autopilot.decision.JOBS_MAX", 1)
    assert [score.futures for score in decide(question, RUNNER).scores] == [2, 2]
    alone = decide(replace(question, candidates=("fifo",)), RUNNER)
    assert [score.futures for score in alone.scores] == [2]
