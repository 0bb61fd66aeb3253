"""Start-up times as sentences: a warning where rounds are short against them."""

from collections.abc import Collection, Iterator

from gavel.ports import Snapshot
from gavel.types import Job

SHORT_FROM_FRACTION = 0.5  # of a round that goes into a start


def short_rounds(snapshot: Snapshot, jobs: Collection[Job]) -> Iterator[str]:
    """Yield a sentence if a kind of `jobs` needs more than half of a round to start, about the one that needs most."""
    kinds = {job.spec.kind for job in jobs}
    times = [each for each in snapshot.startup_times if each.kind in kinds]
    if not times or not snapshot.round_records:
        return
    round_s = snapshot.round_records[-1].plan.duration_s
    worst = max(times, key=lambda each: each.until_training_s)
    if worst.until_training_s > SHORT_FROM_FRACTION * round_s:
        yield (
            f"Rounds of {round_s:g} s are short against start-ups: gangs of kind {worst.kind} need about"
            f" {worst.until_training_s:.1f} s on {worst.accelerator_type} before their first step."
            " A longer round_duration_s loses less time to them."
        )
