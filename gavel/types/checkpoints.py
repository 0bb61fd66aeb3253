"""What is known of the newest checkpoints of a job: how large they are, what they took, and why one follows when."""

from dataclasses import dataclass

WRITTEN_MAX = 5  # that a job remembers
CHECKPOINT_GONE = "checkpoint.gone"
CHECKPOINT_UNREADABLE = "checkpoint.unreadable"
"""The events of a job that goes back to an older checkpoint or its start: without one no commit takes steps away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenCheckpoint:
    """An accepted checkpoint, as its program measured it; None for what a program did not measure.

    `at_s`: when it was accepted. It was on the disk after `written_s` seconds, in which the training stood still for
    `cost_s`. The next one for safety is due after `every_s` seconds: what pays at that cost if a gang of its size is
    lost every `time_to_loss_s` seconds in the mean; None: the program states how often.
    """

    name: str
    step: int
    at_s: float
    size_bytes: int | None = None
    written_s: float | None = None
    cost_s: float | None = None
    every_s: float | None = None
    time_to_loss_s: float | None = None
