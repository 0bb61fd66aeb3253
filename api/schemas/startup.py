"""How long a job takes before it trains, and what its checkpoints cost."""

from pydantic import Field

from api.schemas.fields import View


class StartupView(View):
    """What its gangs have reported; null: nothing so far."""

    startup_s: float | None = Field(description="From the start of its last program to its loop over steps.")
    restore_s: float | None = Field(description="What the loading of its checkpoint took then.")
    checkpoint_s: float | None = Field(description="What the writing of its last checkpoint took.")
    checkpoint_bytes: int | None = Field(description="The size of its last checkpoint.")
    checkpoint_every_s: float | None = Field(
        description="Seconds from one checkpoint for safety to the next, as its program chose, or was told."
    )
    checkpoint_cost_s: float | None = Field(description="How long its training stood still for its last checkpoint.")
    time_to_loss_s: float | None = Field(
        description="Mean seconds until a gang of its size is lost, from which its program chose how often."
    )
