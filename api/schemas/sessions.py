"""Interactive sessions: what a submission says of one, what a job shows of it, and how it is extended."""

from typing import Literal

from pydantic import Field

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


class SessionView(View):
    """What a job shows of its session."""

    mode: JobMode = Field(description="interactive: a session for people, with an end; service: it has replicas.")
    longest_s: float | None = Field(description="Most seconds that the session lasts; null: a batch job.")
    idle_s: float | None = Field(description="It ends after so many seconds without use; null: it does not.")
    session_ends_at_s: float | None = Field(description="When the session ends at the latest; null before its start.")


class SessionExtend(Request):
    """By how much longer an interactive session lasts."""

    model_config = example(by_s=7200)

    by_s: float = Field(ge=1, le=31_536_000, description="Seconds, added to those that it was granted.")
