"""How fast gangs start on a Ray cluster of three nodes, all of them on this machine: wall times, medians.

All processes of the cluster share its cores, so that the figures are upper bounds of what separate machines show.
"""

import os
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.table import Row, run
from gavel.backends.nodes.backend import NodesBackend
from gavel.backends.ray.backend import RayBackend
from gavel.backends.ray.local_cluster import REPORT_PERIOD_S, LocalRayCluster, NodeSpec
from gavel.backends.ray.protocol import RaySettings
from gavel.clock import SystemClock
from gavel.errors import BackendUnavailable
from gavel.ports import ExtendLease, ForgetGang, Instruction, LaunchGang, SetResources, StopGang
from gavel.types import EphemeralResource, GangSeen, GangState, Observation

NODES, WORKERS_PER_NODE = 3, 22
LEASE_S = 600.0
ROUND_S = 4.0
LIMIT_S = 60.0
LOOK_EVERY_S = 0.02


class Bench:
    """A service's backend on a cluster of so many nodes, all alike, and gangs of `sleep` on it."""

    def __init__(
        self, backend: NodesBackend, clock: SystemClock, *, nodes: int = NODES, per_node: int = WORKERS_PER_NODE
    ) -> None:
        self.backend, self.clock = backend, clock
        self._nodes, self._per_node = nodes, per_node
        self.node_of = {worker.id: worker.node for worker in self._meet().cluster.workers}
        self.generation = 0

    def launch(self, sizes: Sequence[int], *, is_spread: bool = True) -> list[Instruction]:
        """Gangs of these sizes, each on as many nodes as can be or, as the planner does it, on as few; tokens grow."""
        self.generation += 1
        number = {worker: int(worker.partition("-")[2]) for worker in self.node_of}
        workers = sorted(number, key=lambda each: number[each] % self._per_node if is_spread else number[each])
        instructions: list[Instruction] = []
        for index, size in enumerate(sizes):
            mine, workers = tuple(workers[:size]), workers[size:]
            instructions += self._gang(f"j{index}", mine)
        return instructions

    def stop(self, count: int) -> list[Instruction]:
        """The gangs launched last."""
        return [StopGang(job_id=f"j{index}", generation=self.generation) for index in range(count)]

    def until(self, count: int, state: GangState) -> None:
        """So many gangs with the newest token are there, every rank executing if they run. Fails after a limit."""
        end_s = time.monotonic() + LIMIT_S
        while sum(self._is_in(gang, state) for gang in self.backend.observe().gangs) < count:
            assert time.monotonic() < end_s, "the gangs did not get there"
            time.sleep(LOOK_EVERY_S)

    def clear(self) -> None:
        """Nothing runs, nothing is known of it."""
        while gangs := self.backend.observe().gangs:
            self.backend.execute([StopGang(job_id=gang.job_id, generation=gang.generation) for gang in gangs])
            over = [gang for gang in gangs if gang.state is GangState.ENDED]
            self.backend.execute([ForgetGang(job_id=gang.job_id, generation=gang.generation) for gang in over])

    def forget_older(self) -> None:
        """What ended before this round is forgotten, as the driver does once its end is committed."""
        gangs = self.backend.observe().gangs
        over = [each for each in gangs if each.generation < self.generation and each.state is GangState.ENDED]
        self.backend.execute([ForgetGang(job_id=each.job_id, generation=each.generation) for each in over])

    def _is_in(self, gang: GangSeen, state: GangState) -> bool:
        executes = state is not GangState.RUNNING or gang.started_at_s is not None
        return gang.generation == self.generation and gang.state is state and executes

    def _gang(self, job_id: str, workers: tuple[str, ...]) -> list[Instruction]:
        nodes = [self.node_of[worker] for worker in workers]
        expires_at_s = self.clock.now_s() + LEASE_S
        resources = tuple(
            EphemeralResource(
                name=f"gang-{job_id}-{self.generation}",
                node=node,
                capacity=nodes.count(node),
                owner="gavel",
                lease_expires_at_s=expires_at_s,
                generation=self.generation,
            )
            for node in sorted(set(nodes))
        )
        start = LaunchGang(
            job_id=job_id,
            generation=self.generation,
            user="bench",
            argv=("sleep", "3600"),
            env={},
            accelerator_type="a",
            worker_ids=workers,
            resource=f"gavel/gang-{job_id}-{self.generation}",
            lease_expires_at_s=expires_at_s,
            start_step=0,
            total_steps=1,
            checkpoint=None,
        )
        return [SetResources(resources=resources), start]

    def _meet(self) -> Observation:
        end_s = time.monotonic() + LIMIT_S
        while time.monotonic() < end_s:
            try:
                seen = self.backend.observe()
            except BackendUnavailable:
                time.sleep(0.1)
                continue
            if len(seen.cluster.workers) == self._nodes * self._per_node:
                return seen
        raise BackendUnavailable("the nodes did not come up")


