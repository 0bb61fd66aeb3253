"""Explanations and predictions as answers; a forecast is computed once for all requests."""

from statistics import median

from api.schemas.explain import BindingView, CalibrationView, ExplanationView, PlanSpeedView
from api.views.memo import Memo
from gavel.composition import effective
from gavel.config import Settings
from gavel.mechanism.explaining.expected_end import Knowledge, Now, job_end, job_start, size_assumed, state_of_now
from gavel.mechanism.explaining.explanation import State, explain
from gavel.mechanism.explaining.fairness import deficit_s, isolated_share
from gavel.mechanism.explaining.forecast import COVERAGE, Forecast, errors_of, forecast
from gavel.mechanism.explaining.headline import headline
from gavel.mechanism.explaining.plans import plan_sentence, plan_speeds
from gavel.policies.tiers.objectives import OBJECTIVES
from gavel.ports import ApiStore, Snapshot, ThroughputEstimator
from gavel.types import Cluster, Expected, Job, Prediction, tier_objectives

KEPT_S = 1.0  # a forecast of the present state: listing a sweep with deadlines asks for many at once


class Forecasts:
    """The forecasts computed last: of the newest round, and of the present jobs."""

    def __init__(self) -> None:
        self.of_round = Memo(lambda record: forecast(record.problem, record.allocation))
        self._of_now = Memo(_of_now, kept_s=KEPT_S)

    def knowledge(self, store: ApiStore, estimator: ThroughputEstimator, settings: Settings, now_s: float) -> Knowledge:
        """Return the data from which job ends are predicted."""
        snapshot, cluster = store.snapshot(), store.cluster()
        return Knowledge(
            state=state_of(snapshot, cluster, now_s),
            estimator=estimator,
            errors=errors_of(store.predictions()),
            of_round=self.of_round.of,
            of_now=lambda: self._of_now.of(snapshot, cluster, estimator, settings, now_s=now_s),
        )


def state_of(snapshot: Snapshot, cluster: Cluster, now_s: float) -> State:
    """Return the state from which a job's reason is explained."""
    return State(
        jobs=snapshot.jobs,
        tiers=snapshot.tiers,
        cluster=cluster,
        record=snapshot.round_records[-1] if snapshot.round_records else None,
        usage=snapshot.usage,
        nodes=snapshot.nodes,
        infeasible=snapshot.infeasible,
        now_s=now_s,
    )


def _of_now(
    snapshot: Snapshot, cluster: Cluster, estimator: ThroughputEstimator, settings: Settings, now_s: float
) -> tuple[Now, Forecast]:
    in_force = effective(settings, snapshot.policy)
    now = state_of_now(
        state_of(snapshot, cluster, now_s),
        estimator,
        policy=in_force.policy,
        round_duration_s=in_force.round_duration_s,
    )
    return now, now.forecast()


def explain_view(job: Job, knowledge: Knowledge, reader: str = "") -> ExplanationView:
    """Return the explanation of a job for a user, with when it starts and ends unless it waits for a person to act."""
    why, start, finish = explain(job, knowledge.state), job_start(job, knowledge), job_end(job, knowledge).finish
    is_own, speeds = job.spec.user == reader, plan_speeds(job, knowledge)
    return ExplanationView(
        job_id=job.id,
        sentence=headline(job, why, start=start, finish=finish, now_s=knowledge.state.now_s, is_own=is_own),
        code=why.code,
        message=why.message,
        binding=BindingView.model_validate(why.binding, from_attributes=True) if why.binding else None,
        target_fraction=dict(why.target_fraction),
        received=dict(why.received),
        deficit_s=deficit_s(job, knowledge.state.now_s),
        isolated_share=isolated_share(job, knowledge.state.now_s),
        lag_rounds=why.lag_rounds,
        position=why.position,
        jobs_ahead=why.jobs_ahead,
        tier_objective=_tier_objective(job, knowledge.state),
        would_unblock=list(why.would_unblock),
        plan=job.spec.plan or None,
        plan_reason=plan_sentence(job, speeds, _runs_on(job, knowledge.state)),
        plan_speeds=[PlanSpeedView.model_validate(each, from_attributes=True) for each in speeds],
        **_instants("est_start", start),
        **_instants("est_finish", finish),
        est_finish_assumes=size_assumed(job) if finish else "",
    )


def _runs_on(job: Job, state: State) -> str | None:
    """The accelerator type of the gang that the job has now, in the newest round."""
    leases = state.record.plan.leases if state.record and job.spec.plans else ()
    return next((each.accelerator_type for each in leases if each.job_id == job.id), None)


def _tier_objective(job: Job, state: State) -> str:
    """What the job's tier shares by, and when to choose that, as the policy in force has it."""
    tier = state.tiers.get(job.spec.tier)
    if tier is None or state.record is None:
        return ""
    policy = state.record.allocation.policy
    (own,) = tier_objectives.in_force([tier], tier_objectives.chosen_by(policy))
    sentence = tier_objectives.sentence(tier, policy)
    return f"{sentence} {OBJECTIVES[own.objective].choose_when}" if sentence else ""


def _instants(name: str, expected: Expected | None) -> dict[str, float | None]:
    at_s, low_s, high_s = (None,) * 3 if expected is None else (expected.at_s, expected.low_s, expected.high_s)
    return {f"{name}_at_s": at_s, f"{name}_low_at_s": low_s, f"{name}_high_at_s": high_s}


def calibration_view(past: tuple[Prediction, ...]) -> CalibrationView:
    """Return how predictions of completed jobs compare with what happened."""
    ends = [(each, each.finished_at_s) for each in past if each.finished_at_s is not None]
    starts = [each.start.holds(each.started_at_s) for each in past if each.start and each.started_at_s is not None]
    errors_s = [abs(at_s - each.finish.at_s) for each, at_s in ends]
    spans_s = [max(1e-9, at_s - each.made_at_s) for each, at_s in ends]
    return CalibrationView(
        predictions=len(ends),
        target=COVERAGE,
        finishes_inside=_share([each.finish.holds(at_s) for each, at_s in ends]),
        starts_inside=_share(starts),
        median_error_s=median(errors_s) if ends else None,
        median_relative_error=median(e / s for e, s in zip(errors_s, spans_s, strict=True)) if ends else None,
        is_learned=errors_of(past) is not None,
    )


def _share(holds: list[bool]) -> float | None:
    return sum(holds) / len(holds) if holds else None
