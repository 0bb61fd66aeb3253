"""One gang's allocation: its folder, its agents' files, and what Slurm says of it."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from gavel.backends.nodes.allocation import Allocation
from gavel.backends.nodes.protocol import Group
from gavel.backends.nodes.relay import AgentStart
from gavel.backends.slurm.commands import SlurmJob

HOLDS = {"RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT"}
PREEMPTING = ("TIMEOUT", "PREEMPTED", "DEADLINE")


@dataclass(slots=True, kw_only=True)
class SlurmAllocation(Allocation):
    """It has several jobs of Slurm where its nodes hold different numbers of its workers.

    `wished`: the nodes that it was planned on, where Slurm chooses others; `start`: what its agents are told, for the
    jobs that are still to be submitted.
    """

    jobs: dict[int, SlurmJob] = field(default_factory=dict)
    wished: tuple[str, ...] = ()
    start: AgentStart | None = None
    is_cancelled: bool = False

    @property
    def is_held(self) -> bool:
        """Return True if Slurm counts its resources as used."""
        return any(job.state in HOLDS for job in self.jobs.values())

    @property
    def held(self) -> list[tuple[str, str, int]]:
        """Return the units of each resource that Slurm counts as used by it, on the nodes that Slurm names."""
        jobs = sorted(self.jobs.values(), key=lambda job: job.job_id)  # as they were submitted
        shaped = zip(self.by_units(), jobs, strict=False)
        held = [(resource, units, job) for (resource, units), job in shaped if job.state in HOLDS]
        return [(node, resource, units) for resource, units, job in held for node in job.nodes]

    @property
    def places(self) -> Iterable[str]:
        """Return the nodes to blame if it does not start: those that Slurm gave, or else the planned ones."""
        given = [node for job in self.jobs.values() for node in job.nodes]
        if not self.wished:
            return self.seats
        return given if len(given) == len(self.seats) else self.wished

    @property
    def is_preempted(self) -> bool:
        """Return True if its time was up, or Slurm needed its place."""
        return any(each in self.gone for each in PREEMPTING)

    def by_units(self) -> dict[tuple[str, int], list[str]]:
        """Return the nodes with the same number of units of the same resource: each is a job of Slurm."""
        alike: dict[tuple[str, int], list[str]] = {}
        for node, resource, units in self.bundles:
            alike.setdefault((resource, units), []).append(node)
        return alike

    def take(self, jobs: Mapping[int, SlurmJob], now_boottime_s: float) -> None:
        """Take what Slurm says of its jobs; one that it does not list any more has ended."""
        self.jobs = {job_id: jobs.get(job_id) or _purged(job) for job_id, job in self.jobs.items()}
        self.jobs |= {job.job_id: job for job in jobs.values() if job.comment == str(self.folder)}
        left = [job.left_s for job in self.jobs.values() if job.left_s is not None]
        if left:
            self.end_boottime_s = now_boottime_s + min(left)
        ended = [job for job in self.jobs.values() if job.has_ended]
        if ended and not self.gone:
            self.gone = _why(ended)

    @property
    def is_over(self) -> bool:
        """Return True once it is unwanted and nothing of it is left in Slurm."""
        return self.leaving_s is not None and bool(self.gone) and all(job.has_ended for job in self.jobs.values())

    def output(self) -> str:
        """Return the last words of what its script printed."""
        texts = [path.read_text(errors="replace") for path in sorted(self.folder.glob("output*"))]
        return " ".join(" ".join(texts).split())[-200:]


def _purged(job: SlurmJob) -> SlurmJob:
    return job if job.has_ended else replace(job, state="COMPLETED", reason="Slurm does not list it any more")


def _why(ended: Iterable[SlurmJob]) -> str:
    """Return which of its jobs has ended, and how, for people."""
    job = min(ended, key=lambda job: job.state == "COMPLETED")
    reason = "" if job.reason in ("", "None") else f" ({job.reason})"
    return f"Slurm ended its allocation {job.job_id}: {job.state}{reason}"


def floating(group: Group) -> Group:
    """Return the group with a name of a box in place of each node, since Slurm chooses the nodes.

    Nodes with the same number of units of the same resource are those of one job of Slurm's, and numbered in it.
    """
    alike: dict[tuple[str, int], int] = {}
    seats: Counter[tuple[str, int]] = Counter()
    bundles = []
    for _, resource, units in group.bundles:
        shape = (resource, units)
        number = alike.setdefault(shape, len(alike))
        bundles.append((f"{boxes_of(number)}{seats[shape]}", resource, units))
        seats[shape] += 1
    return replace(group, bundles=tuple(bundles))


def boxes_of(number: int) -> str:
    """Return how the names of the boxes of an allocation's job of this number begin."""
    return f"job-{number}-node-"
