"""A run of the demo on real processes: a service of its own, and all sets submitted when they arrive."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from gavel.client import Client
from gavel.client.answers import Cluster as ClusterView
from gavel.demo.autopilot.workload import STEPS_PER_S, TaskSet
from gavel.demo.checks import all_jobs
from gavel.demo.first_job import FIRST, TERMINAL, run_first_job
from gavel.demo.service import ServiceProcess
from gavel.store.sql import SqlStore
from gavel.types import Cluster, Job, JobId
from gavel.types.autopilot import AutopilotDecision

LAUNCHED = "gang.launched"
TIER = "default"
LOOK_EVERY_S = 1.0
EPOCH_S = 8.0
ROUND_S = 4.0
PLANNED_BEFORE = 0.4  # of a round: a gang goes on only if the next one is planned in time, on a busy machine, too
TOLD_EVERY_S = 10.0
SETTINGS = {
    "GAVEL_ROUND_DURATION_S": str(ROUND_S),
    "GAVEL_PLANNING_LEAD_FRACTION": str(PLANNED_BEFORE),
    "GAVEL_LEASE_GRACE_S": "3",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """How a run is scheduled: the composition at its beginning, and the goal if the autopilot may choose others."""

    title: str
    policy: str
    goal: str = ""
    candidates: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What the database of an ended service has, and the processes that it left. `same`: of each decision that was
    made, whether it is the same when it is made again from its stored question. `launched_at_s`: by job.
    """

    choice: Choice
    jobs: tuple[Job, ...]
    launched_at_s: Mapping[JobId, float]
    cluster: Cluster
    decisions: tuple[AutopilotDecision, ...]
    same: tuple[bool, ...]
    left: tuple[str, ...]

    @property
    def switches(self) -> tuple[AutopilotDecision, ...]:
        """Return the decisions that put another composition in force, oldest first."""
        return tuple(each for each in reversed(self.decisions) if each.is_followed)


def ran(choice: Choice, sets: Sequence[TaskSet], folder: Path, until_s: float, tell: Callable[[str], None]) -> Ran:
    """Return the run, which is cut off at `until_s` of the monotonic clock. All that it started is stopped."""
    with ServiceProcess(folder.resolve(), SETTINGS | {"GAVEL_POLICY": choice.policy}) as service:
        tell(f"{choice.title}: {service.url}")
        with Client(service.url, service.operator_token) as operator:
            run_first_job(operator)
            _set_up(operator, choice)
            _run(service.url, operator, sets, until_s, tell)
            same = _made_again(operator)
    left = tuple(f"pid {each.pid}" for each in service.processes_left())
    return _read(choice, folder, same, left)


def _set_up(operator: Client, choice: Choice) -> None:
    """Let the autopilot choose, or keep it from it."""
    if choice.goal:
        candidates = list(choice.candidates)
        operator.set_autopilot(mode="auto", goal=choice.goal, candidates=candidates, epoch_s=EPOCH_S, wait_s=30)
    else:
        operator.set_autopilot(mode="off", wait_s=30)


def _run(url: str, operator: Client, sets: Sequence[TaskSet], until_s: float, tell: Callable[[str], None]) -> None:
    """Submit each set at its arrival, until all tasks have ended."""
    with ExitStack() as stack:
        clients = {each.user: stack.enter_context(_client(url, operator, each.user)) for each in sets}
        waiting, start_s, told_s = list(sets), time.monotonic(), 0.0
        while time.monotonic() < until_s:
            elapsed_s = time.monotonic() - start_s
            while waiting and waiting[0].arrives_s <= elapsed_s:
                _submit(clients[waiting[0].user], waiting.pop(0), operator.cluster())
            if elapsed_s - told_s >= TOLD_EVERY_S:
                told_s = elapsed_s
                tell(_line(operator, elapsed_s))
            if not waiting and all(each["state"] in TERMINAL for each in operator.jobs()):
                return
            time.sleep(LOOK_EVERY_S)


def _client(url: str, operator: Client, user: str) -> Client:
    operator.put_user(user, [TIER])
    return Client(url, operator.create_token(user))


def _submit(client: Client, of: TaskSet, cluster: ClusterView) -> None:
    """Submit the set as an array of programs that each take their time, on any worker, and are not preempted."""
    types = sorted({each["accelerator_type"] for each in cluster["workers"]})
    memory_bytes = min(each["memory_bytes"] for each in cluster["nodes"])
    client.submit_array(
        {
            "name": of.user,
            "argv": ["sleep", str(of.task_s)],
            "kind": f"{of.user}/task",
            "total_steps": of.steps,
            "throughputs": dict.fromkeys(types, STEPS_PER_S),
            "memory_bytes": int(of.memory_fraction * memory_bytes),
            "preemptible": False,
        },
        count=of.tasks,
    )


def _line(operator: Client, elapsed_s: float) -> str:
    states = [each["state"] for each in operator.jobs()]
    ended = sum(each in TERMINAL for each in states)
    return (
        f"  {elapsed_s:4.0f} s  {ended} of {len(states)} tasks have ended; in force: {operator.autopilot()['in_force']}"
    )


def _made_again(operator: Client) -> tuple[bool, ...]:
    """Verify the decisions whose question is still stored."""
    made: Sequence[Mapping[str, object]] = [*operator.autopilot_decisions()]
    numbers = [int(str(each["number"])) for each in made if each["can_be_verified"]]
    return tuple(bool(operator.verify_autopilot_decision(number)["same"]) for number in numbers)


def _read(choice: Choice, folder: Path, same: tuple[bool, ...], left: tuple[str, ...]) -> Ran:
    store = SqlStore(f"sqlite:///{folder / 'gavel.db'}")
    try:
        jobs = [job for job in all_jobs(store) if job.spec.name != FIRST]
        launches = {job.id: event.at_s for job in jobs for event in store.events(job.id) if event.kind == LAUNCHED}
        return Ran(
            choice=choice,
            jobs=tuple(sorted(jobs, key=lambda job: (job.submitted_at_s, job.id))),
            launched_at_s=launches,
            cluster=store.cluster(),
            decisions=tuple(store.autopilot.decisions(limit=400)),
            same=same,
            left=left,
        )
    finally:
        store.close()
