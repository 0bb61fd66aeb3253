"""The command `gavel profile SCRIPT`: runs a training script on every accelerator type here and measures its speed."""

import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gavel.cli.connection import app, fail, refusals
from gavel.cli.program import argv_of
from gavel.cli.submit_options import Program

if TYPE_CHECKING:
    from gavel.backends.local import LocalBackend
    from gavel.ports import Instruction, ThroughputEstimate
    from gavel.types import Measurement, Observation, Worker

KIND = "script"
STEPS = 10**9
START_LIMIT_S = 60.0
STOP_LIMIT_S = 20.0
GRACE_S = 3.0
POLL_S = 0.1

Seconds = Annotated[
    float, typer.Option(min=1, max=3600, help="Seconds of training on each type; all types train at once.")
]


@app.command(context_settings={"allow_interspersed_args": False})
def profile(*, program: Program = None, seconds: Seconds = 10.0) -> None:
    """Measure a training script on every accelerator type of this machine; no service is needed.

    gavel profile --seconds 20 train.py

    The script takes its steps from gavel_runtime, as any job does. All workers train at once, as under load.
    """
    argv = argv_of(program or [])
    if argv is None:
        fail("name a script: gavel profile train.py")
    typer.echo(f"training on every accelerator here, {seconds:g} s from the first report on", err=True)
    with refusals():
        estimates = measured(argv, seconds)
    if not estimates:
        fail("no step was reported: the script must loop over gavel_runtime's job.steps(), and long enough")
    typer.echo(table(estimates))


def measured(argv: Sequence[str], seconds: float) -> "tuple[ThroughputEstimate, ...]":
    """Return the steps per second of the script on each type, the mean of its workers; empty if no step was reported.

    Raise BackendUnavailable where no accelerator is found, InvalidRequest with the log when the script fails.
    """
    from gavel.estimator.reconciled import ReconciledThroughputs

    with _backend() as backend:
        workers = backend.observe().cluster.workers
        backend.execute([each for worker in workers for each in _launched(worker, argv, seconds)])
        sharing = 2 if any(worker.shares_core for worker in workers) else 1
        estimator = ReconciledThroughputs.from_table((), core_sharing=sharing)
        ends_at_s: float | None = None
        give_up_at_s = time.time() + START_LIMIT_S
        while time.time() < (ends_at_s or give_up_at_s):
            seen = backend.observe()
            _check(seen)
            measurements = list(_measurements(seen))
            estimator = estimator.learn(measurements)
            if measurements and ends_at_s is None:
                ends_at_s = time.time() + seconds
            time.sleep(POLL_S)
        _stop(backend)
    return estimator.table()


def table(estimates: "Sequence[ThroughputEstimate]") -> str:
    """Return one line per type, the fastest first."""
    best = max(row.steps_per_s for row in estimates)
    lines = [f"{'TYPE':16}{'STEPS/S':>12}{'90 %':>8}{'OF BEST':>9}{'REPORTS':>9}"]
    for row in sorted(estimates, key=lambda row: -row.steps_per_s):
        half = row.interval_steps_per_s[1] / row.steps_per_s - 1
        remark = "" if row.is_measured else "  (a worker beside it was idle)"
        lines.append(
            f"{row.accelerator_type:16}{row.steps_per_s:12.4g}{f'±{half:.0%}':>8}{row.steps_per_s / best:>9.0%}"
            f"{row.measurements:>9}{remark}"
        )
    stated = " ".join(f"--throughput {row.accelerator_type}={row.steps_per_s:.4g}" for row in estimates)
    return "\n".join([*lines, f"to state it: gavel job submit .. {stated}"])


@contextmanager
def _backend() -> "Iterator[LocalBackend]":
    from gavel.backends.accelerators import discover
    from gavel.backends.local import LocalBackend
    from gavel.clock import SystemClock

    folder = Path(tempfile.mkdtemp(prefix="gavel-profile-"))
    try:
        backend = LocalBackend(
            state_dir=folder,
            accelerators=discover(cpu_workers="all").accelerators,
            clock=SystemClock(),
            lease_grace_s=GRACE_S,
            log_bytes_per_job=1 << 20,
        )
        try:
            yield backend
        finally:
            _stop(backend)
            backend.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _launched(worker: "Worker", argv: Sequence[str], seconds: float) -> "list[Instruction]":
    """Start one rank on one worker, which it requires as an ephemeral resource like any gang."""
    from gavel.ports import LaunchGang, SetResources
    from gavel.types import EphemeralResource

    expires_at_s = time.time() + START_LIMIT_S + seconds
    job_id = f"profile-{worker.id}"
    resource = EphemeralResource(
        name=f"gang-{job_id}-1",
        node=worker.node,
        capacity=1,
        owner="gavel",
        lease_expires_at_s=expires_at_s + GRACE_S,
        generation=1,
    )
    gang = LaunchGang(
        job_id=job_id,
        generation=1,
        user="profile",
        argv=tuple(argv),
        env={},
        accelerator_type=worker.accelerator_type,
        worker_ids=(worker.id,),
        resource=f"gavel/{resource.name}",
        lease_expires_at_s=expires_at_s,
        start_step=0,
        total_steps=STEPS,
        checkpoint=None,
    )
    return [SetResources(resources=(resource,)), gang]


def _measurements(seen: "Observation") -> "Iterator[Measurement]":
    from gavel.types import Measurement

    for gang in seen.gangs:
        for report in gang.reports:
            if report.steps > 0:
                yield Measurement(
                    job_id=gang.job_id,
                    generation=gang.generation,
                    sequence=report.sequence,
                    user="profile",
                    kind=KIND,
                    scale_factor=1,
                    accelerator_type=gang.accelerator_type,
                    steps=report.steps,
                    seconds=report.seconds,
                    is_representative=report.is_representative,
                )


def _check(seen: "Observation") -> None:
    """Raise InvalidRequest with the script's output if it has ended."""
    from gavel.errors import InvalidRequest

    for gang in seen.gangs:
        if gang.exit is not None:
            log = gang.exit.log_tail or gang.exit.message
            where = f"with code {gang.exit.exit_code} on {gang.worker_ids[0]}"
            fix = "" if gang.exit.exit_code else ", too early: let it loop over gavel_runtime's job.steps() to the end"
            raise InvalidRequest("program", f"ended {where}{fix}. It wrote:\n{log}")


def _stop(backend: "LocalBackend") -> None:
    """Stop every gang and wait until all have ended."""
    from gavel.ports import StopGang
    from gavel.types import GangState

    seen = backend.observe()
    backend.execute(
        [StopGang(job_id=gang.job_id, generation=gang.generation, reason="measured") for gang in seen.gangs]
    )
    give_up_at_s = time.time() + STOP_LIMIT_S
    while any(gang.state is not GangState.ENDED for gang in seen.gangs) and time.time() < give_up_at_s:
        time.sleep(POLL_S)
        seen = backend.observe()
