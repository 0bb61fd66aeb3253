"""Accelerator types on which jobs were seen not to fit."""

from typing import Annotated

from pydantic import Field, StringConstraints

from api.schemas.fields import View

InfeasibleId = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{16}$")]


class InfeasibleTypeView(View):
    """A mark: jobs of this user, kind and size are not given the accelerator type, until somebody clears it."""

    id: str
    user: str
    kind: str
    scale_factor: int
    accelerator_type: str
    evidence: str = Field(description="What was seen, such as the line of the log.")
    job_id: str = Field(description="The job of which it was seen.")
    at_s: float


class InfeasibleTypeList(View):
    """The marks that the caller may see, the newest first."""

    items: list[InfeasibleTypeView]
