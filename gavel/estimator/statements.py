"""What users state, held against what was measured: a user whose statements prove wrong loses weight."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from gavel.estimator.tables import is_aside
from gavel.ports import ThroughputEstimate
from gavel.types import AcceleratorType, FloatArray

TRUSTED_ERROR = 0.3  # of log(steps/s), of a user nobody has caught yet
TRUSTED_STATEMENTS = 4.0  # what that trust weighs against proven errors
ERROR_MAX = 3.0
COMMON_SHARE = 0.8  # of the variance that a user's errors on several types share: another batch size, another unit
LARGEST_STEPS_PER_S = 1e9  # nothing trains faster
OFF_FACTOR = 1.5  # statements typically this far off are shown as off


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """One thing a user said, beside what was measured."""

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
    """How far off a user's statements were, as a factor >= 1; `relative_error` is the doubt about the next one."""

    user: str
    statements: int
    typical_factor: float
    relative_error: float

    @property
    def is_off(self) -> bool:
        """True if statements of this user are typically wrong by half or more."""
        return self.typical_factor > OFF_FACTOR


def usable(stated: float) -> bool:
    """True for a rate that can be meant: finite, above 0 and below a billion steps per second."""
    return math.isfinite(stated) and 0 < stated <= LARGEST_STEPS_PER_S


def statements(table: Iterable[ThroughputEstimate]) -> tuple[Statement, ...]:
    """Every statement in the table that a measurement can judge, in the table's order."""
    return tuple(
        Statement(
            user=user,
            kind=row.kind,
            scale_factor=row.scale_factor,
            accelerator_type=row.accelerator_type,
            stated_steps_per_s=stated,
            measured_steps_per_s=row.steps_per_s,
        )
        for row in table
        if row.is_measured and not is_aside(row)
        for user, stated in sorted(row.stated_by.items())
    )


def reputations(made: Iterable[Statement]) -> Mapping[str, Reputation]:
    """By user, sorted; only of those who stated something that was then measured."""
    errors: dict[str, list[float]] = defaultdict(list)
    for each in made:
        errors[each.user].append(each.error)
    return {user: _reputation(user, of_user) for user, of_user in sorted(errors.items())}


def trust_in(user: str, known: Mapping[str, Reputation]) -> float:
    """One standard deviation of log(stated / true) for the next statement of this user."""
    return known[user].relative_error if user in known else TRUSTED_ERROR


def covariance(error: float, count: int) -> FloatArray:
    """Of the errors of statements on `count` types by one user, (count, count)."""
    return error**2 * (COMMON_SHARE + (1 - COMMON_SHARE) * np.eye(count))


def _reputation(user: str, errors: list[float]) -> Reputation:
    squares = sum(error**2 for error in errors)
    variance = (TRUSTED_STATEMENTS * TRUSTED_ERROR**2 + squares) / (TRUSTED_STATEMENTS + len(errors))
    return Reputation(
        user=user,
        statements=len(errors),
        typical_factor=math.exp(min(ERROR_MAX, math.sqrt(squares / len(errors)))),
        relative_error=min(ERROR_MAX, math.sqrt(variance)),
    )
