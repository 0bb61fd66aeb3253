"""The thread that keeps jobs as the cluster's objects of the kind TrainingJob say, while this service leads."""

import threading
from collections import Counter
from collections.abc import Mapping, Sequence

import structlog

from api.services import Services
from gavel.backends.kubernetes.api import Api, Refused
from gavel.backends.kubernetes.protocol import DOMAIN
from gavel.backends.kubernetes.rights import Right, Rights
from gavel.backends.kubernetes.watching import Watched
from gavel.config import KubernetesSection
from gavel.daemon.training_jobs.acting import Acting
from gavel.daemon.training_jobs.decision import KnownJob, acts
from gavel.daemon.training_jobs.definition import FOLDER, OBJECTS, PLURAL
from gavel.daemon.training_jobs.objects import TrainingObject, object_of
from gavel.daemon.training_jobs.submission import OBJECT_LABEL, is_of_object, job_with_label, user_of
from gavel.errors import BackendUnavailable, NotFound, StoreUnavailable
from gavel.ports import Snapshot
from gavel.types import Job

log = structlog.get_logger("gavel.training_jobs")

LOOK_EVERY_S = 1.0
SERVED_EVERY_S = 10.0  # how often it is asked whether the cluster has the kind by now
CLOSE_LIMIT_S = 10.0
NOT_FOUND = 404

OF_OBJECTS = (
    *(Right(verb=verb, group=DOMAIN, resource=PLURAL) for verb in ("list", "watch", "patch")),
    Right(verb="patch", group=DOMAIN, resource=f"{PLURAL}/status"),
    Right(verb="create", resource="events"),
)
"""What is called besides what the backend calls."""


class TrainingJobs(threading.Thread):
    """Serves the objects of a cluster until it is closed. A look that fails is logged, and the next one comes."""

    def __init__(self, api: Api, services: Services, section: KubernetesSection, manager: str) -> None:
        super().__init__(name="gavel-training-jobs", daemon=True)
        self._api, self._services, self._section = api, services, section
        self._acting = Acting(api, services, section, manager)
        self._rights = Rights(api, OF_OBJECTS, section.namespace)
        self._ends, self._work = threading.Event(), threading.Event()
        self._problem = ""

    def notes(self) -> tuple[str, ...]:
        """Return what is wrong, for the page that shows what is wrong with the cluster."""
        problems = dict.fromkeys(filter(None, (self._problem, *self._rights.missing)))
        return tuple(f"TrainingJob objects: {each}" for each in problems)

    def close(self) -> None:
        """End after the look in progress."""
        self._ends.set()
        self._work.set()
        if self.is_alive():
            self.join(CLOSE_LIMIT_S)

    def run(self) -> None:
        """Wait until the cluster has the kind, then look whenever an object has changed, and every LOOK_EVERY_S."""
        while not self._is_served():
            if self._ends.wait(SERVED_EVERY_S):
                return
        watched = Watched[TrainingObject](self._api, OBJECTS, object_of, self._work.set)
        watched.start()
        while not self._ends.is_set():
            self._rights.look()
            self._attempt(watched)
            self._work.wait(LOOK_EVERY_S)
            self._work.clear()
        watched.close()

    def _is_served(self) -> bool:
        """Return whether the cluster has the kind, by what any user may ask."""
        try:
            self._api.get(FOLDER)
        except (Refused, BackendUnavailable) as problem:
            is_missing = isinstance(problem, Refused) and problem.status == NOT_FOUND
            self._problem = "" if is_missing else str(problem)
            return False
        self._problem = ""
        return True

    def _attempt(self, watched: Watched[TrainingObject]) -> None:
        self._problem = watched.problem
        if self._problem or not watched.has_listed or not self._services.leads_scheduler():
            return
        try:
            self.look([*watched.objects().values()])
        except (BackendUnavailable, StoreUnavailable) as problem:
            self._problem = str(problem)
            log.warning("training_jobs.look_failed", error=str(problem))
        except Exception:  # the boundary of the thread: the next look may succeed
            log.exception("training_jobs.look_failed")

    def _is_ours(self, seen: TrainingObject) -> bool:
        return self._section.training_jobs == "all" or seen.namespace in self._section.namespace_users

    def look(self, there: Sequence[TrainingObject]) -> None:
        """Do what is to be done for our objects, and for jobs without one; then write what has changed of jobs.

        `there`: all objects of the cluster. Raises BackendUnavailable, StoreUnavailable.
        """
        snapshot = self._services.present.get().snapshot
        objects = [each for each in there if self._is_ours(each)]
        jobs = self._jobs(objects, snapshot)
        self._acting.look(snapshot, {each.uid for each in objects})
        seen_uids = {each.uid for each in there}  # whoever submits may write the label of another's object
        without = {uid: job for uid, job in _labelled(snapshot).items() if uid not in seen_uids}
        stored = {uid: _stored(job) for uid, job in {**without, **jobs}.items()}
        decided = acts(objects, stored, self._acting.resting())
        problems = [self._acting.do(act) for act in decided]
        acted = {act.uid for act in decided}
        shown = [each for each in objects if each.uid in jobs and each.uid not in acted and not each.is_deleting]
        problems += [self._acting.show(seen, jobs[seen.uid]) for seen in shown]
        self._problem = next(filter(None, problems), "")

    def _jobs(self, objects: Sequence[TrainingObject], snapshot: Snapshot) -> Mapping[str, Job]:
        """Return the stored jobs of objects, by uid; those of which the status says that they have ended are not read.

        One that was submitted without a status that says so is found by its label.
        """
        jobs: dict[str, Job] = {}
        for seen in objects:
            if seen.is_over or not (seen.job_id or seen.is_held):
                continue
            job = self._named(seen, snapshot) if seen.job_id else None
            job = job or (None if seen.job_id else job_with_label(seen, self._services, self._section))
            if job is not None:
                jobs[seen.uid] = job
        return jobs

    def _named(self, seen: TrainingObject, snapshot: Snapshot) -> Job | None:
        """Return the job that a status names, if it is that of the object: others may have written the status."""
        try:
            job = snapshot.jobs.get(seen.job_id) or self._services.store.job(seen.job_id)
        except NotFound:
            return None
        uid = job.spec.labels.get(OBJECT_LABEL)  # none: its user has replaced all labels
        is_its_own = uid == seen.uid or (uid is None and job.spec.user == user_of(seen, self._section))
        return job if is_its_own else None


def _labelled(snapshot: Snapshot) -> Mapping[str, Job]:
    """Return the unfinished jobs that objects made, by the uid of the object."""
    return {job.spec.labels[OBJECT_LABEL]: job for job in snapshot.jobs.values() if is_of_object(job)}


def _stored(job: Job) -> KnownJob:
    return KnownJob(id=job.id, has_ended=job.state.is_terminal, is_cancelled=job.cancel_requested)


def training_jobs(services: Services) -> TrainingJobs:
    """Return the thread for the cluster of the settings, not yet started. Raises InvalidRequest without one."""
    section = services.settings.kubernetes
    api = Api(section.kubeconfig, section.context, Counter())
    return TrainingJobs(api, services, section, f"gavel-{section.namespace}")
