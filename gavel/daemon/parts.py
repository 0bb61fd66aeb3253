"""What a leader opens for one term: the backend and the driver over it; and the report on the accelerators."""

import json
import shlex
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from sqlalchemy import make_url

from gavel.backends.accelerators import Discovery, discover
from gavel.backends.disk import Disk, low_disk
from gavel.backends.kubernetes.backend import KubernetesBackend
from gavel.backends.kubernetes.protocol import KubernetesSettings
from gavel.backends.launch import Preparation
from gavel.backends.local import LocalBackend
from gavel.backends.nameable_folders import job_folders_of
from gavel.backends.nodes.backend import NodesBackend
from gavel.backends.nodes.numbering import node_of_workers
from gavel.backends.nodes.of_service import OfService
from gavel.backends.nodes.relay import ORDERS_PATH
from gavel.backends.nodes.stored_outputs import outputs_place
from gavel.backends.probe import probe
from gavel.backends.ray.backend import RayBackend
from gavel.backends.ray.protocol import RaySettings
from gavel.backends.sandbox import bubblewrap
from gavel.backends.secret_store import secret_store
from gavel.backends.session_use import last_use_s
from gavel.backends.slurm.backend import SlurmBackend
from gavel.backends.slurm.protocol import SlurmSettings
from gavel.clock import SystemClock
from gavel.config import CONFIGURATION, Settings
from gavel.daemon.autopilot import LOOK_EVERY_S, Autopilot
from gavel.daemon.background import Periodic, in_background
from gavel.daemon.chores import chores
from gavel.daemon.keys import JobTokens, write_private
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
from gavel.simulator.simulated_backend import SimulatedBackend, simulated_cluster
from gavel.store.sql import SqlStore
from gavel.types import JobId, Term
from gavel.types.job_uids import uids_of

ServedBackend = LocalBackend | RayBackend | SlurmBackend | KubernetesBackend | SimulatedBackend


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
            self.backend = self._backend(term)
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
        of_backend = self.backend.notes() if isinstance(self.backend, NodesBackend) else ()
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

    def _backend(self, term: Term) -> ServedBackend:
        """Return the backend of the settings to run on."""
        backends: dict[str, Callable[[Term], ServedBackend]] = {
            "local": self._local,
            "ray": self._ray,
            "slurm": self._slurm,
            "kubernetes": self._kubernetes,
            "simulated": self._simulated,
        }
        return backends[self.settings.backend](term)

    def _ray(self, term: Term) -> RayBackend:
        """Return the backend on a Ray cluster. Nothing is discovered here: its nodes join while it runs."""
        note = f"workers are those of Ray at {self.settings.ray_address}"
        self.discovery = Discovery(accelerators=(), notes=(note,))
        return RayBackend(ray=_ray_settings(self.settings), **self._of_nodes(term))

    def _slurm(self, term: Term) -> SlurmBackend:
        """Return the backend on a Slurm cluster. Nothing is discovered here: Slurm lists its nodes."""
        named = self.settings.slurm.partition
        note = f"workers are those of Slurm's {f'partition {named}' if named else 'default partition'}"
        self.discovery = Discovery(accelerators=(), notes=(note,))
        return SlurmBackend(slurm=_slurm_settings(self.settings), **self._of_nodes(term))

    def _kubernetes(self, term: Term) -> KubernetesBackend:
        """Return the backend on a Kubernetes cluster. Nothing is discovered here: its API server lists its nodes."""
        note = f"workers are those of Kubernetes; their pods are in namespace {self.settings.kubernetes.namespace}"
        self.discovery = Discovery(accelerators=(), notes=(note,))
        return KubernetesBackend(kubernetes=_kubernetes_settings(self.settings), **self._of_nodes(term))

    def _of_nodes(self, term: Term) -> OfService:
        """Return the arguments that backends on clusters of nodes have alike."""
        settings, records = self.settings, self.store.snapshot().round_records
        return {
            "state_dir": settings.state_dir,
            "clock": self.clock,
            "lease_grace_s": settings.lease_grace_s,
            "log_bytes_per_job": settings.job_log_bytes,
            "output_bytes_per_job": settings.output_bytes,
            "preparation": self._preparation(),
            "environment": self._environment(),
            "term": term,
            "node_of": node_of_workers(self.store.cluster(), [each.plan for each in records]),
        }

    def _local(self, term: Term) -> LocalBackend:
        settings = self.settings
        self.discovery = discover(settings.virtual_nodes, settings.cpu_workers, settings.cpu_workers_per_core)
        if settings.isolation == "auto" and (problem := bubblewrap().problem):
            note = f"jobs run without a sandbox: {problem}"
            self.discovery = replace(self.discovery, notes=(*self.discovery.notes, note))
        return LocalBackend(
            state_dir=settings.state_dir,
            accelerators=self.discovery.accelerators,
            clock=self.clock,
            lease_grace_s=settings.lease_grace_s,
            log_bytes_per_job=settings.job_log_bytes,
            output_bytes_per_job=settings.output_bytes,
            warm_memory_bytes=settings.warm_memory_bytes,
            on_change=self.clock.wake,
            preparation=self._preparation(),
            environment=self._environment(),
            term=term,
        )

    def _preparation(self) -> Preparation:
        prepared, uids = _preparation(self.settings), uids_of(self.settings.job_users)
        return replace(prepared, uid_of=lambda user: self.store.job_users.uid_of(user, uids)) if uids else prepared

    def _environment(self) -> dict[str, str]:
        return {"GAVEL_URL": self.settings.public_url or self.url}

    def _simulated(self, _: Term) -> SimulatedBackend:
        self.discovery = Discovery(accelerators=(), notes=("the cluster is simulated: no program is run",))
        backend = SimulatedBackend(simulated_cluster(self.settings), self.settings, self.clock)
        backend.resume(self.store.snapshot())
        return backend

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
        state_dir, since_s = self.settings.state_dir, self.clock.now_s()
        if self.settings.backend != "local":
            return lambda job_id, generation: None
        return lambda job_id, generation: max(since_s, last_use_s(state_dir, job_id, generation))


