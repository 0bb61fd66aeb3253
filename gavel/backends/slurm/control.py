"""The thread that keeps the allocations that are wanted, and lists nodes: calls to Slurm may take long."""

import math
import sys
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from gavel.backends import machine
from gavel.backends.durable import write_durable
from gavel.backends.nodes.allocation_control import LOOK_EVERY_S, AllocationControl
from gavel.backends.nodes.protocol import Group, ListedNode
from gavel.backends.nodes.relay import agent_start
from gavel.backends.slurm.allocation import SlurmAllocation, boxes_of, floating
from gavel.backends.slurm.commands import Refused, Slurm, SlurmJob
from gavel.backends.slurm.nodes import SlurmNode, nodes_of, taken_of
from gavel.backends.slurm.protocol import MINUTE_S, SlurmSettings
from gavel.errors import BackendUnavailable

NODES_EVERY_S = 2.0
PARTITION_EVERY_S = 60.0
LEAVE_S = 3.0  # seconds that agents have to free their nodes before Slurm is told to
START_S = 60.0  # seconds after the longest wait in the queue until all agents have spoken, at most
MARGIN_S = 60.0  # seconds from the end of a lease and its grace to the time limit, at least
STEP_S = 120.0  # seconds that a time limit is longer than it must be, so that it is extended seldom

SCRIPT = """#!/bin/sh
# Starts an agent of Gavel's on each node of this allocation: PYTHON WHERE NODE_FOLDER [BOXES]
if [ "$SLURM_JOB_NUM_NODES" = 1 ]; then exec "$1" -P -m gavel.backends.slurm.node "$2" "$3" "$4"; fi
exec srun --nodes="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 --cpus-per-task="${SLURM_CPUS_PER_TASK:-1}" \\
  --cpu-bind=none --mpi=none --kill-on-bad-exit=0 --wait=0 "$1" -P -m gavel.backends.slurm.node "$2" "$3" "$4"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What sbatch is told of where a job is to run, and the nodes on which it may: it has to fit on each."""

    options: list[str]
    nodes: list[SlurmNode]


