"""What a leader opens for one term: the backend and the driver over it; and the report on the accelerators."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from gavel.backends.accelerators import Discovery
from gavel.backends.disk import Disk, low_disk
from gavel.backends.nodes.backend import NodesBackend
from gavel.backends.probe import probe
from gavel.backends.session_use import SessionUse
from gavel.backends.several.backend import SeveralBackend
from gavel.clock import SystemClock
from gavel.config import Settings
from gavel.daemon.autopilot import LOOK_EVERY_S, Autopilot
from gavel.daemon.background import Periodic, in_background
from gavel.daemon.chores import chores
from gavel.daemon.keys import JobTokens, write_private
from gavel.daemon.opened_backend import Opening, ServedBackend, discovered
from gavel.daemon.wake import Doorbell
from gavel.errors import GavelError, NotFound
from gavel.estimator.profiling import ProfilingByValue
from gavel.estimator.reference_profiles import estimator_of
from gavel.mechanism.driver import Driver
from gavel.mechanism.observing.sessions import LastUse
from gavel.notifications.dispatcher import Dispatcher, dispatched
from gavel.policies.equal_share import EqualShare
from gavel.ports import ClusterBackend
from gavel.runner import SubprocessRunner
from gavel.store.sql import SqlStore
from gavel.types import JobId, Term


@dataclass(kw_only=True)
class Parts:
    """Opens what a leader needs, once for each term."""

    settings: Settings
    clock: SystemClock
    store: SqlStore
    url: str
    doorbell: Doorbell | None
    discovery: Discovery = field(default_factory=lambda: Discovery(accelerators=(), notes=()))
    backend: ServedBackend | None = None  # while this process leads
    dispatcher: Dispatcher | None = None  # the same

    @contextmanager
    def open(self, term: Term) -> Iterator[Driver]:
        """Yield the driver of a term. Raises BackendUnavailable or InvalidRequest if the cluster cannot be opened."""
        with ExitStack() as stack:
            self.discovery = discovered(self.settings)
            self.backend = Opening(
                settings=self.settings,
                clock=self.clock,
                store=self.store,
                url=self.url,
                term=term,
                discovery=self.discovery,
            ).backend()
            stack.callback(self._close)
            runner = SubprocessRunner(self.settings.solve_memory_limit_bytes, policy_dir=self.settings.policy_dir)
            stack.callback(runner.close)
            if self.doorbell is not None:
                stack.enter_context(self.doorbell.answered_by(self.clock.wake))
            disk = Disk(self.settings, self._user_of)
            tasks = chores(self.settings, self.store, self.clock, disk, self.backend.forget_job)
            stack.enter_context(in_background(tasks))
            autopilot = Autopilot(self.store, self.settings, self.clock)
            stack.enter_context(in_background((Periodic(autopilot.look, LOOK_EVERY_S),)))
            stack.callback(autopilot.stop)
            url = self.settings.public_url or self.url
            self.dispatcher = Dispatcher(self.store.notifications, self.settings, url)
            stack.enter_context(dispatched(self.dispatcher))
            yield self._driver(self.backend, runner, disk)

    def notes(self) -> tuple[str, ...]:
        """Return what is wrong with the cluster as a whole, if this process leads."""
        of_backend = self.backend.notes() if isinstance(self.backend, NodesBackend | SeveralBackend) else ()
        low = low_disk(self.settings)
        return (*of_backend, *([low] if low else ()), *(self.dispatcher.notes() if self.dispatcher else ()))

    def _user_of(self, job_id: JobId) -> str | None:
        try:
            return self.store.job(job_id).spec.user
        except NotFound:
            return None

    def _close(self) -> None:
        backend, self.backend = self.backend, None
        if backend is not None:
            backend.close()

    def _driver(self, backend: ClusterBackend, runner: SubprocessRunner, disk: Disk) -> Driver:
        settings = self.settings
        sharing = 2 if any(each.worker.shares_core for each in self.discovery.accelerators) else 1
        return Driver(
            store=self.store,
            backend=backend,
            runner=runner,
            estimator=estimator_of(self.store.throughputs(), core_sharing=sharing),
            fallback=EqualShare(),
            clock=self.clock,
            settings=settings,
            tokens_of=JobTokens(self.store, settings.state_dir, self.clock),
            choose_profiling=ProfilingByValue(settings.profiling_budget_fraction, settings.profiling_window_s),
            disk=disk.state,
            last_use=self._last_use(),
        )

    def _last_use(self) -> LastUse:
        """Return when a session was last used; never before now, since nobody can use it while no service runs."""
        return SessionUse(self.settings, self.clock.now_s()).last_s


def report_types(state_dir: Path, discovery: Discovery, announce: Callable[[str], None]) -> None:
    """Announce the accelerators, and measure how their types differ, once per state folder and set of workers."""
    workers = [each.worker.id for each in discovery.accelerators]
    for note in discovery.notes:
        announce(note)
    if not workers:
        return
    kept = state_dir / "probe.json"
    if kept.exists() and json.loads(kept.read_text()).get("workers") == workers:
        return
    try:
        measured = probe(discovery.accelerators)
    except GavelError as error:
        announce(f"the accelerator types could not be measured: {error}")
        return
    announce(measured.text)
    write_private(kept, json.dumps({"workers": workers, "text": measured.text}))
