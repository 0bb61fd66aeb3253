"""One process of the service: it stands by, leads, and ticks the production driver, until a fault ends it."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from types import MappingProxyType

from gavel.backends.nodes.numbering import node_of_workers
from gavel.clock import SystemClock
from gavel.daemon.leading import BEATS_A_LEASE, Candidate, Heart
from gavel.errors import (
    BackendUnavailable,
    GavelError,
    InvalidTransition,
    InvariantViolated,
    LeadershipLost,
    StoreUnavailable,
)
from gavel.estimator.profiling import ProfilingByValue
from gavel.estimator.reconciled import ReconciledThroughputs
from gavel.estimator.reference_profiles import reference_table
from gavel.faults.backends import Opening, SimulatedBackend, SimulatedRegions, opened
from gavel.faults.clocks import MachineClock
from gavel.faults.crash_points import ActKind
from gavel.faults.invariants.violation import Violation
from gavel.faults.link import SimulatedLink
from gavel.faults.regions import LOOK_AGAIN_S
from gavel.faults.scenario import FaultKind
from gavel.faults.solver import SimulatedRunner
from gavel.faults.stores import ProcessStore, StrikingElection
from gavel.faults.surroundings import Surroundings
from gavel.mechanism.driver import Driver
from gavel.policies.equal_share import EqualShare
from gavel.ports import ThroughputEstimate
from gavel.types import Term
from gavel.types.rounds import may_run_s_of

RESTART_S = 3.0
AGAIN_S = 0.05  # seconds; a process may be in a turn that ends only with that of another one, which is suspended
NO_LINKS: Mapping[str, SimulatedLink] = MappingProxyType({})


class ProcessKilled(BaseException):
    """The process ended in the middle of what it was doing."""


class ServiceProcess:
    """A process that leads or stands by. `strike` arms a fault for its next commit or exchange.

    `ended` are the names of processes that have ended, which those on the same machine see (`sees_others`).
    """

    def __init__(self, index: int, around: Surroundings, *, rate: float, sees_others: bool, ended: set[str]) -> None:
        self.index, self.clock = index, MachineClock(around.schedule.true_s, booted_at_s=-5000.0, rate=rate)
        self.is_up = False
        self.generation: int | None = None  # while it leads
        self._around, self._sees_others, self._ended = around, sees_others, ended
        self._incarnation = 0
        self._is_inside = self._is_doomed = False
        self._armed: dict[FaultKind, float] = {}
        self._suspended_until_s = 0.0
        self._driver: Driver | None = None
        self._backend: SimulatedBackend | SimulatedRegions | None = None
        self._links = NO_LINKS  # to the nodes of each region
        self._heart: Heart | None = None

    @property
    def name(self) -> str:
        """Return its name, which another process can tell from that of its successor."""
        return f"service-{self.index}-{self._incarnation}"

    @property
    def _holder(self) -> str:
        """Return its name as the leadership has it."""
        return f"{self.name}:0:0:simulated"

    # --- life ---

    def start(self) -> None:
        """Start the process, unless it runs."""
        if self.is_up:
            return
        self.is_up = True
        self._incarnation += 1
        settings = self._around.settings
        self._system_clock = SystemClock(self.clock.wall_s, self.clock.boottime_s)
        inner, election, check_leads = self._around.stores.open()
        self._leadership = StrikingElection(election, self._strikes)
        self._store = ProcessStore(
            inner,
            check_leads=check_leads,
            befalls=self._befalls,
            is_down=self._around.is_store_down,
            committed=lambda changes, version: self._around.committed(
                self.index, self.generation or 0, changes, version
            ),
            another_reads=self._around.another_reads,
            looked=self._around.looked,
        )
        self._candidate = Candidate(
            self._leadership,
            lease_s=settings.lease_of_leader_s,
            monotonic_s=self.clock.boottime_s,
            name=self._holder,
            is_gone=lambda holder: self._sees_others and holder in self._ended,
        )
        self._again(0.0)

    def kill(self) -> None:
        """End the process at once."""
        self._is_doomed = self._is_inside  # in the middle of a tick: it ends where it is suspended
        if self.is_up and not self._is_inside:
            self._dies()

    def _dies(self) -> None:
        self.is_up = self._is_doomed = False
        self._ended.add(self._holder)
        self._armed.clear()
        if self._backend is not None:
            self._backend.free_lock()
        for link in self._links.values():
            link.close()
        self._leads_no_more()

    def _leads_no_more(self) -> None:
        self._driver = self._backend = self._heart = self.generation = None
        self._links = NO_LINKS

    def suspend(self, until_s: float) -> None:
        """Let the process do nothing until the instant of true time."""
        self._suspended_until_s = max(self._suspended_until_s, until_s)

    def lose_bridge(self, region: str, until_s: float) -> None:
        """Let its link to the nodes of a region be down until the instant of true time."""
        if region in self._links:
            self._links[region].down_until_s = until_s

    def strike(self, kind: FaultKind, until_s: float) -> None:
        """Let the fault befall its next commit or exchange; a suspension ends at the instant of true time."""
        self._armed[kind] = until_s

    def calm(self) -> None:
        """Let nothing that is armed befall it any more."""
        self._armed.clear()
        self._suspended_until_s = 0.0

    # --- turns ---

    def _again(self, after_s: float) -> None:
        self._later(self._around.schedule.now_s + max(0.0, after_s), self._act)

    def _later(self, at_s: float, act: Callable[[], None]) -> None:
        """Let the process do something at the instant of true time, once it is not suspended, unless it has ended."""
        incarnation = self._incarnation
        self._around.schedule.at(at_s, lambda: self._turn(incarnation, act))

    def _turn(self, incarnation: int, act: Callable[[], None]) -> None:
        if incarnation != self._incarnation or not self.is_up:
            return
        now_s = self._around.schedule.now_s
        if now_s < self._suspended_until_s or self._is_inside:
            # A suspension may end earlier than it was to, with all other faults.
            self._later(min(max(self._suspended_until_s, now_s + AGAIN_S), now_s + LOOK_AGAIN_S), act)
            return
        self._is_inside = True
        try:
            self._around.within(self.clock, act)
        except ProcessKilled:
            self._is_inside = False
            self._dies()
            self._around.schedule.after(RESTART_S, self.start)
        finally:
            self._is_inside = False

    def _act(self) -> None:
        if self._driver is None:
            self._try_to_lead()
            self._again(0.0 if self._driver else self._candidate.look_every_s)
        else:
            self._again(self._tick(self._driver))

    def _try_to_lead(self) -> None:
        with suppress(GavelError, OSError):
            if self._around.is_store_down():
                return
            term = self._candidate.try_to_lead()
            if term is None:
                return
            try:
                self._open(term)
            except BackendUnavailable:
                self._leadership.resign()

    def _open(self, term: Term) -> None:
        around = self._around
        links = {
            region: SimulatedLink(network, around.schedule, around.on_node, self._strikes_in_exchange)
            for region, network in around.networks.items()
        }
        records = self._store.snapshot().round_records
        opening = Opening(
            around=around,
            folder=around.folder / ("service" if self._sees_others else f"service-{self.index}"),
            clock=self._system_clock,
            term=term,
            links=links,
            node_of=node_of_workers(around.stores.requests.cluster(), [each.plan for each in records]),
            may_run_s=may_run_s_of(records),
            later=self._later,
        )
        self._backend = opened(opening)
        self._links, self.generation = links, term.generation
        self._heart = Heart(
            self._leadership,
            lease_s=around.settings.lease_of_leader_s,
            is_well=lambda: True,
            on_lost=lambda: None,
            monotonic_s=self.clock.boottime_s,
        )
        self._driver = self._made_driver(self._backend)
        around.schedule.note(f"{self.name} leads {term.generation}")
        self._beats_again(self._heart)

    def _made_driver(self, backend: SimulatedBackend | SimulatedRegions) -> Driver:
        settings = self._around.settings
        table = self._store.throughputs()
        return Driver(
            store=self._store,
            backend=backend,
            runner=SimulatedRunner(self._around.solver_fault),
            estimator=ReconciledThroughputs.from_table(table, core_sharing=1, reference_profiles=_reference_profiles()),
            fallback=EqualShare(),
            clock=self._system_clock,
            settings=settings,
            choose_profiling=ProfilingByValue(settings.profiling_budget_fraction, settings.profiling_window_s),
        )

    def _beats_again(self, heart: Heart) -> None:
        every_s = self._around.settings.lease_of_leader_s / BEATS_A_LEASE
        self._around.schedule.after(every_s, lambda: self._beat(heart))

    def _beat(self, heart: Heart) -> None:
        if heart is not self._heart:
            return
        if self._around.schedule.now_s >= self._suspended_until_s and not self._around.is_store_down():
            heart.turn()
        self._beats_again(heart)

    def _tick(self, driver: Driver) -> float:
        """Tick once; return the seconds until the next tick."""
        settings = self._around.settings
        assert self._heart is not None, "a leader has a heart"
        try:
            self._heart.check()
            due_s = driver.tick()
        except LeadershipLost:
            self._step_down()
            return self._candidate.look_every_s
        except Violation:
            raise
        except (InvariantViolated, InvalidTransition) as error:
            raise Violation("production_check", str(error)) from error
        except (GavelError, OSError) as error:
            self._around.schedule.note(f"{self.name} tick failed: {type(error).__name__}")
            return settings.idle_tick_s
        except Exception as error:  # no fault explains it: the process would end with a traceback
            raise Violation("every_tick_ends", repr(error)) from error
        if driver.halted:
            raise Violation("planning_goes_on", driver.halted)
        now_s = self._system_clock.now_s()
        pause_s = settings.idle_tick_s if driver.is_idle else settings.tick_s
        return max(settings.tick_s / 10, min(due_s - now_s, pause_s))

    def _step_down(self) -> None:
        self._around.schedule.note(f"{self.name} steps down")
        if self._backend is not None:
            self._backend.close()
        with suppress(GavelError):
            self._leadership.resign()
        self._leads_no_more()

    # --- what befalls it in the middle of something ---

    def _befalls(self, where: str) -> None:
        if where == "before_commit":
            self._around.before_commit()
        self._strikes(ActKind.COMMIT, where == "after_commit")
        if self._armed.pop(FaultKind(f"crash_{where}"), None) is not None:
            self._around.schedule.note(f"{self.name} dies {where}")
            raise ProcessKilled
        until_s = self._armed.pop(FaultKind(f"pause_{where}"), None)
        if until_s is not None:
            self._around.schedule.note(f"{self.name} sleeps {where}")
            self.suspend(until_s)
            self._around.run_until(until_s)
            if self._is_doomed:
                raise ProcessKilled
        if where == "after_commit" and self._around.loses_answer():
            raise StoreUnavailable("the answer of the commit was lost")

    def _strikes_in_exchange(self, is_done: bool) -> None:
        self._strikes(ActKind.EXCHANGE, is_done)
        if is_done and self._armed.pop(FaultKind.CRASH_IN_EXCHANGE, None) is not None:
            self._around.schedule.note(f"{self.name} dies in an exchange")
            raise ProcessKilled

    def _strikes(self, act: ActKind, is_done: bool) -> None:
        if self._around.crashes.strikes(act, is_done=is_done):
            self._around.schedule.note(f"{self.name} dies {'after' if is_done else 'before'} {act}")
            raise ProcessKilled


@cache
def _reference_profiles() -> tuple[ThroughputEstimate, ...]:
    return reference_table()
