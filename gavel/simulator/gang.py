"""A gang that exists in numbers only."""

from dataclasses import dataclass, field
from math import inf

from gavel.ephemeral import Gang, GangRequest
from gavel.ports import LaunchGang
from gavel.types import GangExit, GangSeen, GangState, Report, ReportKind

ROUNDING = 1e-6  # steps: the rounding error allowed below a whole step


@dataclass(slots=True)
class VirtualGang:
    """One gang and its progress.

    `total_steps` is its job's length, which it reports if it was launched without one. `base_steps` are done at the
    instant `training_from_s`, which is at first its start plus the switch cost, its `startup_s`. `rate_steps_per_s` is
    its present rate, `alone_steps_per_s` its rate on workers of its own.
    """

    launched: LaunchGang
    request: GangRequest
    total_steps: int
    alone_steps_per_s: float
    rate_steps_per_s: float
    base_steps: float
    expires_at_s: float
    grace_s: float
    state: GangState = GangState.WAITING
    started_at_s: float | None = None
    training_from_s: float = inf
    ended_at_s: float | None = None
    exit: GangExit | None = None
    reported_step: int = 0
    begun_late_s: float = 0.0  # seconds that the step in progress takes beyond one step at the present rate
    sequence: int = 0
    reports: list[Report] = field(default_factory=list)
    is_end_seen: bool = False
    checkpointed_at_s: float = -inf
    startup_s: float = 0.0
    report_due_s: float = -inf  # when it reports next
    save_asked_s: float = 0.0  # the last checkpoint that was asked for
    checkpoint_bytes: int | None = None  # of each of its checkpoints, which it reports; None: it does not
    seen: GangSeen | None = None  # as it was observed last

    @property
    def key(self) -> Gang:
        """Return its job and generation."""
        return self.launched.job_id, self.launched.generation

    def finishes_at_s(self) -> float:
        """Return when its last step is done, if its lease lasts until then; +inf while it waits."""
        return self.training_from_s + (self.total_steps - self.base_steps) / self.rate_steps_per_s

    def ends_at_s(self) -> float:
        """Return the instant at which it ends by itself; +inf once it has ended."""
        if self.state is GangState.ENDED:
            return inf
        return min(self.finishes_at_s(), self.expires_at_s + self.grace_s)

    def step_at(self, now_s: float) -> int:
        """Return the whole steps that are done at an instant, counted from the job's beginning."""
        trained_s = max(0.0, now_s - self.training_from_s)
        return min(int(self.base_steps + trained_s * self.rate_steps_per_s + ROUNDING), self.total_steps)

    def go_on(self, at_s: float, rate_steps_per_s: float) -> None:
        """Let it run at another rate from `at_s` on. Steps done before are reported at the old rate."""
        self.report(ReportKind.PROGRESS, self.step_at(at_s))
        unfinished_s = self._unfinished_s(at_s)
        self.base_steps += max(0.0, at_s - self.training_from_s) * self.rate_steps_per_s
        self.training_from_s = max(self.training_from_s, at_s)
        self.rate_steps_per_s = rate_steps_per_s
        self.begun_late_s = unfinished_s - (self.base_steps - self.reported_step) / rate_steps_per_s

    def report_start(self, now_s: float) -> None:
        """Append the first report once it trains, as the runtime does."""
        if self.sequence == 0 and now_s >= self.training_from_s:
            self._add(ReportKind.PROGRESS, self.reported_step, 0.0, startup_s=self.startup_s)

    def _unfinished_s(self, at_s: float) -> float:
        """Return the seconds of training since the last step that was reported."""
        trained_s = max(0.0, at_s - self.training_from_s)
        return self.begun_late_s + (self.base_steps - self.reported_step) / self.rate_steps_per_s + trained_s

    def stop(self, at_s: float) -> None:
        """Write a checkpoint.

        If a partner slowed down the step that is cut off, report its time: the stop did not cost that.
        """
        self.report(ReportKind.CHECKPOINT, self.step_at(at_s))
        unfinished_s = self._unfinished_s(at_s)
        if unfinished_s > 1 / self.alone_steps_per_s:
            self._add(ReportKind.PROGRESS, self.reported_step, unfinished_s)

    def save(self, now_s: float, asked_at_s: float) -> None:
        """Write the checkpoint that was asked for, once, and go on."""
        if self.state is GangState.RUNNING and asked_at_s > self.save_asked_s:
            self.save_asked_s, self.checkpointed_at_s = asked_at_s, now_s
            self.report(ReportKind.CHECKPOINT, self.step_at(now_s))

    def report(self, kind: ReportKind, step: int) -> None:
        """Append the next report, up to `step`.

        Do nothing for progress already reported, or a checkpoint without new steps.
        """
        steps = step - self.reported_step
        if kind is ReportKind.PROGRESS and steps <= 0:
            return
        if kind is ReportKind.CHECKPOINT and step <= self.launched.start_step:
            return
        seconds = steps / self.rate_steps_per_s + self.begun_late_s if steps else 0.0
        self.begun_late_s = 0.0 if steps else self.begun_late_s
        self._add(kind, step, seconds, f"{self.launched.generation}-{step}" if kind is ReportKind.CHECKPOINT else None)

    def _add(
        self,
        kind: ReportKind,
        step: int,
        seconds: float,
        checkpoint: str | None = None,
        startup_s: float | None = None,
    ) -> None:
        steps = step - self.reported_step
        self.sequence, self.reported_step = self.sequence + 1, step
        self.reports.append(
            Report(
                sequence=self.sequence,
                kind=kind,
                step=step,
                steps=steps,
                seconds=seconds,
                checkpoint=checkpoint,
                total_steps=self.total_steps if self.launched.total_steps is None else None,
                startup_s=startup_s,
                checkpoint_bytes=None if checkpoint is None else self.checkpoint_bytes,
            )
        )

    def end(self, at_s: float, how: GangExit) -> None:
        """End the gang. Its state does not change any more."""
        self.state, self.ended_at_s, self.exit = GangState.ENDED, at_s, how
