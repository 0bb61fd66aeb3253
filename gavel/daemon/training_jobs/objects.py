"""An object of the kind TrainingJob, as the watch shows it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from gavel.backends.kubernetes.api import Object
from gavel.backends.kubernetes.protocol import DOMAIN
from gavel.daemon.training_jobs.definition import FOLDER, PLURAL

FINALIZER = f"{DOMAIN}/cancel-job"
"""Keeps a deleted object until its job's cancellation is stored, also while the service is away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingObject:
    """An object: who it is, what its user wants, and the status that was written last."""

    namespace: str
    name: str
    uid: str
    version: str
    generation: int
    is_deleting: bool
    finalizers: tuple[str, ...]
    spec: Mapping[str, Any]
    status: Mapping[str, Any]

    @property
    def path(self) -> str:
        """Return where the API server has it."""
        return f"{FOLDER}/namespaces/{quote(self.namespace, safe='')}/{PLURAL}/{quote(self.name, safe='')}"

    @property
    def is_held(self) -> bool:
        """Return whether it stays when it is deleted, until the service lets it go."""
        return FINALIZER in self.finalizers

    @property
    def job_id(self) -> str:
        """Return the job that its status names; "" if none was submitted, or the status was not written."""
        return str(self.status.get("job") or "")

    @property
    def is_over(self) -> bool:
        """Return whether its status says that the job has ended: it stays so."""
        return bool(self.status.get("endedAt"))

    @property
    def observed_generation(self) -> int:
        """Return the newest generation of `spec` that the service has taken or refused; 0: none."""
        return int(self.status.get("observedGeneration") or 0)


def object_of(shown: Object) -> TrainingObject:
    """Return what the service reads of an object. Whoever may write the status may write anything into it."""
    names, spec, status = shown["metadata"], shown.get("spec"), shown.get("status")
    return TrainingObject(
        namespace=str(names["namespace"]),
        name=str(names["name"]),
        uid=str(names["uid"]),
        version=str(names["resourceVersion"]),
        generation=int(names.get("generation") or 1),
        is_deleting=bool(names.get("deletionTimestamp")),
        finalizers=tuple(names.get("finalizers") or ()),
        spec=spec if isinstance(spec, Mapping) else {},
        status=status if isinstance(status, Mapping) else {},
    )
