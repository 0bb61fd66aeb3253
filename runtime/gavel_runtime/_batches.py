"""How many samples an update of an elastic job takes: its global batch, or a multiple of it where noise makes that pay.

A step stays what the submission says: the progress of one update of `global_batch` samples. An update of k such batches
is worth `gain` steps, 1 to k (`_noise.py`), and takes less time than k updates: the ranks exchange gradients once.
Rank 0 chooses k, the multiple, by what it measures: the gain over the seconds of an update is to be the greatest.
"""

import json
import math
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from gavel_runtime._noise import Noise
from gavel_runtime._samples import parts_of_gang

FILE = "gavel-batches.json"  # in a checkpoint, of a job whose batch may grow
TRIAL = 8  # updates that a multiple is tried for, the first of them uncounted: what is new takes longer once
SETTLED = 16  # updates before a first trial, in which the noise becomes known
PROMISING = 1.1  # times the gain, for a trial of twice the multiple
LOSSLESS = 0.55  # of the gain, for a trial of half the multiple: half is what it loses if all is noise
BETTER = 1.05  # times as good is worth a change
_NEWEST = 0.2  # weight of the newest update in the mean of seconds


@dataclass(frozen=True, slots=True)
class State:
    """What all ranks have to agree on: `multiple` in force, `taken` batches so far, and how much is left over of the
    gains so far beyond whole steps.
    """

    multiple: int = 1
    taken: int = 0
    left: float = 0.0
    noise: Noise = field(default_factory=Noise)

    def text(self) -> str:
        """Return the state as one line of JSON."""
        return json.dumps(asdict(self), separators=(",", ":"))


def state_of(text: str) -> State:
    """Return the state that `text` says. Raises ValueError, KeyError, TypeError, OverflowError."""
    fields = json.loads(text)
    noise = Noise(**{name: float(value) for name, value in fields["noise"].items()})
    state = State(int(fields["multiple"]), int(fields["taken"]), float(fields["left"]), noise)
    is_finite = math.isfinite(state.left + noise.variance + noise.square + noise.weight)
    if not (is_finite and state.multiple >= 1 and state.taken >= 0 and 0 <= state.left < 1):
        raise ValueError("a multiple of at least 1, batches taken, a part of a step, and noise are finite numbers")
    return state


