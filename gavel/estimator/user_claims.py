"""User claims compared with measurements: the claims of a user whose earlier ones proved wrong weigh less."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from gavel.estimator.tables import is_interference
from gavel.ports import ThroughputEstimate
from gavel.types import AcceleratorType, FloatArray

TRUSTED_ERROR = 0.3  # of log(steps/s), of a user without measured claims
TRUSTED_STATEMENTS = 4.0  # what that trust weighs against proven errors
ERROR_MAX = 3.0
COMMON_SHARE = 0.8  # of the variance that a user's errors on several types share: another batch size, another unit
LARGEST_STEPS_PER_S = 1e9  # nothing trains faster
OFF_FACTOR = 1.5  # users whose claims are typically off by this factor are marked


@dataclass(frozen=True, slots=True, kw_only=True)
class UserClaim:
    """A rate that a user claimed, and the measured one, in steps per second."""

    user: str
    kind: str
    scale_factor: int
    accelerator_type: AcceleratorType
    stated_steps_per_s: float
    measured_steps_per_s: float

    @property
    def error(self) -> float:
        """log(stated / measured)."""
        return math.log(self.stated_steps_per_s / self.measured_steps_per_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reputation:
    """How far off a user's claims were, as a factor >= 1; `relative_error` is the expected error of the next claim."""

    user: str
    user_claims: int
    typical_factor: float
    relative_error: float

    @property
    def is_off(self) -> bool:
        """Whether claims of this user are typically off by a factor of `OFF_FACTOR` or more."""
        return self.typical_factor > OFF_FACTOR


def usable(stated: float) -> bool:
    """Return whether a claimed rate is possible: finite, above 0 and at most 1e9 steps per second."""
    return math.isfinite(stated) and 0 < stated <= LARGEST_STEPS_PER_S


def user_claims(table: Iterable[ThroughputEstimate]) -> tuple[UserClaim, ...]:
    """Return every claim in the table whose rate was measured too, in the table's order."""
    return tuple(
        UserClaim(
            user=user,
            kind=row.kind,
            scale_factor=row.scale_factor,
            accelerator_type=row.accelerator_type,
            stated_steps_per_s=stated,
            measured_steps_per_s=row.steps_per_s,
        )
        for row in table
        if row.is_measured and not is_interference(row)
        for user, stated in sorted(row.stated_by.items())
    )


def reputations(made: Iterable[UserClaim]) -> Mapping[str, Reputation]:
    """Return the reputation of each user, sorted by name; only of users with a claim that was measured."""
    errors: dict[str, list[float]] = defaultdict(list)
    for each in made:
        errors[each.user].append(each.error)
    return {user: _reputation(user, of_user) for user, of_user in sorted(errors.items())}


def trust_in(user: str, reputations_of: Mapping[str, Reputation]) -> float:
    """Return the standard deviation of log(claimed / true) expected of this user's next claim."""
    return reputations_of[user].relative_error if user in reputations_of else TRUSTED_ERROR


def covariance(error: float, count: int) -> FloatArray:
    """Return the covariance of the errors of one user's claims on `count` types, (count, count)."""
    return error**2 * (COMMON_SHARE + (1 - COMMON_SHARE) * np.eye(count))


def _reputation(user: str, errors: list[float]) -> Reputation:
    squares = sum(error**2 for error in errors)
    variance = (TRUSTED_STATEMENTS * TRUSTED_ERROR**2 + squares) / (TRUSTED_STATEMENTS + len(errors))
    return Reputation(
        user=user,
        user_claims=len(errors),
        typical_factor=math.exp(min(ERROR_MAX, math.sqrt(squares / len(errors)))),
        relative_error=min(ERROR_MAX, math.sqrt(variance)),
    )
