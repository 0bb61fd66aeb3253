"""A service's part that serves TrainingJob objects: a real store and the API's rules over an API server."""

import re
import textwrap
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from api.services import Services
from gavel.backends.kubernetes.api import Api, Object, Refused, items_of
from gavel.backends.kubernetes.control_plane import ControlPlane
from gavel.clock import SystemClock
from gavel.config import Settings
from gavel.daemon.training_jobs.controller import TrainingJobs, training_jobs
from gavel.daemon.training_jobs.definition import API_VERSION, FOLDER, KIND, OBJECTS, PLURAL, definition
from gavel.errors import BackendUnavailable
from gavel.ports import Changes, JobFilter
from gavel.store.sql import SqlStore
from gavel.types import Job, JobState, Tier
from tests.builders import a_cluster

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
MERGE = "application/merge-patch+json"
LIMIT_S = 30.0
DOCS = Path(__file__).parents[3] / "docs" / "kubernetes.md"
BODY = {"argv": ["python", "train.py"], "total_steps": 1000, "scale_factor": 2}


def eventually(holds: Callable[[], Any], limit_s: float = LIMIT_S) -> Any:
    """What it returns, once that is true."""
    end_s = time.monotonic() + limit_s
    while not (value := holds()):
        assert time.monotonic() < end_s, "the condition did not come true in time"
        time.sleep(0.02)
    return value


def section_of_docs() -> list[str]:
    """The indented blocks of the section on kubectl in docs/kubernetes.md."""
    text = DOCS.read_text().split("## Jobs by kubectl\n")[1].split("\n## ")[0]
    parts = re.findall(r"(?:(?:^    .*)?\n)+", text, re.MULTILINE)
    return [textwrap.dedent(each).strip() for each in parts if each.strip()]


def blocks(words: str) -> list[Object]:
    """The objects there that have these words in their text."""
    return [yaml.safe_load(each) for each in section_of_docs() if each.startswith("apiVersion") and words in each]


def commands_of_docs() -> list[str]:
    """The commands there."""
    return [line for each in section_of_docs() if "kubectl " in each for line in each.splitlines()]


def define(api: Api) -> None:
    """The cluster has the kind, if it had not."""
    with suppress(Refused):
        api.create(DEFINITIONS, definition())
    eventually(lambda: _is_there(api, OBJECTS))


@contextmanager
def a_plane_with_the_kind(*users: str) -> Iterator[ControlPlane]:
    """A control plane that has the kind. It is not that of other tests: some builds end when they take an object.

    The test is skipped on these: the release that can be built anywhere brings a library for Go up to 1.17.
    """
    with ControlPlane(users=users) as plane:
        api = Api(str(plane.kubeconfig), "", Counter())
        define(api)
        path = f"{FOLDER}/namespaces/default/{PLURAL}"
        try:
            api.create(path, object_body("probe", BODY))
            api.delete(f"{path}/probe")
        except BackendUnavailable:
            pytest.skip("this API server ends when it takes an object of a defined kind: see docs/kubernetes.md")
        yield plane


def object_body(name: str, spec: Mapping[str, Any]) -> Object:
    """An object as users make it."""
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name}, "spec": spec}


def _is_there(api: Api, path: str) -> bool:
    try:
        api.get(path, limit="0")
    except Refused:
        return False
    return True


class Served:
    """One service over one namespace of a cluster. Its store survives `restart`, as a database does."""

    def __init__(self, folder: Path, kubeconfig: Path, namespace: str, **section: Any) -> None:
        self.folder, self.namespace = folder, namespace
        self.api = Api(str(kubeconfig), "", Counter())
        own = {"kubeconfig": str(kubeconfig), "training_jobs": "mapped", "namespace_users": {namespace: "ann"}}
        self.settings = Settings(state_dir=folder, backend="kubernetes", kubernetes={**own, **section})  # type: ignore[arg-type]
        self.clock = SystemClock()
        self.store = SqlStore(f"sqlite:///{folder / 'gavel.db'}", jobs_per_user=3)
        if not self.store.cluster().workers:
            self.store.put_tier(Tier(name="gold"), expected_version=None, by="test", now_s=0.0)
            self.change(cluster=a_cluster(fast=2, slow=4))
        self.leads = True
        self.services = Services(
            store=self.store,
            settings=self.settings,
            clock=self.clock,
            read_log=lambda *_: (b"", 0),
            is_scheduler_alive=lambda: True,
            leads_scheduler=lambda: self.leads,
        )
        self.controller: TrainingJobs | None = None

    # --- the service ---

    def start(self) -> None:
        self.controller = training_jobs(self.services)
        self.controller.start()

    def stop(self) -> None:
        if self.controller is not None:
            self.controller.close()
            assert not self.controller.is_alive()

    def change(self, *jobs: Job, **over: Any) -> None:
        """Commit what the scheduler would commit."""
        self.store.commit(self.store.snapshot().version, Changes(jobs=jobs, **over))

    def jobs(self) -> tuple[Job, ...]:
        """All jobs, newest first."""
        return self.store.jobs(JobFilter(), limit=200).jobs

    def job(self) -> Job:
        """The one job."""
        (only,) = self.jobs()
        return only

    def ends(self, state: JobState, **over: Any) -> Job:
        """The one job ends, as the scheduler would commit it."""
        now_s = self.clock.now_s()
        ended = replace(self.job(), state=state, started_at_s=now_s, finished_at_s=now_s, **over)
        self.change(ended)
        return ended

    # --- its users ---

    @property
    def objects(self) -> str:
        return f"{FOLDER}/namespaces/{self.namespace}/{PLURAL}"

    def create(self, name: str, spec: Mapping[str, Any] = BODY) -> Object:
        return self.api.create(self.objects, object_body(name, spec))

    def change_spec(self, name: str, **fields: Any) -> Object:
        return self.api.patch(f"{self.objects}/{name}", {"spec": fields}, MERGE)

    def delete(self, name: str) -> None:
        self.api.delete(f"{self.objects}/{name}")

    def shown(self, name: str) -> Object:
        return self.api.get(f"{self.objects}/{name}")

    def status(self, name: str) -> Mapping[str, Any]:
        status: Mapping[str, Any] = self.shown(name).get("status") or {}
        return status

    def is_gone(self, name: str) -> bool:
        return not _is_there(self.api, f"{self.objects}/{name}")

    def until(self, name: str, **fields: Any) -> Mapping[str, Any]:
        """The status, once it has these fields."""
        return eventually(lambda: (now := self.status(name)) and fields.items() <= now.items() and now)  # type: ignore[no-any-return]

    def events(self) -> list[tuple[str, str]]:
        """What was told, as (type, reason), by name."""
        listed = items_of(self.api.get(f"/api/v1/namespaces/{self.namespace}/events", limit="0"))
        return sorted((each["type"], each["reason"]) for each in listed)

    def close(self) -> None:
        """Nothing is left of the service; its objects go, too."""
        self.stop()
        for each in items_of(self.api.get(self.objects, limit="0")):
            path = f"{self.objects}/{each['metadata']['name']}"
            with suppress(Refused):
                self.api.patch(path, {"metadata": {"finalizers": None}}, MERGE)
                self.api.delete(path)
        self.store.close()


@contextmanager
def served(folder: Path, kubeconfig: Path, namespace: str, **section: Any) -> Iterator[Served]:
    """A service that serves the objects of a namespace of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    made = Served(folder, kubeconfig, namespace, **section)
    with suppress(Refused):
        made.api.create(
            "/api/v1/namespaces", {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": namespace}}
        )
    made.start()
    try:
        yield made
    finally:
        made.close()
