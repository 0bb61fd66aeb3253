"""The answer of `GET /v1/throughputs`: every estimate with its interval and source, and users' claims."""

from collections.abc import Callable, Sequence
from functools import cache

from api.schemas import ReputationView, ThroughputList, ThroughputView, UserClaimView
from api.views.memo import Memo
from gavel.estimator.reconciled import ReconciledThroughputs
from gavel.estimator.reference_profiles import estimator_of
from gavel.estimator.tables import interference_key_of, is_interference, key_of, own_rows
from gavel.estimator.user_claims import Reputation, UserClaim, user_claims
from gavel.mechanism.cluster.feasibility import Feasibility
from gavel.mechanism.planning.own_rates import own_estimates
from gavel.ports import ApiStore, ThroughputEstimate
from gavel.types import AcceleratorType, Job, JobSpec, plain_type

Estimators = Memo[ReconciledThroughputs]


def stored_estimators() -> Estimators:
    """Return a cache that builds the estimator of the stored table, anew when the table has changed."""
    return Memo(estimator_of)


def throughput_list(
    estimator: ReconciledThroughputs,
    table: Sequence[ThroughputEstimate],
    types: Sequence[AcceleratorType],
    *,
    may_see_kind: Callable[[str], bool],
    may_see_user: Callable[[str], bool],
) -> ThroughputList:
    """Return the stored estimates and those derived for `types`, without kinds and users the caller may not see.

    `estimator`: that of the stored table.
    """
    may_see = cache(may_see_kind)
    shown = [row for row in table if may_see(row.kind) and (row.partner is None or may_see(row.partner))]
    measured = {(row.kind, row.scale_factor) for row in shown if row.partner is None}
    own = own_rows(shown)
    keys = {key_of(row) for row in own}
    guesses = [
        guess
        for kind, size in measured
        for guess in estimator.estimate(_spec(kind, size), types)
        if key_of(guess) not in keys
    ]
    stated = [each for each in user_claims(shown) if may_see_user(each.user)]
    users = [each for each in estimator.reputations().values() if may_see_user(each.user)]
    return _list([*own, *guesses], [row for row in shown if is_interference(row)], stated, users)


def throughputs_of(job: Job, store: ApiStore, estimator: ReconciledThroughputs) -> ThroughputList:
    """Return the estimates of one job's speed on the types that hold its gang, with its user's claims."""
    types = sorted({*map(plain_type, Feasibility(store.cluster()).types_of(job.spec))})
    own = own_estimates(job, estimator, types)
    return _list([*own.values()], (), (), ())


def _list(
    own: Sequence[ThroughputEstimate],
    interference: Sequence[ThroughputEstimate],
    stated: Sequence[UserClaim],
    users: Sequence[Reputation],
) -> ThroughputList:
    return ThroughputList(
        types=sorted({row.accelerator_type for row in (*own, *interference)}),
        items=[_throughput_view(row) for row in sorted(own, key=interference_key_of)],
        interference=[_throughput_view(row) for row in sorted(interference, key=interference_key_of)],
        user_claims=[UserClaimView.model_validate(each, from_attributes=True) for each in stated],
        users=[ReputationView.model_validate(each, from_attributes=True) for each in users],
    )


def _spec(kind: str, scale_factor: int) -> JobSpec:
    return JobSpec(kind=kind, user="", tier="", argv=(), total_steps=1, scale_factor=scale_factor)


def _throughput_view(row: ThroughputEstimate) -> ThroughputView:
    low, high = row.interval_steps_per_s
    return ThroughputView(
        kind=row.kind,
        scale_factor=row.scale_factor,
        accelerator_type=row.accelerator_type,
        steps_per_s=row.steps_per_s,
        low_steps_per_s=low,
        high_steps_per_s=high,
        relative_error=row.relative_error,
        source=row.source,
        is_measured=row.is_measured,
        measurements=row.measurements,
        partner=row.partner,
        placement=row.placement,
        refused=row.refused,
        accelerator_memory_bytes=row.held_bytes,
    )
