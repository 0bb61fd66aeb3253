"""Accelerator types on which a job kind was seen not to fit."""

import hashlib
from dataclasses import dataclass

from gavel.types.cluster import AcceleratorType
from gavel.types.jobs import JobId


@dataclass(frozen=True, slots=True, kw_only=True)
class InfeasibleType:
    """A mark: gangs of this kind and size do not fit on the type. It holds for jobs of `user` only.

    `evidence` is what was seen, such as the line of the log; `job_id` the job of which it was seen, at `at_s`.
    """

    user: str
    kind: str
    scale_factor: int
    accelerator_type: AcceleratorType
    evidence: str
    job_id: JobId
    at_s: float

    @property
    def id(self) -> str:
        """Return a name for the mark, made of what it says of whom."""
        key = "\0".join((self.user, self.kind, str(self.scale_factor), self.accelerator_type))
        return hashlib.sha256(key.encode()).hexdigest()[:16]
