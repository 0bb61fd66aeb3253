"""The backend that the settings name, opened for one term of a leader; or several of them, each for a region."""

import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from sqlalchemy import make_url

from gavel.backends.accelerators import Discovery, discover
from gavel.backends.kubernetes.backend import KubernetesBackend
from gavel.backends.kubernetes.protocol import KubernetesSettings
from gavel.backends.launch import Preparation
from gavel.backends.local import LocalBackend
from gavel.backends.nameable_folders import job_folders_of
from gavel.backends.nodes.numbering import node_of_workers
from gavel.backends.nodes.of_service import OfService
from gavel.backends.nodes.relay import ORDERS_PATH
from gavel.backends.nodes.stored_outputs import outputs_place
from gavel.backends.ray.backend import RayBackend
from gavel.backends.ray.protocol import RaySettings
from gavel.backends.sandbox import bubblewrap
from gavel.backends.secret_store import secret_store
from gavel.backends.several.backend import SeveralBackend
from gavel.backends.several.homes import orders_folder, region_dir, regions_dir
from gavel.backends.several.names import inner_nodes, inner_records
from gavel.backends.several.output_copies import OutputCopies
from gavel.backends.slurm.backend import SlurmBackend
from gavel.backends.slurm.protocol import SlurmSettings
from gavel.clock import SystemClock
from gavel.config import CONFIGURATION, Settings
from gavel.config_checks import SEVERAL
from gavel.simulator.simulated_backend import SimulatedBackend, simulated_cluster
from gavel.store.sql import SqlStore
from gavel.types import Term
from gavel.types.job_uids import uids_of
from gavel.types.rounds import may_run_s_of

OneBackend = LocalBackend | RayBackend | SlurmBackend | KubernetesBackend | SimulatedBackend
ServedBackend = OneBackend | SeveralBackend


@dataclass(frozen=True, kw_only=True)
class Opening:
    """Opens the backend of the settings; `region` is its region where it is one of several, else ""."""

    settings: Settings
    clock: SystemClock
    store: SqlStore
    url: str
    term: Term
    discovery: Discovery
    region: str = ""

    def backend(self) -> ServedBackend:
        """Return the backend, or several as one. Raises BackendUnavailable or InvalidRequest if it cannot be opened."""
        return self._several() if self.settings.backend == SEVERAL else self.one()

    def _several(self) -> SeveralBackend:
        settings, state_dir = self.settings, self.settings.state_dir.resolve()
        return SeveralBackend(
            state_dir=regions_dir(state_dir),
            logs=state_dir,
            regions={
                name: (own.backend, replace(self, settings=own, region=name).one)
                for name, own in settings.by_region.items()
            },
            clock=self.clock,
            lease_grace_s=settings.lease_grace_s,
            checkpoints={name: _checkpoints_place(own) for name, own in settings.by_region.items()},
            outputs=OutputCopies(
                {name: outputs_place(own) for name, own in settings.by_region.items()}, settings.output_bytes
            ),
            term=self.term,
            may_run_s=may_run_s_of(self.store.snapshot().round_records),
        )

    def one(self) -> OneBackend:
        """Return the backend of one cluster. Raises BackendUnavailable or InvalidRequest if it cannot be opened."""
        backends: dict[str, Callable[[], OneBackend]] = {
            "local": self._local,
            "ray": lambda: RayBackend(ray=_ray_settings(self.settings), **self._of_nodes()),
            "slurm": lambda: SlurmBackend(slurm=_slurm_settings(self.settings), **self._of_nodes()),
            "kubernetes": lambda: KubernetesBackend(kubernetes=_kubernetes_settings(self.settings), **self._of_nodes()),
            "simulated": self._simulated,
        }
        return backends[self.settings.backend]()

    @property
    def _state_dir(self) -> Path:
        state_dir = self.settings.state_dir
        return region_dir(state_dir, self.region) if self.region else state_dir

    @property
    def _kept(self) -> Path | None:
        return self.settings.state_dir if self.region else None

    def _of_nodes(self) -> OfService:
        """Return the arguments that backends on clusters of nodes have alike."""
        settings, records = self.settings, self.store.snapshot().round_records
        node_of = node_of_workers(self.store.cluster(), [each.plan for each in records])
        return {
            "state_dir": self._state_dir,
            "clock": self.clock,
            "lease_grace_s": settings.lease_grace_s,
            "log_bytes_per_job": settings.job_log_bytes,
            "output_bytes_per_job": settings.output_bytes,
            "preparation": self._preparation(),
            "environment": self._environment(),
            "term": self.term,
            "node_of": inner_nodes(node_of, self.region) if self.region else node_of,
            "kept": self._kept,
        }

    def _local(self) -> LocalBackend:
        settings = self.settings
        return LocalBackend(
            state_dir=self._state_dir,
            accelerators=self.discovery.accelerators,
            clock=self.clock,
            lease_grace_s=settings.lease_grace_s,
            log_bytes_per_job=settings.job_log_bytes,
            output_bytes_per_job=settings.output_bytes,
            warm_memory_bytes=settings.warm_memory_bytes,
            on_change=self.clock.wake,
            preparation=self._preparation(),
            environment=self._environment(),
            term=self.term,
            kept=self._kept,
        )

    def _preparation(self) -> Preparation:
        prepared, uids = _preparation(self.settings), uids_of(self.settings.job_users)
        return replace(prepared, uid_of=lambda user: self.store.job_users.uid_of(user, uids)) if uids else prepared

    def _environment(self) -> dict[str, str]:
        return {"GAVEL_URL": self.settings.public_url or self.url}

    def _simulated(self) -> SimulatedBackend:
        backend = SimulatedBackend(simulated_cluster(self.settings), self.settings, self.clock)
        snapshot = self.store.snapshot()
        records = inner_records(snapshot.round_records, self.region) if self.region else snapshot.round_records
        backend.resume(replace(snapshot, round_records=records))
        return backend


def _checkpoints_place(settings: Settings) -> str:
    """Return the folder of a backend's checkpoints, made where it is in the state folder; or their URL."""
    folder = settings.checkpoints_dir
    if folder is not None and not settings.shared_checkpoints:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return settings.shared_checkpoints if folder is None else str(folder)


def discovered(settings: Settings) -> Discovery:
    """Return the accelerators of this machine that the settings use, and where the workers of each backend are."""
    parts = [_discovered(own) for own in settings.by_region.values()]
    return Discovery(
        accelerators=tuple(each for one in parts for each in one.accelerators),
        notes=tuple(note for one in parts for note in one.notes),
    )


def _discovered(settings: Settings) -> Discovery:
    """Return the accelerators of a local backend; of clusters, whose nodes join while they run, where they are."""
    named = settings.slurm.partition
    elsewhere = {
        "ray": f"workers are those of Ray at {settings.ray_address}",
        "slurm": f"workers are those of Slurm's {f'partition {named}' if named else 'default partition'}",
        "kubernetes": f"workers are those of Kubernetes; their pods are in namespace {settings.kubernetes.namespace}",
        "simulated": "the cluster is simulated: no program is run",
    }
    if settings.backend in elsewhere:
        return Discovery(accelerators=(), notes=(elsewhere[settings.backend],))
    here = discover(settings.virtual_nodes, settings.cpu_workers, settings.cpu_workers_per_core)
    if settings.isolation == "auto" and (problem := bubblewrap().problem):
        here = replace(here, notes=(*here.notes, f"jobs run without a sandbox: {problem}"))
    return here


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
        folder=str(orders_folder(settings)),
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
        folder=str(orders_folder(settings)),
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
        cordons=own.cordons,
    )
