"""The autopilot of a leader: a thread that decides now and then which composition to use, in a process of its own.

No round ever waits for it. It reads what the store has, stores each decision, and in mode `auto` makes the same command
that an operator would make. Whatever becomes of the process, the scheduler goes on with what is in force; after
FAILED_MOST failures in a row the safe composition is put in force.
"""

import threading
import time
from collections.abc import Sequence
from dataclasses import replace

import structlog

from gavel.autopilot.composition import spelling
from gavel.autopilot.live import Frozen, Thought, think
from gavel.autopilot.schedule import OF_AN_HOUR, attempts_of, circumstances, next_decision
from gavel.autopilot.setting import candidates
from gavel.config import Settings
from gavel.errors import GavelError
from gavel.ports import Clock, JobFilter, Snapshot
from gavel.simulator.asking import ask
from gavel.simulator.live import live_of
from gavel.store.sql import SqlStore
from gavel.types import Job, JobState
from gavel.types.autopilot import AutopilotDecision, AutopilotMode

LOOK_EVERY_S = 2.0
FAILED_MOST = 3  # decisions in a row, after which the safe composition is put in force
ENDED = 500  # jobs whose lengths are learned from, the last ones submitted of those that have ended
PAGE = 200
KEEP_QUESTIONS = 20
LOWEST_PRIORITY = 19
TIME_LIMIT_S = (60.0, 1800.0)  # of a decision: an epoch, within these bounds
THE_AUTOPILOT = "autopilot"

log = structlog.get_logger("gavel.autopilot")


def timed(frozen: Frozen) -> tuple[Thought, float]:
    """Return the decision and the CPU seconds that it took, for the process that decides."""
    return think(frozen), time.process_time()


class Autopilot:
    """Decides when it is due. `look` is called again and again; `stop` ends a decision in progress."""

    def __init__(self, store: SqlStore, settings: Settings, clock: Clock) -> None:
        self._store, self._settings, self._clock = store, settings, clock
        self._began_s = clock.now_s()
        self._is_over = threading.Event()

    def stop(self) -> None:
        """End the process that decides, if there is one; safe from any thread."""
        self._is_over.set()

    def look(self) -> None:
        """Make a decision if one is due. Raises StoreUnavailable, Conflict."""
        snapshot, now_s = self._store.snapshot(), self._clock.now_s()
        if not snapshot.jobs:
            return
        now = circumstances(snapshot, self._store.cluster())
        for limit in (1, OF_AN_HOUR):  # the newest one alone says nearly always that nothing is due
            earlier = self._store.autopilot.decisions(limit=limit)
            if next_decision(now, attempts_of(earlier, now), now_s, self._began_s).at_s > now_s:
                return
        thought = self._thought(snapshot, earlier, now_s)
        if self._is_over.is_set():
            return
        decision = replace(thought.decision, setting=now.setting, workers=now.workers, jobs=now.jobs)
        self._store.autopilot.add(decision, thought.question, thought.memory, keep_questions=KEEP_QUESTIONS)
        log.info("autopilot.decided", number=decision.number, chosen=decision.chosen, failure=decision.failure)
        if decision.is_followed:
            self._switch(decision)

    def _switch(self, decision: AutopilotDecision) -> None:
        body = {"policy": decision.chosen, "decision": decision.number, "reason": decision.reason}
        now_s = self._clock.now_s()
        self._store.add_command("autopilot.switch", subject="policy", body=body, by=THE_AUTOPILOT, now_s=now_s)

    def _thought(self, snapshot: Snapshot, earlier: Sequence[AutopilotDecision], now_s: float) -> Thought:
        least_s, most_s = TIME_LIMIT_S
        began_s = time.monotonic()
        try:
            frozen = self._frozen(snapshot, earlier, now_s)
            thought, cpu_s = ask(
                timed,
                frozen,
                time_limit_s=min(most_s, max(least_s, snapshot.autopilot.epoch_s)),
                memory_limit_bytes=self._settings.solve_memory_limit_bytes,
                is_wanted=lambda: not self._is_over.is_set(),
                niceness=LOWEST_PRIORITY,
            )
        except Exception as error:  # the boundary of the process that decides: a failure is an answer
            if not isinstance(error, GavelError):
                log.exception("autopilot.failed")
            took_s = time.monotonic() - began_s  # at least the CPU time of one core
            failed = self._failed(snapshot, earlier, now_s, str(error) or type(error).__name__)
            return Thought(
                decision=replace(failed, cpu_s=took_s), question=b"", memory=self._store.autopilot.experience()
            )
        return replace(thought, decision=replace(thought.decision, cpu_s=cpu_s))

    def _frozen(self, snapshot: Snapshot, earlier: Sequence[AutopilotDecision], now_s: float) -> Frozen:
        store = self._store.autopilot
        newest = earlier[0] if earlier else None
        return Frozen(
            live=live_of(self._store, snapshot, self._settings, now_s),
            ended=self._ended(),
            setting=snapshot.autopilot,
            number=_next_number(earlier),
            earlier=tuple(earlier),
            question=store.question(newest.number) if newest and newest.has_question else b"",
            memory=store.experience(),
        )

    def _ended(self) -> tuple[Job, ...]:
        """Return the last jobs that ended, newest submission first."""
        where, jobs = JobFilter(states=tuple(each for each in JobState if each.is_terminal)), list[Job]()
        cursor = None
        while len(jobs) < ENDED:
            page = self._store.jobs(where, cursor=cursor, limit=min(PAGE, ENDED - len(jobs)))
            jobs += page.jobs
            if (cursor := page.next_cursor) is None:
                break
        return tuple(jobs)

    def _failed(
        self, snapshot: Snapshot, earlier: Sequence[AutopilotDecision], now_s: float, why: str
    ) -> AutopilotDecision:
        """Return the decision to stay with what is in force, or with the safe composition after too many failures."""
        setting = snapshot.autopilot
        in_force = spelling(snapshot.policy or self._settings.policy, self._settings)
        safe = candidates(setting, self._settings)[0]
        before = [each.failure for each in earlier[: FAILED_MOST - 1]]
        falls_back = setting.mode is AutopilotMode.AUTO and len(before) == FAILED_MOST - 1 and all(before)
        reason = f"{FAILED_MOST} decisions in a row failed: the safe composition is in force until one succeeds"
        return AutopilotDecision(
            number=_next_number(earlier),
            at_s=now_s,
            mode=setting.mode,
            goal=setting.goal,
            seed=0,
            incumbent=in_force,
            chosen=safe if falls_back else in_force,
            reason=reason if falls_back else "no decision was made, so what is in force stays",
            is_followed=falls_back and safe != in_force,
            failure=why,
        )


def _next_number(earlier: Sequence[AutopilotDecision]) -> int:
    return earlier[0].number + 1 if earlier else 0
