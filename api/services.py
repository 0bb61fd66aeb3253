"""What the API needs: passed to `create_app`, and given to routes as `ServicesDep`."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, cast

from fastapi import Depends, Request

from api.schemas import AllocationView, CatalogueEntry
from api.views.forecasts import Forecasts
from api.views.grouping import grouped_view
from api.views.memo import Memo
from api.views.present import Present, PresentReader
from api.views.throughputs import Estimators, stored_estimators
from gavel.backends.code_store import CodeStore
from gavel.backends.git_fetches import GitFetches, git_limits
from gavel.backends.secret_store import SecretStore, secret_store
from gavel.backends.several.results import (
    OneCheckpoints,
    OneOutputs,
    SeveralCheckpoints,
    SeveralOutputs,
    all_checkpoints,
    all_outputs,
)
from gavel.config import Settings
from gavel.estimator.reconciled import ReconciledThroughputs
from gavel.mechanism.explaining.expected_end import Knowledge
from gavel.ports import ApiStore, Clock, Snapshot
from gavel.types import JobId
from gavel.types.findings import Finding

ReadLog = Callable[[JobId, int, int], tuple[bytes, int]]


def installed_catalogue() -> Mapping[str, CatalogueEntry]:
    """Return the job kinds that come with Gavel, by name."""
    from workloads.catalogue import CATALOGUE, argv_of

    return {
        name: CatalogueEntry(name=name, description=kind.description, argv=list(argv_of(name)))
        for name, kind in sorted(CATALOGUE.items())
    }


def code_store(settings: Settings) -> CodeStore:
    """Return the store of the code that jobs run."""
    return CodeStore(
        settings.state_dir.resolve(),
        limit_bytes=settings.code_bytes,
        kept_s=settings.keep_code_s,
        user_limit_bytes=settings.user_code_bytes,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """Ports and settings. `read_log(job_id, offset, limit_bytes)` returns bytes and the next offset to ask for."""

    store: ApiStore
    settings: Settings
    clock: Clock
    read_log: ReadLog
    is_scheduler_alive: Callable[[], bool]
    leads_scheduler: Callable[[], bool] = lambda: True  # whether this process is the one that plans
    cluster_notes: Callable[[], Sequence[str]] = tuple  # what is wrong with the cluster as a whole
    scheduler_trouble: Callable[[], str] = str  # how this service's own scheduler ended lately; empty: it did not end
    findings: Callable[[], Iterable[Finding]] = tuple  # what `gavel doctor` finds on this machine
    catalogue: Mapping[str, CatalogueEntry] = field(default_factory=installed_catalogue)
    code: CodeStore = field(init=False)
    git: GitFetches = field(init=False)
    outputs: OneOutputs | SeveralOutputs = field(init=False)
    checkpoints: OneCheckpoints | SeveralCheckpoints = field(init=False)
    secrets: SecretStore = field(init=False)
    forecasts: Forecasts = field(default_factory=Forecasts)
    estimators: Estimators = field(default_factory=stored_estimators)
    present: PresentReader = field(init=False)
    matrices: Memo[AllocationView] = field(default_factory=lambda: Memo(grouped_view, kept_s=1.0))

    def __post_init__(self) -> None:
        """Open the stores of code versions and of secrets and the jobs' output folders, which the settings name."""
        object.__setattr__(self, "code", code_store(self.settings))
        fetches = GitFetches(self.settings.state_dir.resolve(), self.code, git_limits(self.settings))
        object.__setattr__(self, "git", fetches)
        object.__setattr__(self, "outputs", all_outputs(self.settings))
        object.__setattr__(self, "checkpoints", all_checkpoints(self.settings))
        object.__setattr__(self, "secrets", secret_store(self.settings))
        object.__setattr__(self, "present", PresentReader(self.store.snapshot, self._derived))

    def _derived(self, snapshot: Snapshot) -> Present:
        return Present(snapshot, self.store.cluster(), tuple(self.cluster_notes()), self.clock.now_s())

    def estimator(self) -> ReconciledThroughputs:
        """Return the throughput estimator of the estimates that the scheduler committed last."""
        return self.estimators.of(self.store.throughputs())

    def knowledge(self) -> Knowledge:
        """Return what is known now of when jobs start and end."""
        return self.forecasts.knowledge(self.store, self.estimator(), self.settings, self.clock.now_s())


async def services_of(request: Request) -> Services:
    """Return the services of the app that serves this request."""
    return cast(Services, request.app.state.services)


ServicesDep = Annotated[Services, Depends(services_of)]
