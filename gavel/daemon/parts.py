"""The parts of a term: the backend that is opened for it, the driver over them, and what is said of the cluster."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from gavel.backends.accelerators import Discovery, discover
from gavel.backends.local import LocalBackend
from gavel.backends.probe import probe
from gavel.backends.ray.backend import RayBackend
from gavel.backends.ray.words import RaySettings
from gavel.clock import SystemClock
from gavel.config import Settings
from gavel.daemon.keys import JobTokens, write_private
from gavel.daemon.wake import Doorbell
from gavel.errors import GavelError
from gavel.estimator.profiling import ProfilingByValue
from gavel.estimator.reconciled import ReconciledThroughputs
from gavel.estimator.references import reference_table
from gavel.mechanism.driver import Driver
from gavel.policies.equal_share import EqualShare
from gavel.ports import ClusterBackend
from gavel.runner import SubprocessRunner
from gavel.store.sql import SqlStore
from gavel.types import Term


@dataclass(kw_only=True)
class Parts:
    """Makes what a leader needs, for one term after the other."""

    settings: Settings
    clock: SystemClock
    store: SqlStore
    url: str
    doorbell: Doorbell | None
    found: Discovery = field(default_factory=lambda: Discovery(accelerators=(), notes=()))
    backend: LocalBackend | RayBackend | None = None  # while this process leads

    @contextmanager
    def open(self, term: Term) -> Iterator[Driver]:
        """The driver of a term. Raises BackendUnavailable, InvalidRequest if its cluster cannot be had."""
        with ExitStack() as stack:
            self.backend = self._backend(term)
            stack.callback(self._close)
            runner = SubprocessRunner(self.settings.solve_memory_limit_bytes, policy_path=self.settings.policy_path)
            stack.callback(runner.close)
            if self.doorbell is not None:
                stack.enter_context(self.doorbell.answered_by(self.clock.wake))
            yield self._driver(self.backend, runner)

    def notes(self) -> tuple[str, ...]:
        """What is wrong with the cluster as a whole, if this process leads it."""
        return self.backend.notes() if isinstance(self.backend, RayBackend) else ()

    def _close(self) -> None:
        backend, self.backend = self.backend, None
        if backend is not None:
            backend.close()

    def _backend(self, term: Term) -> LocalBackend | RayBackend:
        """The cluster to run on; for Ray, whose nodes are found as they come, nothing is discovered here."""
        settings = self.settings
        environment = {"GAVEL_URL": settings.public_url or self.url}
        if settings.backend == "ray":
            self.found = Discovery(accelerators=(), notes=(f"workers are those of Ray at {settings.ray_address}",))
            return RayBackend(
                state_dir=settings.state_dir,
                ray=_ray_settings(settings),
                clock=self.clock,
                lease_grace_s=settings.lease_grace_s,
                log_bytes_per_job=settings.log_bytes_per_job,
                environment=environment,
                term=term,
            )
        self.found = discover(settings.virtual_nodes)
        return LocalBackend(
            state_dir=settings.state_dir,
            accelerators=self.found.accelerators,
            clock=self.clock,
            lease_grace_s=settings.lease_grace_s,
            log_bytes_per_job=settings.log_bytes_per_job,
            on_change=self.clock.wake,
            environment=environment,
            term=term,
        )

    def _driver(self, backend: ClusterBackend, runner: SubprocessRunner) -> Driver:
        settings = self.settings
        sharing = 2 if any(each.worker.shares_core for each in self.found.accelerators) else 1
        return Driver(
            store=self.store,
            backend=backend,
            runner=runner,
            estimator=ReconciledThroughputs.from_table(
                self.store.throughputs(), core_sharing=sharing, references=reference_table()
            ),
            fallback=EqualShare(),
            clock=self.clock,
            settings=settings,
            token_of=JobTokens(self.store, settings.state_dir, self.clock),
            choose_profiling=ProfilingByValue(settings.profiling_budget_fraction, settings.profiling_window_s),
        )


def _ray_settings(settings: Settings) -> RaySettings:
    return RaySettings(
        address=settings.ray_address,
        checkpoints=settings.ray_checkpoints,
        node_folder=settings.ray_node_folder,
        report_period_s=settings.ray_report_period_s,
    )


def report_types(state_dir: Path, found: Discovery, announce: Callable[[str], None]) -> None:
    """Say what the accelerators are; measure that their types differ, once per state folder and set of workers."""
    workers = [each.worker.id for each in found.accelerators]
    for note in found.notes:
        announce(note)
    if not workers:
        return
    kept = state_dir / "probe.json"
    if kept.exists() and json.loads(kept.read_text()).get("workers") == workers:
        return
    try:
        measured = probe(found.accelerators)
    except GavelError as error:
        announce(f"the accelerator types could not be measured: {error}")
        return
    announce(measured.text)
    write_private(kept, json.dumps({"workers": workers, "text": measured.text}))
