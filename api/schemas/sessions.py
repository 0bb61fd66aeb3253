"""Interactive sessions: what a submission says of one, what a job shows of it, and how it is extended."""

from typing import Literal

from pydantic import Field, field_validator

from api.schemas.fields import Request, View, example

JobMode = Literal["batch", "interactive", "service"]


class SessionSubmit(Request):
    """The part of a submission that makes the job an interactive session."""

    mode: JobMode = Field(
        "batch",
        description="interactive: a session for people, such as JupyterLab or a shell. It is never preempted, and ends"
        " by `longest_s` or `idle_s`, or with its program. service: an inference service, whose replicas have no end.",
    )
    longest_s: float | None = Field(
        None,
        ge=60,
        le=31_536_000,
        description="Most seconds that an interactive session lasts, from the start of its program."
        " Default: 4 hours, or the most that its tier allows if that is less.",
    )
    idle_s: float | None = Field(
        None,
        ge=30,
        le=31_536_000,
        description="The session ends when for so many seconds nobody was connected and it printed nothing."
        " Default: it does not.",
    )
    reserved_at_s: float | None = Field(
        None,
        ge=0,
        le=1e11,
        description="Unix time at which an interactive session starts, with its workers reserved for it; `longest_s`"
        " counts from then. Default: it starts once there is room.",
    )
    accelerator_share: float = Field(
        1.0,
        description="0.5: another interactive session that says so, or else a training that fits beside it, may run on"
        " the same accelerators. 1: nobody else may.",
    )

    @field_validator("accelerator_share")
    @classmethod
    def _is_whole_or_half(cls, share: float) -> float:
        if share not in (0.5, 1.0):
            raise ValueError("give 0.5 or 1: an accelerator is shared by two at most")
        return share


class SessionView(View):
    """What a job shows of its session."""

    mode: JobMode = Field(description="interactive: a session for people, with an end; service: it has replicas.")
    longest_s: float | None = Field(description="Most seconds that the session lasts; null: a batch job.")
    idle_s: float | None = Field(description="It ends after so many seconds without use; null: it does not.")
    session_ends_at_s: float | None = Field(
        description="When the session ends at the latest; null before its start if it is not reserved."
    )
    reserved_at_s: float | None = Field(description="When the session was reserved to start; null: it was not.")
    reserved_type: str = Field(description="The accelerator type of its reservation; empty without one.")
    accelerator_share: float = Field(
        description="0.5: another session, or else a training, may run on the same accelerators; 1: nobody else may."
    )


class SessionExtend(Request):
    """By how much longer an interactive session lasts."""

    model_config = example(by_s=7200)

    by_s: float = Field(ge=1, le=31_536_000, description="Seconds, added to those that it was granted.")


class ReservationView(View):
    """Workers that an interactive session has, or will have, from an instant to another."""

    model_config = example(
        job_id="00mgxwq3nrqp8t0000000001",
        user="ann",
        name="notebook",
        accelerator_type="v100",
        workers=1,
        reserved_at_s=1796115600.0,
        ends_at_s=1796122800.0,
        has_started=False,
    )

    job_id: str | None = Field(description="The session; null for another user's.")
    user: str | None = Field(description="Whose it is; null for another user's.")
    name: str | None = Field(description="What its user calls it; null for another user's.")
    accelerator_type: str
    workers: int
    reserved_at_s: float
    ends_at_s: float
    has_started: bool = Field(description="Whether its program has been started.")


class ReservationList(View):
    """The reservations that are not over, those that begin first first."""

    items: list[ReservationView]
