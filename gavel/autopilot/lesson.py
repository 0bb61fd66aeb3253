"""What an epoch that is over has taught: it is simulated again with every composition and with what really happened."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from gavel.autopilot import node_losses
from gavel.autopilot.composition import read
from gavel.autopilot.course import Course, course_of
from gavel.autopilot.decision import Question, Yardstick
from gavel.autopilot.features import features, ln_rate
from gavel.autopilot.futures import Arrival, Future
from gavel.autopilot.learning import Epoch
from gavel.autopilot.rollout import Situation, rolled_out
from gavel.ports import PolicyRunner
from gavel.simulator.active import Active, ActiveState
from gavel.simulator.outcome import NodeOutage
from gavel.simulator.report import JobResult
from gavel.simulator.world_state import WorldState
from gavel.types.autopilot import CompositionScore


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Past:
    """An epoch that is over: the `question` at its beginning, what was in force, and how costs are measured.

    `history` and `state` are those of its end, by the clock and in the order of jobs that the question has. `rows` are
    the jobs that have ended since then, `outages` the nodes that were away.
    """

    question: Question
    in_force: str
    yardstick: Yardstick
    scores: Sequence[CompositionScore]
    rows: Iterable[JobResult]
    state: WorldState
    history: tuple[Arrival, ...]
    outages: Sequence[NodeOutage] = ()


def lesson(past: Past, runner: PolicyRunner) -> Epoch:
    """Return what the epoch did cost, and what it would have cost with each candidate."""
    question, until_s = past.question, past.state.at_s
    ends = _believed(past.history, past.state.active)
    courses = _replayed(past, ends, runner)
    goal, yardstick, seen = question.goal, past.yardstick, question.state.jobs_seen
    return Epoch(
        in_force=past.in_force,
        real=yardstick.cost(goal, _real(past, ends).until(until_s, seen)),
        predicted={score.composition: score.epoch_cost for score in past.scores},
        replayed={text: yardstick.cost(goal, course.until(until_s, seen)) for text, course in courses.items()},
        whole={text: yardstick.cost(goal, course) for text, course in courses.items()},
        features=features(question.state.active, question.history, len(question.scenario.cluster.workers)),
        ln_rate=ln_rate(past.history),
    )


def _replayed(past: Past, ends: tuple[int, ...], runner: PolicyRunner) -> dict[str, Course]:
    """Return the course of each candidate, where all else is as it was."""
    question = past.question
    outages = node_losses.between(past.outages, question.state.at_s, past.state.at_s)
    future = replace(_as_it_was(question.state, past.history, ends), outages=outages)
    situation = Situation(state=question.state, scenario=question.scenario, horizon_s=past.state.at_s)
    service = question.scenario.settings
    return {text: rolled_out(situation, read(text, service), future, runner) for text in question.candidates}


def _real(past: Past, ends: tuple[int, ...]) -> Course:
    active = past.state.active
    return course_of(
        past.rows,
        active.ending_at([ends[index] for index in active.indices]),
        past.question.scenario,
        from_s=past.question.state.at_s,
        until_s=past.state.at_s,
        spent=past.question.state.active,
    )


def _believed(history: tuple[Arrival, ...], active: ActiveState) -> tuple[int, ...]:
    """Return how many steps each job of the history makes, as anybody can know now, when those of `active` are left.

    What has ended is as long as it was, all else as it states, or longer than it is by now.
    """
    done = dict(zip(active.indices, Active.of(active).steps_done.tolist(), strict=True))
    return tuple(
        each.made_steps or max(each.job.stated_steps, int(done.get(index, 0.0)) + 1)
        for index, each in enumerate(history)
    )


def _as_it_was(state: WorldState, history: tuple[Arrival, ...], ends: tuple[int, ...]) -> Future:
    """Return what happened after `state`, where the jobs of the history end at these steps."""
    later = zip(history[state.jobs_seen :], ends[state.jobs_seen :], strict=True)
    return Future(
        ends_at_step=tuple(ends[index] for index in state.active.indices),
        arrivals=tuple(replace(arrival.job, ends_at_step=end) for arrival, end in later),
    )
