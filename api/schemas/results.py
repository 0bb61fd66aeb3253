"""What jobs leave: the curves of their metrics, and files."""

from pydantic import Field

from api.schemas.fields import View


class JobMetricsView(View):
    """The metrics that a job has reported, in columns of equal length, by step; `values` has a column for each name."""

    names: list[str]
    steps: list[int]
    at_s: list[float]
    generations: list[int] = Field(description="Of the gang that reported it: it grows with each launch.")
    accelerator_types: list[str] = Field(description="The type that the gang ran on.")
    values: dict[str, list[float | None]] = Field(description="Null: this report had no value of that name.")


class RankUtilizationView(View):
    """What one rank used with its child processes, in columns of equal length, by time."""

    rank: int
    at_s: list[float]
    generations: list[int] = Field(description="Of the gang: it grows with each launch.")
    cpu_cores: list[float] = Field(description="Mean number of CPU cores since the sample before.")
    memory_bytes: list[int] = Field(description="Resident memory; what processes share counts for each.")
    accelerator_busy: list[float | None] = Field(
        description="Part of the time, from 0 to 1, in which its accelerator was busy since the sample before;"
        " null: not known."
    )
    accelerator_memory_bytes: list[int | None] = Field(description="Memory in use there, of all processes.")


class JobUtilizationView(View):
    """What the processes of a job used. No ranks: there is no sample, as on a Ray cluster."""

    ranks: list[RankUtilizationView]


class JobFileView(View):
    """A file in a job's output folder."""

    path: str
    size_bytes: int
    modified_at_s: float


class JobFilesView(View):
    """The files of a job's output folder, sorted by path."""

    items: list[JobFileView]
    total_bytes: int
    limit_bytes: int = Field(description="A job whose folder grows beyond it fails; 0: any size is allowed.")
    left_out: int = Field(description="Links, pipes and the like, and names that are no UTF-8: they are not shown.")
    is_cut: bool = Field(description="There are more files: the folder is shown up to 10,000 entries.")
    kept_until_s: float | None = Field(description="When the folder may be deleted; null while the job lives.")


class CheckpointView(View):
    """A checkpoint of a job, written by the gang `generation` after `step` steps."""

    name: str
    generation: int
    step: int
    size_bytes: int
    written_at_s: float
    is_accepted: bool = Field(description="The job goes on from this one.")


class WrittenCheckpointView(View):
    """An accepted checkpoint as its program measured it, kept or not; null: it did not measure that."""

    name: str
    step: int
    at_s: float = Field(description="When it was accepted.")
    size_bytes: int | None
    written_s: float | None = Field(description="Until it was on the disk.")
    cost_s: float | None = Field(description="For so long of it the training stood still.")
    every_s: float | None = Field(description="Until the next one for safety.")
    time_to_loss_s: float | None = Field(
        description="Mean seconds until a gang of its size is lost, from which `every_s` was chosen; null: stated."
    )


class CheckpointsView(View):
    """The checkpoints of a job that are kept, the newest first."""

    items: list[CheckpointView]
    accepted: str | None = Field(description="Its name; null: the job begins at step 0.")
    written: list[WrittenCheckpointView] = Field(description="The newest five that were accepted, the newest first.")


class PurgedView(View):
    """A job that was purged."""

    id: str
    freed_bytes: int = Field(description="The size of its files on the disk of the service.")
