"""The occasions of which a user is told by a notification."""

from enum import StrEnum


class Occasion(StrEnum):
    """What a notification is about. Users choose among all but TEST."""

    END = "end"
    FAILURE = "failure"
    NO_PROGRESS = "no-progress"
    TEST = "test"


OCCASIONS = (Occasion.END, Occasion.FAILURE, Occasion.NO_PROGRESS)
"""Those that users choose among."""

OCCASION_OF_EVENT = {
    "job.completed": Occasion.END,
    "job.cancelled": Occasion.END,
    "job.failed": Occasion.FAILURE,
    "job.refused": Occasion.FAILURE,
    "job.no_progress": Occasion.NO_PROGRESS,
}
"""The occasion that an event of a job is."""


def is_wanted(occasion: Occasion, chosen: tuple[Occasion, ...]) -> bool:
    """Return whether a choice includes the occasion: a failure is an end, too."""
    return occasion in chosen or (occasion is Occasion.FAILURE and Occasion.END in chosen)
