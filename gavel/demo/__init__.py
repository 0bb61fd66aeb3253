"""The demo: a service, real training jobs, rounds on the accelerators of this machine, tables of results, checks."""

import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.live import Live

from gavel.client import Client
from gavel.client import Job as JobView
from gavel.demo import kubernetes_nodes, ray_nodes, show, slurm_nodes
from gavel.demo.checks import all_jobs, check
from gavel.demo.first_job import TERMINAL
from gavel.demo.service import ServiceProcess, wait_until
from gavel.demo.workload import FREE, GOLD, DemoJob, jobs
from gavel.estimator.reference_profiles import estimator_of
from gavel.estimator.tables import own_rows
from gavel.ports import ThroughputEstimate
from gavel.simulator.report import Metrics, metrics, metrics_by_tier
from gavel.simulator.simulation import SimulatedJob, simulate
from gavel.store.sql import SqlStore
from gavel.types import AcceleratorType, Cluster, Job, Tier

STATE_DIR = Path(".demo")
PLAIN_WIDTH = 110  # columns, where the output is no terminal that would know
LOOK_EVERY_S = 1.0  # looking more often would take time of the cores from the jobs
USERS = {GOLD: "ann", FREE: "bob"}
TIERS = {GOLD: ("fairness", 2.0), FREE: ("fifo", 1.0)}
POLICIES = {"simulated, aware": "hierarchical", "simulated, agnostic": "hierarchical?agnostic=true"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How long a round lasts, and the demo at most, in seconds; `steps_fraction` of each job's steps are done."""

    round_duration_s: float = 4.0
    limit_s: float = 360.0  # some 80 on two free cores; a machine that others slow down needs more than 200
    steps_fraction: float = 1.0


ON_SLURM = ON_PODS = Pace(round_duration_s=12.0, limit_s=600.0, steps_fraction=0.4)
"""A gang there starts with a new interpreter on each node, for which all three nodes have the cores of one machine."""

Rates = dict[tuple[str, int, AcceleratorType], float]


def main(backend: str = "local") -> int:
    """Run the demo in `.demo` of the working directory; 0 only if every job finished and every check held.

    With backend "ray", "slurm" or "kubernetes" it runs on such a cluster of three nodes, which it starts on this
    machine and stops again.
    """
    if backend == "ray":
        with ray_nodes.three_nodes() as cluster:
            return _demo(ray_nodes.ray_settings(cluster, STATE_DIR.resolve()), Pace())
    if backend == "slurm":
        with slurm_nodes.three_nodes() as nodes:
            return _demo(slurm_nodes.slurm_settings(nodes, STATE_DIR.resolve()), ON_SLURM)
    if backend == "kubernetes":
        with kubernetes_nodes.three_nodes() as here:
            return _demo(kubernetes_nodes.kubernetes_settings(here, STATE_DIR.resolve()), ON_PODS)
    return _demo({}, Pace())


def _demo(settings_of_backend: Mapping[str, str], pace: Pace) -> int:
    console = Console()
    if not console.is_terminal:
        console = Console(width=PLAIN_WIDTH)
    began_s = time.monotonic()
    settings = {
        "GAVEL_ROUND_DURATION_S": str(pace.round_duration_s),
        "GAVEL_LEASE_GRACE_S": "3",
        **settings_of_backend,
    }
    console.rule("[bold]Gavel: training jobs on mixed accelerators")
    shutil.rmtree(STATE_DIR, ignore_errors=True)
    with ServiceProcess(STATE_DIR.resolve(), settings) as service:
        console.print(service.output().strip(), markup=False, highlight=False)
        with Client(service.url, service.operator_token) as operator:
            _set_up(operator)
            wait_until(lambda: bool(operator.cluster()["workers"]), 30)
            workload = jobs()
            finished = _run(console, service, operator, workload, began_s, pace)
        if not finished:
            console.print(f"[bold red]not finished after {pace.limit_s:.0f} s; the service's log is in {STATE_DIR}")
        console.print(service.output().strip().splitlines()[-1], markup=False, highlight=False)
    return _conclude(console, service, len(workload), began_s, pace)


def _set_up(operator: Client) -> None:
    for name, (objective, weight) in TIERS.items():
        operator.put_tier(name, objective=objective, weight=weight)
        operator.put_user(USERS[name], [name])


def _run(
    console: Console,
    service: ServiceProcess,
    operator: Client,
    workload: Sequence[DemoJob],
    began_s: float,
    pace: Pace,
) -> bool:
    """Submit each job at its arrival and show all until each has ended; False if the limit passed before that."""
    clients = {tier: Client(service.url, operator.create_token(user)) for tier, user in USERS.items()}
    waiting = list(workload)
    start_s = time.monotonic()
    printed_s = -10.0
    with Live(console=console, refresh_per_second=4, transient=not console.is_terminal) as display:
        while time.monotonic() - began_s < pace.limit_s:
            elapsed_s = time.monotonic() - start_s
            while waiting and waiting[0].arrives_s <= elapsed_s:
                job = waiting.pop(0)
                _submit(clients[job.tier], job, pace.steps_fraction)
            views = list(operator.jobs())
            rounds = operator.rounds(limit=1)
            index = rounds[0]["round_index"] if rounds else 0
            if console.is_terminal:
                display.update(show.live(views, service.url, index, elapsed_s))
            elif elapsed_s - printed_s >= 10:
                printed_s = elapsed_s
                console.print(show.line(views, index, elapsed_s))
            if not waiting and all(view["state"] in TERMINAL for view in views):
                return True
            time.sleep(LOOK_EVERY_S)
    return False


def _submit(client: Client, job: DemoJob, fraction: float) -> JobView:
    return client.submit(
        name=job.name,
        kind=job.kind,
        tier=job.tier,
        total_steps=job.total_steps(fraction),
        scale_factor=job.scale_factor,
    )


def _conclude(console: Console, service: ServiceProcess, submitted: int, began_s: float, pace: Pace) -> int:
    """Print the tables and checks from the database of the ended service; return the exit code."""
    store = SqlStore(f"sqlite:///{service.state_dir / 'gavel.db'}")
    try:
        done = all_jobs(store)
        cluster = store.cluster()
        rates: Rates = {
            (row.kind, row.scale_factor, row.accelerator_type): row.steps_per_s
            for row in own_rows(store.throughputs())
            if row.is_measured
        }
        console.print(show.jobs_table(done, cluster.accelerator_types))
        console.print(show.throughput_table(rates, cluster.accelerator_types))
        console.print("[dim]every rate was measured with all workers of its core busy")
        believed = _believed(done, cluster.accelerator_types, store.throughputs())
        console.print(show.comparison_table(_comparison(done, cluster, believed, store.tiers(), pace.round_duration_s)))
        left = [f"pid {process.pid}" for process in service.processes_left()]
        checks = [*check(store, submitted, left)]
    finally:
        store.close()
    elapsed_s = time.monotonic() - began_s
    checks.append((elapsed_s < pace.limit_s, f"{elapsed_s:.0f} s in all, of {pace.limit_s:.0f} s allowed"))
    show.print_checks(checks, console)
    return 0 if all(holds for holds, _ in checks) else 1


def _comparison(
    done: Sequence[Job], cluster: Cluster, rates: Rates, tiers: Sequence[Tier], round_duration_s: float
) -> dict[str, dict[str, Metrics]]:
    """Return the metrics of the run, and of the same workload simulated with these rates under both policies."""
    first_s = min(job.submitted_at_s for job in done)
    workload = [SimulatedJob(submitted_at_s=job.submitted_at_s - first_s, spec=job.spec) for job in done]
    columns = {"measured": {"all": metrics(done), **metrics_by_tier(done)}}
    for title, policy in POLICIES.items():
        result = simulate(
            workload, cluster=cluster, throughput=rates, policy=policy, tiers=tiers, round_duration_s=round_duration_s
        )
        columns[title] = {"all": result.metrics, **result.tiers}
    return columns


def _believed(done: Sequence[Job], types: Sequence[AcceleratorType], table: Iterable[ThroughputEstimate]) -> Rates:
    """Return the steps/s of every kind and gang size of the workload on every type, measured or estimated."""
    estimator = estimator_of(table)
    return {
        (row.kind, row.scale_factor, row.accelerator_type): row.steps_per_s
        for job in done
        for row in estimator.estimate(job.spec, types)
    }
