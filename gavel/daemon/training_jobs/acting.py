"""Does what was decided for an object, and writes its status where it has changed."""

import time
from collections.abc import Callable, Collection, Mapping
from typing import Any
from urllib.parse import quote

import structlog
from fastapi_problem.error import Problem

from api.services import Services
from api.views.jobs_and_rounds import leases_in_force
from gavel.backends.kubernetes.api import Api, Refused, items_of
from gavel.config import KubernetesSection
from gavel.daemon.training_jobs import status as statuses
from gavel.daemon.training_jobs.decision import Act, Deed, KnownJob
from gavel.daemon.training_jobs.definition import API_VERSION, KIND, OBJECTS
from gavel.daemon.training_jobs.objects import FINALIZER, TrainingObject
from gavel.daemon.training_jobs.status import Status
from gavel.daemon.training_jobs.submission import Declined, edited, has_ended, submitted
from gavel.errors import BackendUnavailable, Conflict, GavelError, StoreUnavailable
from gavel.mechanism.explaining.expected_end import job_end
from gavel.ports import Snapshot
from gavel.types import Cluster, Job, JobId, Lease

log = structlog.get_logger("gavel.training_jobs")

MERGE = "application/merge-patch+json"
FIGURES_EVERY_S = 20.0
REST_S = 60.0  # what is refused now may be accepted when a node or a tier has come
GONE, CONFLICT = 404, 409


