"""One process's view of its job: its steps, its place in the gang, its tasks."""

import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from gavel_runtime._batches import Batches
from gavel_runtime._errors import CannotRunHere
from gavel_runtime._hub import Hub, Meeting, Spoke, join_hub, open_hub
from gavel_runtime._leader import Leader, Save
from gavel_runtime._lease import wait_for_lease
from gavel_runtime._length import total_of
from gavel_runtime._loop import Follower, Loop, StopSignal
from gavel_runtime._marks import Marks
from gavel_runtime._reports import merged_metrics
from gavel_runtime._restore import resumed
from gavel_runtime._samples import MicroBatch, copy_of, micro_batches
from gavel_runtime._setting import Setting, setting_from
from gavel_runtime._tasks import Task, ask_for_task

if TYPE_CHECKING:  # loads HTTP, which most jobs never need
    from gavel_runtime._service import JobCluster, NodeSpec, Units

Restore = Callable[[Path], object]
TTL_S = 60.0


class Job:
    """This process's view of its job; one per process, `job`."""

    def __init__(self) -> None:
        self._metrics: dict[str, float] = {}
        self._numbers = itertools.count(1)
        self._marks = Marks()
        self._loop: Loop | None = None

    @cached_property
    def _setting(self) -> Setting:
        wait_for_lease()
        return setting_from(os.environ)

    @cached_property
    def _batches(self) -> Batches:
        return Batches(self._setting.global_batch, self._setting.max_global_batch)

    @cached_property
    def _gang(self) -> Hub | Spoke:
        setting = self._setting
        if setting.task:
            raise RuntimeError(f"task {setting.task} is no rank: it does no steps and is in no all_gather")
        if setting.world_size == 1 or setting.gang_dir is None:
            return Hub()
        meeting = Meeting(setting.gang_dir, setting.hub, setting.gang_key, setting.gang_timeout_s)
        if setting.rank == 0:
            return open_hub(meeting, setting.world_size)
        return join_hub(meeting, setting.rank, setting.world_size)

    @property
    def rank(self) -> int:
        """This process's number in its gang, from 0."""
        return self._setting.rank

    @property
    def world_size(self) -> int:
        """Number of processes in the gang, the job's scale factor."""
        return self._setting.world_size

    @property
    def global_batch(self) -> int | None:
        """Samples of a step of an elastic job; None for a rigid job, and outside Gavel."""
        return self._setting.global_batch

    @property
    def plan(self) -> Mapping[str, int]:
        """Parameters of the execution plan that this gang runs under, such as {"tensor": 2}; empty without a plan.

        A checkpoint of another plan has to be loaded, too. Outside Gavel, GAVEL_PLAN_TENSOR=2 sets `tensor`.
        """
        return self._setting.plan_parameters

    @property
    def plan_name(self) -> str:
        """Name of that plan; empty without one."""
        return self._setting.plan

    @property
    def is_rank_zero(self) -> bool:
        """Whether this is the rank that writes checkpoints and reports."""
        return self.rank == 0

    @property
    def accelerator_type(self) -> str:
        """Name of the accelerator type that this process runs on; `standalone` outside Gavel."""
        return self._setting.accelerator_type

    @property
    def id(self) -> str:
        """The job's id, which owns the ephemeral resources it sets; empty outside Gavel."""
        return self._setting.job_id

    @property
    def node(self) -> str:
        """The node that this process runs on; empty outside Gavel."""
        return self._setting.node

    @property
    def output_dir(self) -> Path:
        """The job's folder for what it produces: it stays over leases, and is listed and downloaded.

        Outside Gavel `outputs`, made below the present folder. Raises RuntimeError where a cluster offers none.
        """
        folder = self._setting.output_dir
        if folder is None:
            raise RuntimeError("job.output_dir: this cluster has no output folders; write to a folder that you share")
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    @property
    def data(self) -> Mapping[str, Path]:
        """The place of each input that was declared with `--data NAME=PATH_OR_URL`: a file or folder, only to be read.

        Outside Gavel those of the variables GAVEL_DATA_NAME. Raises KeyError for a name that was not declared.
        """
        return self._setting.inputs

    def steps(
        self,
        *,
        checkpoint: Save | None = None,
        restore: Restore | None = None,
        total: int | None = None,
        checkpoint_every_s: float | None = None,
    ) -> Iterator[int]:
        """Yield the indices of the steps to do, from the first that no checkpoint covers to the last.

        `restore(path)` is called first, in every rank, when there is a checkpoint to resume from; if it raises and the
        job has one rank, again with the checkpoint before that one. `checkpoint(path)` is called in rank 0 between
        steps with an empty directory to fill: at the end, before the lease is over, and every `checkpoint_every_s`
        seconds (None: as often as pays, from what one costs and how often gangs are lost). If it returns a function,
        that one is called in a thread to do the writing from a copy in memory, while training goes on. When the job
        must stop, SystemExit(75) is raised instead of the next step, so that code after the loop runs only when
        training is complete; every rank stops after the same step. A loop that is left before its last step calls
        `job.finish` before, in every rank; otherwise the job fails.
        `total` is the number of steps; inside Gavel the number of the submitted job goes before it, and where there is
        none the service is told `total` with the first report. Later gangs of the job keep to it.
        Raises ValueError when there is no total, or a checkpoint but no `restore`; GangError when a rank is lost.
        """
        total_steps = self._checked(total, checkpoint, restore)

        def steps() -> Iterator[int]:
            self._loop = self._begun(total_steps, checkpoint, restore, checkpoint_every_s, False)
            yield from self._loop.steps()

        return steps()

    def micro_batches(
        self,
        step: int,
        *,
        at_most: int | None = None,
        global_batch: int | None = None,
        model_parallel_size: int = 1,
    ) -> Iterator[MicroBatch]:
        """Yield the samples that this rank takes in a step, in parts of at most `at_most` (None: all at once).

        A step of an elastic job has the same samples at every size of its gang: add up the gradient of each part's
        mean loss times `weight` over the parts and then over all ranks, and the sum is the gradient of the mean loss of
        the global batch. `global_batch` is the number of samples of a step; inside Gavel that of the submitted job goes
        before it. With a `max_global_batch` it may be a multiple of that: see `gain`. So many consecutive ranks as
        `model_parallel_size` says hold one copy of the model together and take the same samples: add up over one rank
        of each copy. Raises ValueError when there is no number of samples, or the ranks are no whole number of copies.
        """
        batch = self.global_batch or global_batch
        if not batch or batch < 1 or (at_most is not None and at_most < 1):
            raise ValueError("micro_batches: say how many samples a step has, and take one at least: global_batch=N")
        copy, copies = copy_of(self.rank, self.world_size, model_parallel_size)
        start, samples = step * batch, batch
        if self._batches.may_grow:
            start, samples, at_most = self._batches.samples(at_most, copies)
        return micro_batches(start, samples, rank=copy, world_size=copies, at_most=at_most)

    def gain(self, squares: float, whole: float) -> float:
        """Return how many steps the update in progress is worth, by which its learning rate is to be multiplied.

        `squares` is the sum, over all parts of all ranks (of one rank of each copy of the model), of `weight` times the
        squared norm of the part's mean gradient; `whole` is the squared norm of the gradient that the update is made
        with. From these the noise of gradients is measured, and while it makes larger batches pay, updates take several
        global batches, up to the `max_global_batch` of the submission. Called once in a step in every rank, with the
        same numbers. Always 1 without a `max_global_batch`. Source: AdaScale SGD (ICML 2020), section 3.
        """
        return self._batches.gain(squares, whole)

    def finish(self) -> None:
        """End the training with the step in progress, before the last one: with a checkpoint, and the job is complete.

        Called by every rank in the loop over `steps` or `epochs`, before it is left by `break` or `return`.
        Raises RuntimeError outside such a loop.
        """
        if self._loop is None:
            raise RuntimeError("job.finish: no loop over job.steps or job.epochs has begun")
        self._loop.finish_in_step()

    def loop(
        self,
        *,
        checkpoint: Save | None = None,
        restore: Restore | None = None,
        total: int | None = None,
        checkpoint_every_s: float | None = None,
        every_rank: bool = False,
        is_measured: bool = True,
    ) -> Loop:
        """Begin the loop of `steps` for a program that is called back at each step; see Loop.

        `every_rank`: `checkpoint` is called in all ranks after the same step, with the same folder where they share
        one. Not `is_measured`: the steps are those of a program that counts none; they have no total, and say nothing
        about speed. Restores at once. Raises as `steps` does.
        """
        total_steps = self._checked(total, checkpoint, restore) if is_measured else None
        return self._begun(total_steps, checkpoint, restore, checkpoint_every_s, every_rank)

    def _checked(self, total: int | None, checkpoint: Save | None, restore: Restore | None) -> int:
        setting = self._setting
        total_steps = total_of(setting, total)
        if setting.checkpoint is not None and restore is None:
            raise ValueError(f"restore: there is a checkpoint at {setting.checkpoint}; pass a function that loads it")
        return total_steps

    def _begun(
        self,
        total: int | None,
        save: Save | None,
        restore: Restore | None,
        checkpoint_every_s: float | None,
        every_rank: bool,
    ) -> Loop:
        setting, gang = self._setting, self._gang
        stop_signal = StopSignal(has_grace=setting.gang_dir is not None)
        begun = resumed(setting, restore)
        if begun.folder is not None:
            self._batches.load(begun.folder, begun.step)
        side: Leader | Follower
        if isinstance(gang, Spoke):
            side = Follower(
                setting, gang, begun.step, marks=self._marks, batches=self._batches, asked_to_stop=stop_signal
            )
        else:
            side = Leader(
                setting,
                gang,
                total,
                begun=begun,
                every_rank=every_rank,
                can_save=save is not None,
                checkpoint_every_s=checkpoint_every_s,
                metrics=self._metrics,
                marks=self._marks,
                batches=self._batches,
                asked_to_stop=stop_signal,
            )
        return Loop(side, save, setting.checkpoint, stop_signal)

    @property
    def checkpoint(self) -> Path | None:
        """The folder of the checkpoint that this process resumes from; None at the beginning."""
        return self._setting.checkpoint

    def epochs(
        self,
        total: int | None = None,
        *,
        checkpoint: Save | None = None,
        restore: Restore | None = None,
        checkpoint_every_s: float = 0.0,
    ) -> Iterator[int]:
        """Yield the epochs to do, from the first that no checkpoint covers to the last: `steps` with epochs as steps.

        `checkpoint(path)` is called after every epoch, or after the first that ends `checkpoint_every_s` seconds after
        the last call; `restore(path)` as in `steps`. The job stops between epochs only, so a round should be longer
        than an epoch. Raises ValueError, GangError and SystemExit(75) as `steps`.
        """
        return self.steps(total=total, checkpoint=checkpoint, restore=restore, checkpoint_every_s=checkpoint_every_s)

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Return a context manager for a block that is no training, such as `with job.phase("eval"):`.

        Its time is shown with the job, and left out of the measured rate: in a gang the longest of all ranks. Phases
        may be nested; the inner one then counts. A process has at most 8 names. Raises ValueError for a bad name.
        """
        return self._marks.phase(name)

    def cannot_run_here(self, reason: str) -> NoReturn:
        """End this program, as the job does not fit this accelerator type: it goes on elsewhere, from its checkpoint.

        No later gang of its kind and size is started on the type until its user clears that. Raises CannotRunHere.
        """
        raise CannotRunHere(" ".join(reason.split()))

    def report_work(self, units: float) -> None:
        """Say how much work the step in progress is, such as its tokens, where steps differ in size: called in rank 0.

        The measured rate is then that of work, and counts in steps of the job's mean size. Only how the units of steps
        compare matters. Several calls in a step add up. Raises ValueError for a number that is not finite or below 0.
        """
        self._marks.add_work(units)

    def report(self, **metrics: float) -> None:
        """Attach metrics to the coming reports, such as `loss=0.3`: at most 16 names; numbers that are not finite are
        left out. Raises ValueError for too many names."""
        merged = merged_metrics(self._metrics, metrics)
        self._metrics.clear()
        self._metrics.update(merged)

    def all_gather(self, payload: bytes) -> tuple[bytes, ...]:
        """Return every rank's payload, in the order of ranks, once all ranks have called it. Raises GangError."""
        return self._gang.all_gather(payload)

    # --- tasks and their places ---

    def launch(
        self,
        argv: Sequence[str],
        *,
        requires: Mapping[str, int],
        name: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Task:
        """Request a program that starts on a node of this job once what it `requires` is free there, and holds it.

        `requires` is {name: units} of ephemeral resources, this job's or `owner/name`; they may be set before or after.
        The task ends with this gang's lease at the latest; its output is in the job's log. A name is used once in a
        gang: launched again, it is the same task. Raises ValueError, RuntimeError outside Gavel.
        """
        if self._setting.gang_dir is None:
            raise RuntimeError("job.launch: not run by Gavel, so nobody starts tasks; see docs/ephemeral-resources.md")
        place = self._setting.task or f"rank-{self.rank}"
        name = name or f"{place}-{next(self._numbers)}"
        return ask_for_task(self._setting.gang_dir, name, argv, requires, env or {})

    def set_resource(
        self,
        name: str,
        capacity: int,
        node: "NodeSpec | None" = None,
        *,
        ttl_s: float = TTL_S,
        num_nodes: int | None = None,
        expect_generation: int | None = None,
    ) -> dict[str, int]:
        """Create, resize, renew or (capacity 0) delete this job's `name`; return {node: generation} as written.

        `node` is one node, a list of nodes, or {owner/name: amount} for every node of this job with that much free; by
        default this process's node. At most `num_nodes` are written. The lease is `ttl_s` seconds, renewed by setting
        it again. Raises ServiceError, also if the generation is not `expect_generation` (0: there is no such name).
        """
        resource = {"name": name, "capacity": capacity, "nodes": node or self.node, "ttl_s": ttl_s}
        asked = {"num_nodes": num_nodes, "expect_generation": expect_generation}
        resource |= {key: value for key, value in asked.items() if value is not None}
        return {each["node"]: each["generation"] for each in self.cluster(ttl_s=ttl_s).set_all([resource])}

    def get_cluster_state(self) -> "dict[str, dict[str, Units]]":
        """Return {node: {owner/name: units with `capacity` and `free`}}, workers included. Raises ServiceError."""
        return self.cluster().get_cluster_state()

    def cluster(self, *, ttl_s: float = TTL_S) -> "JobCluster":
        """Return the cluster for the libraries of gavel.ephemeral in a job: `LoadBalancing(…).apply(job.cluster())`.

        Raises RuntimeError outside Gavel.
        """
        from gavel_runtime._service import JobCluster

        if not (self._setting.service_url and self._setting.job_token):
            raise RuntimeError("not run by a Gavel service, so there is no cluster to ask (GAVEL_URL, GAVEL_JOB_TOKEN)")
        return JobCluster(self._setting.service_url, self._setting.job_token, ttl_s)


job = Job()
