"""How long gangs take before they train: start-up, restore of a checkpoint, and the writing of one."""

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from gavel.types.cluster import AcceleratorType


@dataclass(frozen=True, slots=True, kw_only=True)
class StartupTimes:
    """The times that the last gangs of a job kind reported on an accelerator type; seconds, the newest last.

    `startup_s`: from a program's start to its loop over steps, without `restore_s`, the loading of a checkpoint;
    `checkpoint_s`: the writing of one.
    """

    kind: str
    accelerator_type: AcceleratorType
    startup_s: tuple[float, ...] = ()
    restore_s: tuple[float, ...] = ()
    checkpoint_s: tuple[float, ...] = ()

    @property
    def until_training_s(self) -> float:
        """Return the median seconds from the start of a gang to its first step; 0 before any was measured."""
        return typical_s(self.startup_s) + typical_s(self.restore_s)

    @property
    def move_s(self) -> float:
        """Return the median seconds that a move takes from training: a checkpoint, a start-up and a restore."""
        return self.until_training_s + typical_s(self.checkpoint_s)


def typical_s(measured_s: Iterable[float]) -> float:
    """Return the median, which a single odd measurement does not change much; 0 if nothing was measured."""
    values = tuple(measured_s)
    return median(values) if values else 0.0


def times_of(table: Iterable[StartupTimes], kind: str, accelerator_type: AcceleratorType) -> StartupTimes:
    """Return the times of a kind on an accelerator type; without any measurement if there is none."""
    matches = (each for each in table if (each.kind, each.accelerator_type) == (kind, accelerator_type))
    return next(matches, StartupTimes(kind=kind, accelerator_type=accelerator_type))
