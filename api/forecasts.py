"""Explanations and predictions as they travel; the forecast of a round is worked out once."""

from collections.abc import Sequence
from statistics import median

from api.newest import Newest
from api.schemas.explain import BindingView, CalibrationView, ExplainView
from gavel.mechanism.explaining import Why
from gavel.mechanism.forecast import COVERAGE, Forecast, doubt, errors_of, expected_finish, expected_start, forecast
from gavel.ports import Store, ThroughputEstimate
from gavel.types import Expected, Job, JobState, Prediction, RoundRecord

Forecasts = Newest[Forecast]


def round_forecasts() -> Forecasts:
    """Of the newest round that was asked about."""
    return Newest(lambda record: forecast(record.problem, record.allocation))


WITH_FUTURE = ("Running", "Profiling", "BehindFairShare", "WaitingForCapacity", "PendingEvaluation")


def explain_view(job: Job, why: Why, record: RoundRecord | None, forecasts: Forecasts, store: Store) -> ExplainView:
    """The answer about a job; with when it starts and ends, unless somebody has to do something first."""
    start, finish = None, None
    if record is not None and why.code in WITH_FUTURE and job.id in record.problem.job_ids:
        known = forecasts.of(record)
        start = expected_start(known, record, job.id) if job.state is JobState.QUEUED else None
        speed = (each for each in store.throughputs() if _is_of(each, job, record.problem.accelerator_types))
        finish = expected_finish(known, record, job.id, errors_of(store.predictions()), doubt(speed))
    return ExplainView(
        job_id=job.id,
        code=why.code,
        message=why.message,
        binding=BindingView.model_validate(why.binding, from_attributes=True) if why.binding else None,
        owed=dict(why.owed),
        received=dict(why.received),
        owed_rounds=why.owed_rounds,
        position=why.position,
        jobs_ahead=why.jobs_ahead,
        would_unblock=list(why.would_unblock),
        **_instants("est_start", start),
        **_instants("est_finish", finish),
    )


def _is_of(each: ThroughputEstimate, job: Job, types: Sequence[str]) -> bool:
    alone = each.partner is None and each.accelerator_type in types
    return alone and (each.kind, each.scale_factor) == (job.spec.kind, job.spec.scale_factor)


def _instants(name: str, expected: Expected | None) -> dict[str, float | None]:
    at_s, low_s, high_s = (None,) * 3 if expected is None else (expected.at_s, expected.low_s, expected.high_s)
    return {f"{name}_at_s": at_s, f"{name}_low_at_s": low_s, f"{name}_high_at_s": high_s}


def calibration_view(past: tuple[Prediction, ...]) -> CalibrationView:
    """Predictions of jobs that completed, held against what happened."""
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
