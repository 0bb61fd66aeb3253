"""What each rank of a job needs of the place where it runs."""

from typing import Annotated

from pydantic import Field, StringConstraints

from api.schemas.fields import TYPE_PATTERN, LabelKey, LabelValue, Request, View

TypeChoice = Annotated[str, StringConstraints(pattern=f"^!?{TYPE_PATTERN.removeprefix('^')}", max_length=64)]
ACCELERATOR_TYPES = (
    "Accelerator types that it may run on; with a leading `!` one that it may not run on. Empty: any type."
)


class NeedsSubmit(Request):
    """The part of a submission that says where the job can run. Nothing runs or is measured anywhere else."""

    cpu_cores: int = Field(1, ge=1, le=4096, description="CPU cores of its node that each rank needs.")
    memory_bytes: int = Field(0, ge=0, le=1 << 50, description="Memory of its node that each rank needs.")
    accelerator_types: list[TypeChoice] = Field(default_factory=list, max_length=64, description=ACCELERATOR_TYPES)
    accelerator_memory_bytes: int = Field(
        0, ge=0, le=1 << 50, description="Memory that each accelerator must have. Default: any."
    )
    node_labels: dict[LabelKey, LabelValue] = Field(
        default_factory=dict, max_length=32, description="Labels that each node of the gang must have."
    )


class NeedsView(View):
    """The part of a job that says where it can run."""

    cpu_cores: int
    memory_bytes: int
    accelerator_types: list[str] = Field(description=ACCELERATOR_TYPES)
    accelerator_memory_bytes: int = Field(description="Memory that each accelerator must have; 0: any.")
    node_labels: dict[str, str] = Field(description="Labels that each node of the gang must have.")