def rows(quick: bool) -> Iterator[Row]:
    """Against the targets, from the instruction to every process executing."""
    specs = [NodeSpec(name=f"node-{index}", resources={"gavel:a": WORKERS_PER_NODE}) for index in range(NODES)]
    with tempfile.TemporaryDirectory() as folder, LocalRayCluster(specs) as cluster:
        os.environ.update(cluster.environment)
        bench = opened(Path(folder), cluster.address)
        try:
            yield from measured(bench, 3 if quick else 11, 5 if quick else 20)
        finally:
            bench.clear()
            bench.backend.close()


def opened(folder: Path, address: str) -> Bench:
    """A service on the cluster at this address."""
    clock = SystemClock()
    backend = RayBackend(
        state_dir=folder / "state",
        ray=RaySettings(address=address, node_folder=str(folder / "nodes"), report_period_s=REPORT_PERIOD_S),
        clock=clock,
        lease_grace_s=1.0,
        log_bytes_per_job=1 << 16,
    )
    return Bench(backend, clock)


def measured(bench: Bench, repetitions: int, rounds: int) -> Iterator[Row]:
    """The rows, on a cluster that is up."""
    started_ms(bench, [8])  # the first one pays for what stays warm
    for size, limit_ms in ((8, 250.0), (64, 1000.0)):
        times = [started_ms(bench, [size]) for _ in range(repetitions)]
        yield Row(f"gang of {size} over {NODES} nodes, warm, to all started", statistics.median(times), "ms", limit_ms)
    bench.clear()
    bench.backend.execute(bench.launch([4] * 16, is_spread=False))
    bench.until(16, GangState.RUNNING)
    yield Row("Ray calls to extend 16 leases", float(calls_of_an_extension(bench)), "calls", 0.0)
    waits = [replaced_s(bench, is_spread=False) for _ in range(rounds)]
    yield Row("round that replaces 16 gangs of 4", 1000 * statistics.median(waits), "ms", 1500.0)
    yield Row(f"slowest of {rounds} such rounds on a full cluster", 1000 * max(waits), "ms")
    late = sum(wait_s > ROUND_S for wait_s in waits)
    yield Row(f"rounds of {ROUND_S:g} s in which a gang waited longer than that", float(late), "rounds", 0.0)
    spread = [replaced_s(bench, is_spread=True) for _ in range(repetitions)]
    yield Row("the same with each gang over 3 nodes", 1000 * statistics.median(spread), "ms", 1500.0)
    yield Row("looks at the cluster while 16 gangs run", 1000 * look_cpu_s(bench), "CPU ms each")


def started_ms(bench: Bench, sizes: Sequence[int]) -> float:
    """Milliseconds from the launch to the observation that shows every process executing, on an empty cluster."""
    bench.clear()
    instructions = bench.launch(sizes)
    began_s = time.perf_counter()
    bench.backend.execute(instructions)
    bench.until(len(sizes), GangState.RUNNING)
    return 1000 * (time.perf_counter() - began_s)


def replaced_s(bench: Bench, *, is_spread: bool) -> float:
    """Seconds from stopping 16 gangs of 4 and launching as many in their place to all of those executing."""
    stops, began_s = bench.stop(16), time.perf_counter()
    bench.backend.execute([*stops, *bench.launch([4] * 16, is_spread=is_spread)])
    bench.until(16, GangState.RUNNING)
    elapsed_s = time.perf_counter() - began_s
    bench.forget_older()
    return elapsed_s


def calls_of_an_extension(bench: Bench) -> int:
    """What extending 16 leases asks of Ray beyond the one call a node of the look that would come anyway."""
    bench.backend.observe()
    before = dict(bench.backend.calls)
    expires_at_s = bench.clock.now_s() + 2 * LEASE_S
    bench.backend.execute(
        [ExtendLease(job_id=f"j{index}", generation=bench.generation, expires_at_s=expires_at_s) for index in range(16)]
    )
    bench.backend.observe()
    after = dict(bench.backend.calls)
    return sum(after.values()) - sum(before.values()) - NODES


def look_cpu_s(bench: Bench, looks: int = 50) -> float:
    """CPU seconds of this process a look; the bridge and the agents have their own."""
    before_s = time.process_time()
    for _ in range(looks):
        bench.backend.observe()
    return (time.process_time() - before_s) / looks


if __name__ == "__main__":
    run("Ray backend", rows)
