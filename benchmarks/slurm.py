"""How fast gangs start on a Slurm cluster of eight nodes, all of them on this machine: wall times, medians.

All daemons and agents share its cores, so that the figures are upper bounds of what separate machines show.
"""

import os
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.ray import LEASE_S, Bench, replaced_s, started_ms
from benchmarks.table import Row, run
from gavel.backends.slurm.backend import SlurmBackend
from gavel.backends.slurm.local_cluster import LocalSlurmCluster, SlurmNodeSpec
from gavel.backends.slurm.protocol import SlurmSettings
from gavel.clock import SystemClock
from gavel.ports import ExtendLease
from gavel.types import GangState

NODES, WORKERS_PER_NODE = 8, 8
LOOKS = 20


def rows(quick: bool) -> Iterator[Row]:
    """Against the targets, from the instruction to every process executing."""
    specs = [SlurmNodeSpec(name=f"node-{index}", gres={"acc:a": WORKERS_PER_NODE}, cpus=64) for index in range(NODES)]
    with tempfile.TemporaryDirectory() as folder, LocalSlurmCluster(specs) as cluster:
        os.environ.update(cluster.environment)
        bench = opened(Path(folder))
        try:
            yield from measured(bench, 3 if quick else 7, 2 if quick else 7)
        finally:
            bench.clear()
            bench.backend.close()


def opened(folder: Path) -> Bench:
    """A service on the cluster that SLURM_CONF names."""
    clock = SystemClock()
    settings = SlurmSettings(folder=str(folder / "shared"), node_folder=str(folder / "nodes"), gres=("acc",))
    backend = SlurmBackend(
        state_dir=folder / "state", slurm=settings, clock=clock, lease_grace_s=1.0, log_bytes_per_job=1 << 16
    )
    return Bench(backend, clock, nodes=NODES, per_node=WORKERS_PER_NODE)


def measured(bench: Bench, repetitions: int, rounds: int) -> Iterator[Row]:
    """The rows, on a cluster that is up."""
    for size, limit_ms in ((8, 700.0), (64, 1000.0)):
        times = [started_ms(bench, [size]) for _ in range(repetitions)]
        yield Row(f"gang of {size} over {NODES} nodes, to all started", statistics.median(times), "ms", limit_ms)
    bench.clear()
    bench.backend.execute(bench.launch([4] * 16, is_spread=False))
    bench.until(16, GangState.RUNNING)
    yield Row("submits and updates to extend 16 leases", float(calls_of_an_extension(bench)), "commands", 0.0)
    waits = [replaced_s(bench, is_spread=False) for _ in range(rounds)]
    yield Row("round that replaces 16 gangs of 4", 1000 * statistics.median(waits), "ms", 4000.0)


def calls_of_an_extension(bench: Bench) -> int:
    """Commands of Slurm's for extending 16 leases, besides those that look after everything once a second."""
    before = dict(bench.backend.calls)
    expires_at_s = bench.clock.now_s() + 2 * LEASE_S
    bench.backend.execute(
        [ExtendLease(job_id=f"j{index}", generation=bench.generation, expires_at_s=expires_at_s) for index in range(16)]
    )
    for _ in range(LOOKS):
        bench.backend.observe()
    after = bench.backend.calls
    return sum(after.get(name, 0) - before.get(name, 0) for name in ("sbatch", "scancel", "scontrol"))


if __name__ == "__main__":
    run("Slurm backend", rows)
