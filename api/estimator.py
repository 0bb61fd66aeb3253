"""What `GET /v1/estimator` says: every estimate with its interval and sources, and statements held against facts."""

from collections.abc import Callable, Sequence
from functools import cache

from pydantic import Field

from api.schemas import ThroughputList, ThroughputView, View
from api.views import throughput_view
from gavel.estimator.reconciled import ReconciledThroughputs
from gavel.estimator.references import reference_table
from gavel.estimator.statements import Reputation, Statement, statements
from gavel.estimator.tables import is_aside, key_of, side_key_of
from gavel.ports import ThroughputEstimate
from gavel.types import AcceleratorType, JobSpec


class EstimateView(ThroughputView):
    """An estimate with the interval that holds the truth nine times in ten."""

    low_steps_per_s: float
    high_steps_per_s: float
    source: str = Field(description="measured, completed (within 10 %), stated, inferred (roughly) or unknown")
    partner: str | None = Field(description="The job kind on the same worker; null: none.")
    placement: str = Field(description="consolidated or spread")
    refused: int = Field(description="Reports of impossible progress that were not believed.")


class StatementView(View):
    """What a user stated, beside what was measured."""

    user: str
    kind: str
    scale_factor: int
    accelerator_type: str
    stated_steps_per_s: float
    measured_steps_per_s: float


class ReputationView(View):
    """How good a user's statements were; the worse, the less the next one counts."""

    user: str
    statements: int
    typical_factor: float = Field(description="By which they were off, 1 or more.")
    is_off: bool


class EstimatorView(ThroughputList):
    """Everything measured, and for the same kinds what is believed of the cluster's other types."""

    items: list[EstimateView]  # type: ignore[assignment]  # more is said of each
    statements: list[StatementView]
    users: list[ReputationView]


def estimator_view(
    table: Sequence[ThroughputEstimate],
    types: Sequence[AcceleratorType],
    *,
    may_see_kind: Callable[[str], bool],
    may_see_user: Callable[[str], bool],
) -> EstimatorView:
    """The store's table with what follows from it for `types`; kinds and users that the caller may not see left out."""
    estimator = ReconciledThroughputs.from_table(table, references=reference_table())
    may_see = cache(may_see_kind)
    shown = [row for row in table if may_see(row.kind) and (row.partner is None or may_see(row.partner))]
    measured = {(row.kind, row.scale_factor) for row in shown if row.partner is None}
    known = {key_of(row) for row in shown if not is_aside(row)}
    guesses = [
        guess
        for kind, size in measured
        for guess in estimator.estimate(_spec(kind, size), types)
        if key_of(guess) not in known
    ]
    rows = sorted([*shown, *guesses], key=side_key_of)
    said = [each for each in statements(shown) if may_see_user(each.user)]
    return EstimatorView(
        types=sorted({row.accelerator_type for row in rows}),
        items=[_estimate_view(row) for row in rows],
        statements=[_statement_view(each) for each in said],
        users=[_reputation_view(each) for each in estimator.reputations().values() if may_see_user(each.user)],
    )


def _spec(kind: str, scale_factor: int) -> JobSpec:
    return JobSpec(kind=kind, user="", tier="", argv=(), total_steps=1, scale_factor=scale_factor)


def _estimate_view(row: ThroughputEstimate) -> EstimateView:
    low, high = row.interval_steps_per_s
    return EstimateView(
        **throughput_view(row).model_dump(),
        low_steps_per_s=low,
        high_steps_per_s=high,
        partner=row.partner,
        placement=row.placement,
        refused=row.refused,
    )


def _statement_view(each: Statement) -> StatementView:
    return StatementView(
        user=each.user,
        kind=each.kind,
        scale_factor=each.scale_factor,
        accelerator_type=each.accelerator_type,
        stated_steps_per_s=each.stated_steps_per_s,
        measured_steps_per_s=each.measured_steps_per_s,
    )


def _reputation_view(each: Reputation) -> ReputationView:
    return ReputationView(
        user=each.user, statements=each.statements, typical_factor=each.typical_factor, is_off=each.is_off
    )
