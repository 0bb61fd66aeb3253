"""A supervisor and its ranks on one node: the rules of gavel/backends/lease_rules.py, without processes."""

from collections.abc import Callable
from dataclasses import replace
from math import inf
from pathlib import Path

from gavel.backends.lease_rules import end_reason, extends, is_preemption, overdue_at_s
from gavel.backends.nodes.protocol import ShardLaunch, ShardSeen, ShardWanted
from gavel.backends.reports import ReportReader
from gavel.faults.clocks import MachineClock
from gavel.faults.gang import GangRun
from gavel.faults.schedule import Schedule
from gavel.types import GangExit, GangOutcome, GangState, Report

KILLED = -9
ENDPOINT = "127.0.0.1:8000"  # of replicas; nobody calls it


class SimulatedShard:
    """One gang's part on one node. `frozen_until_s` and `paused_until_s` are true time: ranks hang, its supervisor."""

    def __init__(
        self,
        launch: ShardLaunch,
        lease_boottime_s: float,
        *,
        node_name: str,
        clock: MachineClock,
        schedule: Schedule,
        run: GangRun,
        on_end: Callable[["SimulatedShard"], None],
    ) -> None:
        self.launch, self.node_name, self.run = launch, node_name, run
        self.expires_s = lease_boottime_s
        self._clock, self._schedule, self._on_end = clock, schedule, on_end
        self._stopped_s = inf
        self._reason = ""  # why it has to end, in its supervisor's words
        self._ending = ""
        self._kill_at_s = inf
        self.has_ranks = True
        self.frozen_until_s = self.paused_until_s = 0.0
        self.excused_until_s = 0.0  # until then it may outlive its lease, since its supervisor is suspended
        self.started_s: float | None = clock.boottime_s()  # None: in an earlier boot
        self.ended_s: float | None = None
        self.exit: GangExit | None = None
        self.read_anew()
        self._check_at(lease_boottime_s)
        run.starts(self)

    @property
    def is_live(self) -> bool:
        """Return True until its supervisor has written how it ended."""
        return self.exit is None

    @property
    def is_frozen(self) -> bool:
        """Return True while its ranks hang."""
        return self._schedule.now_s < self.frozen_until_s

    def read_anew(self) -> None:
        """Read its reports from the beginning, as a new agent does."""
        launch = self.launch.instruction
        self._reader = ReportReader(
            Path("reports.jsonl"),
            generation=launch.generation,
            start_step=launch.start_step,
            total_steps=launch.total_steps,
            checkpoints=Path(self.launch.checkpoints) / launch.job_id,
        )
        self._read_lines = self._dropped = 0
        self._kept: list[Report] = []

    # --- orders ---

    def extend(self, lease_boottime_s: float) -> None:
        """Move the end of the lease, as the rule allows."""
        if (
            self.is_live
            and self._stopped_s == inf
            and extends(self._clock.boottime_s(), self.expires_s, lease_boottime_s)
        ):
            self.expires_s = lease_boottime_s
            self._check_at(lease_boottime_s)

    def stop(self) -> None:
        """Ask it to end in good order."""
        if self.is_live and self._stopped_s == inf:
            self._stopped_s = self._clock.boottime_s()
            self._schedule.after(0.05, self._turn)

    def look(self) -> None:
        """End what its supervisor should have ended long ago."""
        now_s = self._clock.boottime_s()
        overdue_s = overdue_at_s(self.expires_s, self._stopped_s, self.launch.lease_grace_s)
        if self.is_live and now_s >= overdue_s:
            self.condemn("its supervisor did not end it")

    def suspend_supervisor(self, until_s: float) -> None:
        """Let its supervisor do nothing until the instant of true time, or longer if it is suspended already."""
        self.paused_until_s = max(self.paused_until_s, until_s)
        self.excused_until_s = self.paused_until_s + self.launch.lease_grace_s + 1.0

    def condemn(self, message: str) -> None:
        """Kill all of it; it is lost."""
        self._lose_ranks()
        self._end(GangExit(outcome=GangOutcome.LOST, message=message))

    # --- the supervisor ---

    def wake(self) -> None:
        """Look again at what is due, after a pause."""
        self._turn()

    def _check_at(self, boottime_s: float) -> None:
        self._schedule.at(self._clock.true_at_s(boottime_s) + 1e-6, self._turn)

    def _turn(self) -> None:
        if not self.is_live:
            return
        if self._schedule.now_s < self.paused_until_s:
            self._schedule.at(self.paused_until_s, self._turn)
            return
        now_s = self._clock.boottime_s()
        if not self._ending and self._is_over():
            self._ending, self._kill_at_s = self._reason, now_s + self.launch.lease_grace_s
            self._check_at(self._kill_at_s)
            self.run.signalled()
        elif now_s >= self._kill_at_s:
            self._lose_ranks()
            self._reap(KILLED)

    def _is_over(self) -> bool:
        is_over = self._clock.boottime_s() >= self.expires_s
        self._reason = end_reason(self._reason, is_over=is_over, is_stopped=self._stopped_s < inf)
        return bool(self._reason)

    def ranks_exit(self, code: int) -> None:
        """Take the end of its ranks, once its supervisor sees it."""
        if self.has_ranks:
            self.has_ranks = False
            self._reap(code)

    def _reap(self, code: int) -> None:
        if not self.is_live:
            return
        if self._schedule.now_s < self.paused_until_s:
            self._schedule.at(self.paused_until_s, lambda: self._reap(code))
            return
        is_over = self._is_over()
        if code and is_preemption(code, is_ending=bool(self._ending), is_over=is_over):
            outcome, message = GangOutcome.PREEMPTED, f"stopped: {self._reason}"
        else:
            outcome, message = GangOutcome.EXITED, f"rank 0 ended with exit code {code}" if code else ""
        self._end(GangExit(outcome=outcome, exit_code=code, message=message, ended_by=self._reason))

    def _lose_ranks(self) -> None:
        if self.has_ranks:
            self.has_ranks = False
            self.run.part_is_gone(self)

    def lose_power(self) -> None:
        """End with the node: nobody writes how."""
        self._lose_ranks()
        self._end(GangExit(outcome=GangOutcome.LOST, message="the machine was restarted"))

    def take_new_boot(self) -> None:
        """Take the new boot's clock: instants of the old one mean nothing."""
        self.started_s, self.ended_s = None, self._clock.boottime_s()

    def _end(self, how: GangExit) -> None:
        if self.exit is None:
            self.exit, self.ended_s = how, self._clock.boottime_s()
            self._on_end(self)

    # --- answers ---

    def seen(self, wanted: ShardWanted | None) -> ShardSeen:
        """Return the state, and the reports that the service has not taken."""
        self.look()
        reports = self._reports(wanted.reports_after if wanted else 0)
        state = GangState.RUNNING if self.is_live else GangState.ENDED
        seen = ShardSeen(
            key=self.launch.key,
            state=state,
            lease_node_boottime_s=self.expires_s,
            started_node_boottime_s=self.started_s,
            ended_node_boottime_s=self.ended_s,
            exit=self.exit,
            endpoint=ENDPOINT if self._answers() else "",
            reports=reports,
        )
        return seen if wanted else replace(seen, launch=self.launch)

    def _answers(self) -> bool:
        """True while it is a replica of a service whose checks pass."""
        return bool(self.launch.instruction.serving) and 0 in self.launch.ranks and self.is_live and self.run.is_ready

    def _reports(self, after: int) -> tuple[Report, ...]:
        if 0 not in self.launch.ranks:
            return ()
        if after < self._dropped:  # a new service asks for what its predecessor took
            self.read_anew()
        lines = self.run.reports_of()
        fresh = lines[self._read_lines :]
        self._read_lines = len(lines)
        self._kept.extend(self._reader.parse(b"\n".join(fresh)) if fresh else ())
        self._kept = [report for report in self._kept if report.sequence > after]
        self._dropped = max(self._dropped, after)
        return tuple(self._kept)
