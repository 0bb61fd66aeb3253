"""What each rank of a job needs of the place where it runs."""

from typing import Annotated

from pydantic import Field, StringConstraints

from api.schemas.fields import TYPE_PATTERN, LabelKey, LabelValue, RegionName, Request, View

TypeChoice = Annotated[str, StringConstraints(pattern=f"^!?{TYPE_PATTERN.removeprefix('^')}", max_length=64)]
ACCELERATOR_TYPES = (
    "Accelerator types that it may run on; with a leading `!` one that it may not run on. Empty: any type."
)
TOPOLOGY = (
    "A label of nodes, such as topology.kubernetes.io/zone or rack, of which all nodes of the gang have one value."
)
REGIONS = "Regions that it may be in. Empty: any."


class ResidenceView(View):
    """The region of a job, and what its moves have cost."""

    region: str
    why: str = Field(description="Why it is there and not elsewhere.")
    moved_from: str = Field(description="The region of its last move; empty: it has not moved.")
    arrives_at_s: float | None = Field(description="When all has been copied there; null: all is there.")
    moves: int
    egress_bytes: int = Field(description="What all its moves have copied out of regions.")
    egress_usd: float


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
    topology_label: LabelKey | None = Field(None, description=TOPOLOGY)
    regions: list[RegionName] = Field(default_factory=list, max_length=64, description=REGIONS)
    data_region: RegionName | None = Field(None, description="Region where its data set is; with `data_bytes`.")
    data_bytes: int = Field(0, ge=0, le=1 << 60, description="Size of that data set, which is copied where it moves.")


class NeedsView(View):
    """The part of a job that says where it can run."""

    cpu_cores: int
    memory_bytes: int
    accelerator_types: list[str] = Field(description=ACCELERATOR_TYPES)
    accelerator_memory_bytes: int = Field(description="Memory that each accelerator must have; 0: any.")
    node_labels: dict[str, str] = Field(description="Labels that each node of the gang must have.")
    topology_label: str = Field(description=f"{TOPOLOGY} Empty: none.")
    regions: list[str] = Field(description=REGIONS)
    data_region: str = Field(description="Region where its data set is; empty: it has none that counts.")
    data_bytes: int = Field(description="Size of that data set.")