class Acting:
    """Acts for the objects of one cluster. One thread uses it."""

    def __init__(self, api: Api, services: Services, section: KubernetesSection, manager: str) -> None:
        self._api, self._services, self._section, self._manager = api, services, section, manager
        self._cluster, self._leases = Cluster(), dict[JobId, Lease]()
        self._figures_due_s: dict[str, float] = {}  # by uid; monotonic
        self._rests_until_s: dict[tuple[str, int], float] = {}  # by uid and generation; monotonic
        self._deeds = {
            Deed.HOLD: self._hold,
            Deed.SUBMIT: self._submit,
            Deed.EDIT: self._edit,
            Deed.CANCEL: self._cancel,
            Deed.LET_GO: self._let_go,
            Deed.CLOSE: self._close,
        }

    def look(self, snapshot: Snapshot, uids: Collection[str]) -> None:
        """Take what jobs hold now, and forget all objects but these."""
        plans = [record.plan for record in reversed(snapshot.round_records)]
        self._leases = dict(leases_in_force(plans, snapshot.jobs))
        self._cluster = self._services.store.cluster()
        self._figures_due_s = {uid: due_s for uid, due_s in self._figures_due_s.items() if uid in uids}

    def resting(self) -> frozenset[tuple[str, int]]:
        """Return what was refused a moment ago, by uid and generation."""
        now_s = time.monotonic()
        self._rests_until_s = {each: until_s for each, until_s in self._rests_until_s.items() if until_s > now_s}
        return frozenset(self._rests_until_s)

    def do(self, act: Act) -> str:
        """Do it; what cannot be done now is decided anew at the next look.

        Return what an operator has to change, "" if nothing. Raises BackendUnavailable, StoreUnavailable.
        """
        seen = act.seen
        if seen is None:
            return self._attempt(act.uid, lambda: self._cancel_without_object(act.uid, act.job))
        return self._attempt(act.uid, lambda: self._deeds[act.deed](seen, act.job))

    def show(self, seen: TrainingObject, job: Job) -> str:
        """Write the status of an object if its job has changed, or its figures are old; return and raise as `do`."""
        return self._attempt(seen.uid, lambda: self._show(seen, job))

    def _attempt(self, uid: str, call: Callable[[], None]) -> str:
        """Call it, so that the trouble of one object is not that of the others."""
        try:
            call()
        except Refused as refusal:  # of an object that has changed since it was seen: nothing is wrong
            return "" if refusal.status in (GONE, CONFLICT) else str(refusal)
        except (BackendUnavailable, StoreUnavailable):
            raise
        except (Problem, GavelError) as error:
            log.info("training_job.not_yet", uid=uid, reason=error.detail if isinstance(error, Problem) else str(error))
        except Exception:  # the boundary of one object
            log.exception("training_job.failed", uid=uid)
        return ""

    def _show(self, seen: TrainingObject, job: Job) -> None:
        is_due = time.monotonic() >= self._figures_due_s.get(seen.uid, 0.0)
        shown = {**self._status(job, with_end=is_due), **statuses.kept(seen.status)}
        if is_due or statuses.without_figures(shown) != statuses.without_figures(seen.status):
            if not is_due:
                shown = {**self._status(job, with_end=True), **statuses.kept(seen.status)}
            self._write(seen, shown)
            self._figures_due_s[seen.uid] = time.monotonic() + FIGURES_EVERY_S

    # --- deeds ------------------------------------------------------------------------------------------------------

    def _hold(self, seen: TrainingObject, _: KnownJob | None) -> None:
        self._set_finalizers(seen, [*seen.finalizers, FINALIZER])

    def _let_go(self, seen: TrainingObject, _: KnownJob | None) -> None:
        self._set_finalizers(seen, [each for each in seen.finalizers if each != FINALIZER])

    def _submit(self, seen: TrainingObject, _: KnownJob | None) -> None:
        try:
            job = submitted(seen, self._services, self._section)
        except Declined as declined:
            self._refuse(seen, declined)
            return
        if job is not None:
            log.info("training_job.submitted", namespace=seen.namespace, name=seen.name, job_id=job.id)
            self._accept(seen, job)

    def _edit(self, seen: TrainingObject, job: KnownJob | None) -> None:
        try:
            if job is None:  # it has ended, and may have been purged since
                raise has_ended(seen.job_id)
            changed = edited(seen, self._services.store.job(job.id), self._services, self._section)
        except Declined as declined:
            self._refuse(seen, declined)
            return
        self._accept(seen, changed)

    def _cancel(self, seen: TrainingObject, job: KnownJob | None) -> None:
        assert job is not None, "only a job that is known is cancelled"
        self._request_cancel(job)

    def _close(self, seen: TrainingObject, _: KnownJob | None) -> None:
        self._write(seen, statuses.gone(seen.status, self._services.clock.now_s()))

    def _cancel_without_object(self, uid: str, job: KnownJob | None) -> None:
        """Cancel a job whose object is not there by a list made now: what is watched may be late."""
        assert job is not None, "only a job that is known is cancelled"
        there = {each["metadata"]["uid"] for each in items_of(self._api.get(OBJECTS, limit="0"))}
        if uid not in there:
            log.warning("training_job.without_object", job_id=job.id, uid=uid)
            self._request_cancel(job)

    def _request_cancel(self, job: KnownJob) -> None:
        store = self._services.store
        try:
            store.request_cancel(job.id, now_s=self._services.clock.now_s(), by=store.job(job.id).spec.user)
        except Conflict:
            log.info("training_job.ended_before", job_id=job.id)

    # --- writing ----------------------------------------------------------------------------------------------------

    def _set_finalizers(self, seen: TrainingObject, finalizers: list[str]) -> None:
        names = {"resourceVersion": seen.version, "finalizers": finalizers}
        self._api.patch(seen.path, {"metadata": names}, MERGE)

    def _accept(self, seen: TrainingObject, job: Job) -> None:
        now_s = self._services.clock.now_s()
        self._write(seen, {**self._status(job, with_end=True), **statuses.acceptance(seen.status, seen, now_s)})

    def _refuse(self, seen: TrainingObject, declined: Declined) -> None:
        now_s = self._services.clock.now_s()
        self._write(seen, statuses.refusal(seen.status, seen, declined.reason, declined.message, now_s))
        if not seen.job_id:
            self._rests_until_s[seen.uid, seen.generation] = time.monotonic() + REST_S

    def _status(self, job: Job, *, with_end: bool) -> Status:
        finish = None
        if with_end and not job.state.is_terminal:
            finish = job_end(job, self._services.knowledge()).finish
        return statuses.status_of(job, self._leases.get(job.id), self._cluster, finish)

    def _write(self, seen: TrainingObject, after: Mapping[str, Any]) -> None:
        """Write a status that has changed, after the events that this is: one that is sent again is not a second.

        It is refused if the object has changed since: another may have its name by now, and a uid is not looked at.
        """
        if after == seen.status:
            return
        for event in statuses.events(seen, after, self._services.clock.now_s()):
            self._tell(event)
        names = {"name": seen.name, "namespace": seen.namespace, "resourceVersion": seen.version}
        body = {"apiVersion": API_VERSION, "kind": KIND, "metadata": names, "status": dict(after)}
        self._api.apply(f"{seen.path}/status", body, self._manager)

    def _tell(self, event: Mapping[str, Any]) -> None:
        """Send an event. Without the right to, objects are served without events."""
        namespace = quote(event["metadata"]["namespace"], safe="")
        try:
            self._api.create(f"/api/v1/namespaces/{namespace}/events", event)
        except Refused as refusal:
            if refusal.status != CONFLICT:
                log.warning("training_job.event_refused", reason=str(refusal))
