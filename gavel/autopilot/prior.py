"""What to start with while too few jobs have ended to simulate by: a prior choice, from what is true of most workloads.

Serving short jobs first keeps times and slowdowns small if lengths are stated well; if not, serving those first that
have got least is the safer choice, and for the tail of slowdowns it always is (docs/autopilot.md has the measurements).
Where the jobs of a user count as one, the least work first is safe from the beginning: how many tasks are left is
known, and the errors of their lengths average out.
"""

from collections.abc import Sequence

from gavel.autopilot.futures import Arrival, length_model
from gavel.autopilot.goals import Goal

ENDED_LEAST = 20  # jobs that have ended, from which on simulations decide
CALIBRATED_LEAST = 5  # of them with a stated length, from which on the error of statements is believed
ERROR_MOST = 1.0  # standard deviation of ln(stated / actual) up to which statements are good
BY_LENGTH = ("rank_weighted_speed", "least_remaining_work", "least_remaining_work?work_of=user", "shortest_job_first")
BY_SET = ("least_remaining_work?work_of=user",)
BY_SERVICE = (
    "rank_weighted_speed?length=attained_service",
    "least_attained_service",
    "least_attained_service?queues=continuous",
    "max_total_relative_speed?ageing=attained_service",
    "max_min_fairness",
)
OF_TIME = frozenset({"mean_jct", "mean_slowdown", "tail_slowdown"})


def start(goal: Goal, candidates: Sequence[str], history: Sequence[Arrival]) -> str | None:
    """Return the candidate to use for now, None where simulations decide or no candidate is one to start with."""
    ended = [each for each in history if each.made_steps]
    measures = {name for name, _ in goal.weights}
    if len(ended) >= ENDED_LEAST or not measures <= OF_TIME:
        return None
    errors = length_model(ended).all_errors
    is_calibrated = errors.count >= CALIBRATED_LEAST and errors.variance <= ERROR_MOST**2
    order = BY_SERVICE if "tail_slowdown" in measures else _order_for_means(goal, is_calibrated)
    policies = {text.partition("/")[0]: text for text in reversed(candidates)}
    return next((policies[policy] for policy in order if policy in policies), None)


def _order_for_means(goal: Goal, is_calibrated: bool) -> tuple[str, ...]:
    by_set = BY_SET if goal.per_user else ()
    by_length = BY_LENGTH if is_calibrated else ()
    return (*by_set, *by_length, *BY_SERVICE)