class Control(AllocationControl[SlurmAllocation]):
    """Submits, extends and cancels allocations. `allocations` and the rest of what it knows are read by the link."""

    def __init__(self, settings: SlurmSettings, calls: Counter[str]) -> None:
        asking = f"asking Slurm for its nodes ({settings.partition or 'the default partition'})"
        folder = Path(settings.folder).expanduser().resolve()
        super().__init__(folder, SlurmAllocation, "Slurm", asking, refused=(Refused,))
        self._settings = settings
        self._slurm = Slurm(calls)
        self._partition, self._longest_s = "", math.inf
        self._partition_at_s = self._nodes_at_s = self._jobs_at_s = -math.inf
        self._nodes: dict[str, SlurmNode] = {}
        self._lacks_resources, self._extension_note = "", ""

    def _listed(self) -> Iterable[tuple[ListedNode, bool]]:
        return [(node.listed, node.is_silent) for node in self._nodes.values() if node.is_there]

    @property
    def notes(self) -> tuple[str, ...]:
        """Return what is wrong with the cluster as a whole."""
        return tuple(filter(None, (self._lacks_resources, self._extension_note)))

    def _turn(self) -> None:
        now_s = time.monotonic()
        if now_s - self._partition_at_s >= PARTITION_EVERY_S:
            self._partition, self._longest_s = self._slurm.partition(self._settings.partition)
            self._partition_at_s = now_s
        if self.has_listed and not self.is_overtaken():
            self._reserve()  # before looks, each of which takes a gang a tenth of a second
        is_due = now_s - self._jobs_at_s >= LOOK_EVERY_S * 0.9 or not self.has_listed
        if is_due and now_s - self._nodes_at_s >= NODES_EVERY_S:
            self._list_nodes()
        if is_due:
            self._list_jobs()
        self.has_listed = True
        if self.is_overtaken():
            return
        self._tidy()
        self._reserve()
        self._go_on()
        self._extend()

    def _list_nodes(self) -> None:
        listed = nodes_of(self._slurm.nodes(), self._partition, self._settings)
        self._nodes_at_s = time.monotonic()
        with self.lock:
            self._nodes = {node.listed.node_id: node for node in listed}
        has_any = any(node.listed.slots for node in listed)
        self._lacks_resources = "" if has_any else self._how_to_get_resources()

    def _how_to_get_resources(self) -> str:
        lacking = f"no node of partition {self._partition} has generic resources named {', '.join(self._settings.gres)}"
        return f"{lacking}: set gres of the section slurm, or let Slurm's admin name them in slurm.conf and gres.conf"

    def _list_jobs(self) -> None:
        """Take what Slurm says of our allocations, those that an earlier service made included."""
        if not self.has_listed:
            self._adopt(self.folder.glob("allocations/*"))
        now_boottime_s = machine.boottime_s()
        jobs = {job.job_id: job for job in self._slurm.jobs()}
        self._jobs_at_s = time.monotonic()
        folders = {str(each.folder) for each in self.allocations.values()}
        new = {job.comment for job in jobs.values() if not job.has_ended} - folders
        self._adopt(Path(each) for each in new if Path(each).parent == self.folder / "allocations")
        if any(job.state == "NODE_FAIL" and not self._knows_end_of(job) for job in jobs.values()):
            self._list_nodes()  # so that a lost node is seen before what it took along
        with self.lock:
            for each in self.allocations.values():
                each.take(jobs, now_boottime_s)
                if not each.jobs and not each.gone:  # nobody has submitted it, or Slurm has forgotten it
                    each.gone = "Slurm does not list its allocation any more"
        self._count_others()

    def _knows_end_of(self, job: SlurmJob) -> bool:
        own = [each.jobs[job.job_id] for each in self.allocations.values() if job.job_id in each.jobs]
        return all(each.has_ended for each in own)

    def _count_others(self) -> None:
        """Work out what others use."""
        ours: dict[str, Counter[str]] = {}
        for each in self.allocations.values():
            for node, resource, units in each.held:
                ours.setdefault(node, Counter())[resource] += units
        now = {name: taken_of(node, ours.get(name, {}), self._cores(node, 1)) for name, node in self._nodes.items()}
        self._take_others(now)

    # --- allocations ------------------------------------------------------------------------------------------------

    def _end(self, leaving: list[SlurmAllocation]) -> None:
        cancelled = [job_id for each in leaving for job_id in self._let_go(each)]
        if cancelled:
            self._slurm.cancel(cancelled)

    def _give_up_if_late(self, each: SlurmAllocation) -> None:
        """Let go of an allocation that did not bring all its agents; its nodes are not tried again for a while."""
        waited_s = time.monotonic() - each.made_s
        failed = each.problem or (each.gone and f"{each.gone} {each.output()}".strip())
        is_queued = not each.is_held and waited_s > self._settings.pending_limit_s
        if not failed and not each.is_ready and (is_queued or waited_s > self._settings.pending_limit_s + START_S):
            why = "; ".join(sorted({job.reason or job.state for job in each.jobs.values()})) or "no answer"
            failed = f"an allocation did not start there within {waited_s:.0f} s (Slurm: {why})"
        if each.has_launched or not failed:
            return
        self._give_up(each, failed)

    def _let_go(self, each: SlurmAllocation) -> list[int]:
        """Return the jobs to cancel of an allocation that leaves: those that have not started, or do not end."""
        assert each.leaving_s is not None, "only an allocation that leaves is let go"
        is_late = time.monotonic() - each.leaving_s > LEAVE_S
        live = [job for job in each.jobs.values() if not job.has_ended and job.state != "COMPLETING"]
        if each.is_cancelled or not (is_late or any(job.state == "PENDING" for job in live) or not each.is_ready):
            return []
        each.is_cancelled = True
        return [job.job_id for job in live]

    def _reason(self, each: SlurmAllocation) -> str:
        reasons = "; ".join({job.reason for job in each.jobs.values()} - {"", "None"})
        return f"Slurm says {reasons}" if reasons else ""

    def _submit(self, group: Group, epoch: int) -> None:
        planned = tuple(dict.fromkeys(node for node, _, _ in group.bundles))
        if not self._nodes.keys() >= set(planned):
            return  # the node has gone
        asked = floating(group) if self._settings.chooses_nodes else group
        made = SlurmAllocation.make(self.folder / "allocations", asked, epoch)
        made.start = agent_start(made.folder, self._settings.orders_url, self._settings.certificates)
        made.wished = planned if self._settings.chooses_nodes else ()
        script = self.folder / "run.sh"
        if not script.exists() or script.read_text() != SCRIPT:
            write_durable(script, SCRIPT.encode())
        try:
            self._submit_jobs(group, made)
        except BackendUnavailable:
            made.remove()  # an agent that starts all the same finds no orders, and ends
            raise
        with self.lock:
            self.allocations[made.folder.name] = made

    def _submit_jobs(self, group: Group, made: SlurmAllocation) -> None:
        """Submit the jobs that are still to be: where Slurm chooses nodes, each once it has chosen the others'."""
        assert made.start is not None, "whoever makes an allocation knows what its agents are told"
        shapes = [*made.by_units().items()]
        try:
            for number, ((resource, units), nodes) in enumerate(shapes[len(made.jobs) :], len(made.jobs)):
                if made.wished and not all(job.nodes for job in made.jobs.values()):
                    return
                options = self._options(group, made, resource, units, nodes)
                boxes = boxes_of(number) if made.wished else ""
                arguments = (sys.executable, made.start.where, str(self._settings.node_folder), boxes)
                job_id = self._slurm.submit(options, self.folder / "run.sh", arguments, made.start.environment)
                made.jobs[job_id] = _submitted(job_id, made)
        except Refused as problem:
            self._refuse(group.name, f"Slurm refuses an allocation: {problem}{_hint(str(problem))}")
            made.leave()

    def _go_on(self) -> None:
        """Submit what is still to be of allocations whose first nodes Slurm has chosen by now."""
        with self.lock:
            wanted = dict(self._wanted)
        for name, group in wanted.items():
            each = self.serving(name)
            if each is not None and each.start is not None and each.leaving_s is None and not each.gone:
                self._submit_jobs(group, each)

    def _place(self, made: SlurmAllocation, resource: str, units: int, nodes: list[str]) -> Place:
        """Return where a job is to run: on these nodes, or on any that have as much of the type."""
        if not made.wished:
            return Place(options=[f"--nodelist={','.join(nodes)}"], nodes=[self._nodes[node] for node in nodes])
        planned = [self._nodes[node] for node in made.wished if node in self._nodes]
        feature = next((node.type_feature for node in planned), "")
        given = [node for job in made.jobs.values() for node in job.nodes]
        options = [f"--constraint={feature}"] if feature else []
        options += [f"--exclude={','.join(given)}"] if given else []
        fitting = [node for node in self._nodes.values() if node.has(resource, units, feature)]
        return Place(options=options, nodes=fitting or planned)

    def _options(self, group: Group, made: SlurmAllocation, resource: str, units: int, nodes: list[str]) -> list[str]:
        """Return the arguments of sbatch for the nodes that hold so many units of the resource each."""
        settings = self._settings
        account = settings.accounts.get(group.tier, settings.account)
        place = self._place(made, resource, units, nodes)
        memory_bytes = min(_share(node, group.memory_bytes, units) for node in place.nodes)
        cores = group.cpu_cores * units or min(self._cores(node, units) for node in place.nodes)
        options = [
            f"--job-name={group.name}",
            f"--comment={made.folder}",
            f"--partition={self._partition}",
            *place.options,
            f"--nodes={len(nodes)}",
            "--ntasks-per-node=1",
            f"--cpus-per-task={max(cores, 1)}",
            f"--gres={resource}:{units}",
            f"--time={self._minutes(group)}",
            f"--output={'/dev/null' if settings.orders_url else f'{made.folder}/output-%j'}",
            f"--chdir={'/' if settings.orders_url else made.folder}",
            "--no-requeue",
        ]
        options += [f"--account={account}"] if account else []
        options += [f"--mem={memory_bytes >> 20}M"] if memory_bytes >> 20 else []
        return [*options, *settings.options]

    def _cores(self, node: SlurmNode, units: int) -> int:
        """Return the cores for so many workers of the node: as set, else their share of it."""
        own = self._settings.cpus_per_worker
        return max(own * units or node.listed.cpu_cores * units // max(len(node.listed.slots), 1), 1)

    def _minutes(self, group: Group) -> int:
        """Return the time limit of a new allocation, never longer than the partition's."""
        lease_s = group.until_boottime_s - machine.boottime_s() + self._settings.lease_grace_s + MARGIN_S + STEP_S
        wanted_s = self._settings.limit_s or lease_s
        return max(math.floor(min(wanted_s, self._longest_s) / MINUTE_S), 1)

    # --- time limits ------------------------------------------------------------------------------------------------

    def _extend(self) -> None:
        """Extend the time limits that are too short for their leases, all by as much, in one call."""
        if self._settings.limit_s:
            return
        with self.lock:
            wanted = dict(self._wanted)
        lacking: list[tuple[SlurmAllocation, float]] = []
        for name, group in wanted.items():
            each = self.serving(name)
            if each is not None and each.end_boottime_s is not None and not each.gone:
                needed_s = group.until_boottime_s + self._settings.lease_grace_s + MARGIN_S
                if each.end_boottime_s < needed_s:
                    lacking.append((each, needed_s + STEP_S - each.end_boottime_s))
        if lacking:
            self._lengthen([each for each, _ in lacking], max(lacks_s for _, lacks_s in lacking))

    def _lengthen(self, lacking: list[SlurmAllocation], by_s: float) -> None:
        minutes = math.ceil(by_s / MINUTE_S)
        job_ids = [job.job_id for each in lacking for job in each.jobs.values() if not job.has_ended]
        try:
            self._slurm.extend(job_ids, minutes)
        except Refused as problem:
            if "denied" not in str(problem).lower():
                return  # one of them has ended just now; the next look shows which are too short still
            advice = "make the service's user an operator of Slurm, or set limit_s of the section slurm"
            self._extension_note = f"Slurm does not extend time limits for this user ({problem}): {advice}"
            return
        self._extension_note = ""
        for each in lacking:
            assert each.end_boottime_s is not None, "only one that runs is too short"
            each.end_boottime_s += minutes * MINUTE_S


def _submitted(job_id: int, made: SlurmAllocation) -> SlurmJob:
    """Return an allocation as Slurm will list it."""
    return SlurmJob(job_id=job_id, state="PENDING", name=made.name, comment=str(made.folder))


def _share(node: SlurmNode, asked_bytes: int, units: int) -> int:
    """Return the memory for so many workers of a node: what each asks for, else their share of the node."""
    whole_bytes = node.listed.memory_bytes
    return min(asked_bytes * units or whole_bytes * units // max(len(node.listed.slots), 1), whole_bytes)


def _hint(problem: str) -> str:
    """Return what to do about a refusal of sbatch."""
    lower = problem.lower()
    if "account" in lower:
        return "; set account of the section slurm, and accounts by tier, to those that the service's user has in Slurm"
    if "time limit" in lower:
        return "; set limit_s of the section slurm to what the partition and the account allow"
    if "gres" in lower or "generic resource" in lower:
        return "; set gres of the section slurm to names of GresTypes in slurm.conf"
    return ""
