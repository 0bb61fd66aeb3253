"""What must hold after the demo, read from its database, its folder and the process table."""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from gavel.ports import ApiStore, JobFilter
from gavel.types import Job, JobState, RoundPlan

LAUNCH = re.compile(r"The gang was launched on (\S+?)-\d+.* from step (\d+)")


def all_jobs(store: ApiStore) -> list[Job]:
    """Return every job of the store."""
    jobs: list[Job] = []
    cursor = None
    while True:
        page = store.jobs(JobFilter(), cursor=cursor, limit=200)
        jobs += page.jobs
        if (cursor := page.next_cursor) is None:
            return jobs


def all_rounds(store: ApiStore) -> list[RoundPlan]:
    """Return every round of the store, oldest first."""
    rounds: list[RoundPlan] = []
    while plans := store.rounds(before=rounds[-1].round_index if rounds else None, limit=200):
        rounds += plans
    return rounds[::-1]


def check(store: ApiStore, submitted: int, processes_left: Sequence[str]) -> Iterator[tuple[bool, str]]:
    """Yield each check as (whether it holds, a sentence with its figures)."""
    jobs = all_jobs(store)
    rounds = all_rounds(store)
    done = [job for job in jobs if job.state is JobState.COMPLETED]
    yield len(done) == len(jobs) == submitted, f"{len(done)} of {submitted} jobs completed"
    exact = [job for job in jobs if job.steps_done == job.spec.total_steps]
    yield len(exact) == len(jobs), f"{len(exact)} jobs did exactly the steps that were asked for"
    moved = [job for job in jobs if resumed_on_another_type(store, job)]
    names = ", ".join(job.spec.name for job in moved)
    yield bool(moved), f"{len(moved)} jobs ran on two types and resumed from their checkpoint there: {names}"
    learned = [job for job in jobs if job.metrics.get("loss", 0.0) < job.metrics.get("first_loss", 0.0)]
    yield len(learned) == len(jobs), f"the loss of {len(learned)} models went down"
    gangs = [lease for plan in rounds for lease in plan.leases if len(lease.worker_ids) > 1]
    yield bool(gangs), f"gangs of two held a lease {len(gangs)} times"
    indices = [plan.round_index for plan in rounds]
    yield indices == list(range(1, len(indices) + 1)), f"{len(rounds)} rounds, each the successor of the one before"
    yield not processes_left, "no process is left" + "".join(f"; {each}" for each in processes_left)


def resumed_on_another_type(store: ApiStore, job: Job) -> bool:
    """Return whether a launch resumed from a checkpoint on another accelerator type than the launch before it."""
    launches = [LAUNCH.match(event.message) for event in store.events(job.id) if event.kind == "gang.launched"]
    resumptions = [(match[1], int(match[2])) for match in launches if match]
    return any(a[0] != b[0] and b[1] > 0 for a, b in pairwise(resumptions))