class Batches:
    """The batches of one process. Without a `largest` batch of twice the `batch`, each update is one batch and step.

    A program takes part by asking for its samples and for the gain of each update; one that does not keeps to one.
    """

    def __init__(self, batch: int | None, largest: int | None) -> None:
        self._batch = batch or 0
        self._most = (largest or 0) // batch if batch else 1
        self._state = State()
        self._parts = 0  # of the update in progress, over all copies of the model
        self._gain = 0.0  # of the update in progress; 0: not asked for
        self._asked = False  # whether it was asked for in the last update
        self._times = Times()

    @property
    def may_grow(self) -> bool:
        """Whether an update may take several batches."""
        return self._most > 1

    def samples(self, at_most: int | None, copies: int) -> tuple[int, int, int | None]:
        """Return the first sample of the update, how many it takes, and the most that a part of them has.

        So many `copies` of the model share them.
        """
        count = self._state.multiple * self._batch
        if copies == 1:  # noise shows between parts
            at_most = min(at_most or count, max(1, count // 2))
        self._parts = parts_of_gang(count, copies, at_most)
        return self._state.taken * self._batch, count, at_most

    def gain(self, squares: float, whole: float) -> float:
        """Take the norms of this update's gradients; return how many steps it is worth."""
        if not self.may_grow:
            return 1.0
        state = self._state
        noise = state.noise.seen(
            squares=squares,
            whole=whole,
            samples=state.multiple * self._batch,
            parts=self._parts,
            batches=state.multiple,
        )
        self._state = replace(state, noise=noise)
        self._gain = noise.gain(self._batch, state.multiple)
        return self._gain

    def update_done(self) -> int:
        """Count the update; return how many steps it has brought, 1 at least."""
        if not self.may_grow:
            return 1
        state, gain = self._state, max(1.0, self._gain)
        whole = math.floor(state.left + gain)
        self._state = replace(state, taken=state.taken + state.multiple, left=state.left + gain - whole)
        self._asked, self._gain = self._gain > 0, 0.0
        return whole

    def took(self, seconds: float | None) -> None:
        """Choose the multiple of the next update, after one of so many seconds (None: it does not count). In rank 0."""
        if not self.may_grow:
            return
        self._times.update_done(self._state.multiple, seconds)
        multiple = self._times.next_multiple(self._state, self._batch, self._most) if self._asked else 1
        self._state = replace(self._state, multiple=multiple)

    def order(self) -> str:
        """Return what the other ranks have to know before the next update; empty where it is always the same."""
        return self._state.text() if self.may_grow else ""

    def follow(self, order: str) -> None:
        """Take what rank 0 has ordered."""
        if order:
            self._state = state_of(order)

    def save(self, folder: Path) -> None:
        """Leave the state in a checkpoint."""
        if self.may_grow:
            (folder / FILE).write_text(self._state.text(), encoding="utf-8")

    def load(self, folder: Path, step: int) -> None:
        """Go on as the checkpoint of `step` says; one without a state was written where each batch was a step."""
        if not self.may_grow:
            return
        try:
            self._state = state_of((folder / FILE).read_text(encoding="utf-8"))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError):  # whatever is in the file
            self._state = State(taken=step)
        self._state = replace(self._state, multiple=min(self._state.multiple, self._most))

    def metrics(self) -> dict[str, float]:
        """Return what is shown of them: the samples of an update, and what part of them brings progress."""
        if not self.may_grow:
            return {}
        multiple = self._state.multiple
        efficiency = self._state.noise.gain(self._batch, multiple) / multiple
        return {"batch_size": float(multiple * self._batch), "statistical_efficiency": round(efficiency, 4)}


class Times:
    """Seconds of an update, by multiple, as this gang has measured them, and the choice that follows."""

    def __init__(self) -> None:
        self._seconds: dict[int, float] = {}
        self._updates = 0  # since the multiple in force is in force
        self._seen = 0  # since the start of the gang

    def update_done(self, multiple: int, seconds: float | None) -> None:
        """Count an update."""
        self._updates, self._seen = self._updates + 1, self._seen + 1
        if self._updates > 1 and seconds is not None:
            before_s = self._seconds.get(multiple, seconds)
            self._seconds[multiple] = before_s + _NEWEST * (seconds - before_s)

    def next_multiple(self, state: State, batch: int, most: int) -> int:
        """Return the multiple of the next update: the best one that was measured, or a neighbour that is promising."""
        if self._updates < TRIAL or self._seen < SETTLED or state.multiple not in self._seconds:
            return state.multiple
        gain = {each: state.noise.gain(batch, each) for each in {*self._seconds, *_neighbours(state.multiple, most)}}
        chosen = self._promising(state.multiple, gain) or self._best(state.multiple, gain)
        if chosen != state.multiple:
            self._updates = 0
        return chosen

    def _promising(self, now: int, gain: dict[int, float]) -> int | None:
        """Return a neighbour that was not measured yet and would lose little, or gain much."""
        if gain.get(2 * now, 0.0) > PROMISING * gain[now] and 2 * now not in self._seconds:
            return 2 * now
        if now > 1 and gain[now // 2] > LOSSLESS * gain[now] and now // 2 not in self._seconds:
            return now // 2
        return None

    def _best(self, now: int, gain: dict[int, float]) -> int:
        speed = {each: gain[each] / max(seconds, 1e-9) for each, seconds in self._seconds.items()}
        best = max(speed, key=lambda each: speed[each])
        return best if speed[best] > BETTER * speed[now] else now


def _neighbours(multiple: int, most: int) -> set[int]:
    return {each for each in (multiple // 2, multiple, 2 * multiple) if 1 <= each <= most}
