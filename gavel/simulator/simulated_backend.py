"""The backend `simulated`: a whole service on a cluster that exists in numbers only, for trials and load tests.

It runs no programs. Its gangs are in the memory of the scheduler's process; when that starts again, they are made anew
from what the database says of them.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from zlib import crc32

from gavel.config import Settings
from gavel.mechanism.cluster.reconcile import gang_resources, launch
from gavel.ports import Clock, Instruction, Snapshot
from gavel.simulator.cluster import VirtualCluster
from gavel.types import AcceleratorType, Cluster, Job, JobId, JobState, Lease, Node, Worker, plain_type, region_of_type
from gavel.types.cluster import LOCAL_REGION
from gavel.types.regions import SEPARATOR

SLOWEST_STEPS_PER_S, FASTEST_STEPS_PER_S = 1.0, 10.0
CPU_CORES, MEMORY_BYTES = 64, 1 << 38  # of a simulated node
ALL_KINDS = 1 << 16


class DrawnRates(Mapping[tuple[str, int, AcceleratorType], float]):
    """Steps per second of a gang of any kind: drawn once for each kind and type, and n times as much on n workers."""

    def __getitem__(self, key: tuple[str, int, AcceleratorType]) -> float:
        kind, size, name = key
        return size * _drawn_steps_per_s(kind, name)

    def __iter__(self) -> Iterator[tuple[str, int, AcceleratorType]]:
        return iter(())

    def __len__(self) -> int:
        return 0


@lru_cache(ALL_KINDS)
def _drawn_steps_per_s(kind: str, name: AcceleratorType) -> float:
    part = crc32(f"{kind} on {name}".encode()) / 2**32
    return SLOWEST_STEPS_PER_S + part * (FASTEST_STEPS_PER_S - SLOWEST_STEPS_PER_S)


def simulated_cluster(settings: Settings) -> Cluster:
    """Return the cluster of the settings: so many nodes of each accelerator type, named by it and a number.

    A type such as `v100@eu` is that of nodes in a region.
    """
    names = [(kind, _node(kind, index)) for kind, count in settings.simulated_nodes.items() for index in range(count)]
    return Cluster(
        nodes=tuple(node for _, node in names),
        workers=tuple(
            Worker(id=f"{node.name}-{index}", node=node.name, accelerator_type=plain_type(kind))
            for kind, node in names
            for index in range(settings.simulated_workers_per_node)
        ),
    )


def _node(kind: AcceleratorType, index: int) -> Node:
    return Node(
        name=f"{kind.replace(SEPARATOR, '-')}-{index}",
        region=region_of_type(kind) or LOCAL_REGION,
        cpu_cores=CPU_CORES,
        memory_bytes=MEMORY_BYTES,
    )


class SimulatedBackend(VirtualCluster):
    """A virtual cluster on the service's own clock. The kind of a gang's program is the last word of its command."""

    def __init__(self, cluster: Cluster, settings: Settings, clock: Clock) -> None:
        super().__init__(
            cluster,
            DrawnRates(),
            clock,
            lease_grace_s=settings.lease_grace_s,
            checkpoint_period_s=settings.simulated_checkpoint_period_s,
            report_period_s=settings.simulated_report_period_s,
        )

    def resume(self, snapshot: Snapshot) -> None:
        """Start the gangs that run by the database, each from its last report."""
        leases = list(_running(snapshot))
        instructions: list[Instruction] = [
            each
            for lease in leases
            for each in (
                gang_resources(lease, self._node_of, lease_grace_s=self._lease_grace_s),
                launch(lease, snapshot.jobs[lease.job_id]),
            )
        ]
        self.execute(instructions)
        for lease in leases:
            self._go_on(snapshot.jobs[lease.job_id])

    def _go_on(self, job: Job) -> None:
        gang = self._gangs[job.id, job.generation]
        gang.sequence, gang.reported_step = job.report_sequence, job.steps_so_far
        gang.base_steps = float(job.steps_so_far)
        self._end_due_s = None

    def forget_job(self, job_id: JobId) -> None:
        """Drop what is kept of a job that has ended."""
        self._fence.pop(job_id, None)


def _running(snapshot: Snapshot) -> Iterator[Lease]:
    """Yield the newest lease of each job that has a gang, as far as the newest rounds have it."""
    of_gang = {(each.job_id, each.generation): each for record in snapshot.round_records for each in record.plan.leases}
    for lease in of_gang.values():
        job = snapshot.jobs.get(lease.job_id)
        if job is not None and job.state is JobState.LEASED and job.generation == lease.generation:
            yield lease