def _preparation(settings: Settings) -> Preparation:
    return Preparation(
        setup_limit_s=settings.setup_limit_s,
        data_hosts=tuple(settings.data_hosts.split()),
        data_limit_s=settings.data_limit_s,
        data_cache_bytes=settings.data_cache_bytes,
        image_command=shlex.split(settings.image_command),
        image_options=shlex.split(settings.image_options),
        isolation=settings.isolation,
        shown_folders=tuple(settings.sandbox_folders.split()),
        job_folders=partial(job_folders_of, settings.job_folders),
        hidden_paths=_private_paths(settings),
        job_users=settings.job_users,
        secrets_of=secret_store(settings).values,
    )


def _private_paths(settings: Settings) -> tuple[str, ...]:
    """Return the files outside the state folder that only the service may read."""
    database = make_url(settings.url)
    stored = database.database if database.drivername.startswith("sqlite") else None
    files = (settings.secrets_key_file, settings.tls_key_file, stored, CONFIGURATION, "/etc/gavel")
    return tuple(str(Path(each).resolve()) for each in files if each)


def _ray_settings(settings: Settings) -> RaySettings:
    return RaySettings(
        address=settings.ray_address,
        checkpoints=settings.ray_checkpoint_dir,
        outputs=outputs_place(settings),
        keep_code_s=settings.keep_code_s,
        node_folder=settings.ray_node_dir,
        report_period_s=settings.ray_report_period_s,
    )


def _orders_url(settings: Settings) -> str:
    """Return the address at which nodes get orders; "" where they read them in files."""
    return f"{settings.public_url.rstrip('/')}{ORDERS_PATH}" if settings.orders_dir else ""


def _slurm_settings(settings: Settings) -> SlurmSettings:
    own = settings.slurm
    return SlurmSettings(
        folder=str(settings.orders_dir or own.shared_dir),
        orders_url=_orders_url(settings),
        certificates=own.ca_file.read_text() if own.ca_file else "",
        checkpoints=own.checkpoints,
        outputs=outputs_place(settings),
        keep_code_s=settings.keep_code_s,
        node_folder=own.node_dir,
        partition=own.partition,
        account=own.account,
        accounts=own.accounts,
        gres=tuple(own.gres),
        type_features=tuple(own.type_features),
        limit_s=own.limit_s,
        pending_limit_s=own.pending_limit_s,
        chooses_nodes=own.placement == "slurm",
        cpus_per_worker=own.cpus_per_worker,
        options=tuple(shlex.split(own.options)),
    )


def _kubernetes_settings(settings: Settings) -> KubernetesSettings:
    own = settings.kubernetes
    return KubernetesSettings(
        kubeconfig=own.kubeconfig,
        context=own.context,
        namespace=own.namespace,
        folder=str(settings.orders_dir or Path(own.shared_dir).expanduser().resolve()),
        shared_dir=str(Path(own.shared_dir).expanduser().resolve()) if own.needs_shared_dir else "",
        orders_url=_orders_url(settings),
        certificates=own.ca_file.read_text() if own.ca_file else "",
        checkpoints=own.checkpoints,
        outputs=outputs_place(settings),
        keep_code_s=settings.keep_code_s,
        node_folder=own.node_dir,
        image=own.image,
        python=own.python,
        resources=tuple(own.resources),
        shared_volume=own.shared_volume,
        node_volume=own.node_volume,
        volumes=tuple(own.volumes),
        mounts=tuple(own.mounts),
        node_selector=own.node_selector,
        tolerations=tuple(own.tolerations),
        pull_secrets=tuple(own.pull_secrets),
        service_account=own.service_account,
        scheduler=own.scheduler,
        bind_limit_s=own.bind_limit_s,
        start_limit_s=own.start_limit_s,
    )


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
