"""Execution plans: what a submission says of them, and what a job shows of them."""

import math
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, StringConstraints, model_validator

from api.schemas.elastic import GangSize
from api.schemas.fields import Argument, Request, View
from api.schemas.needs import ACCELERATOR_TYPES, TypeChoice
from gavel.types.execution_plans import plan_name

PLANS_MAX, PARAMETERS_MAX, NAME_CHARACTERS = 16, 8, 63
NAME_FORM = r"^[A-Za-z0-9]([-_.,=A-Za-z0-9]*[A-Za-z0-9])?$"

PlanName = Annotated[str, StringConstraints(pattern=NAME_FORM, max_length=NAME_CHARACTERS)]
ParameterName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$", max_length=31)]
Degree = Annotated[int, Field(ge=1, le=65536)]


def _read(stated: Any) -> Any:
    """Return a plan that is written as `tensor=2,pipeline=1` as an object; others as they were stated."""
    if not isinstance(stated, str):
        return stated
    pairs = [each.strip().partition("=") for each in stated.split(",") if each.strip()]
    if wrong := next((name for name, equals, _ in pairs if not (name and equals)), "" if pairs else stated):
        raise ValueError(f"{wrong!r} is no parameter; write a plan as tensor=2,pipeline=1, or as an object")
    return {"parameters": {name.strip(): _number(value) for name, _, value in pairs}}


def _number(text: str) -> int | str:
    return int(text) if text.strip().isdecimal() else text.strip()


def _checked_parameters(stated: Any) -> Any:
    """Return the parameters. Raises ValueError for one that is no whole number of at least 1."""
    if not isinstance(stated, dict):
        return stated
    for name, value in stated.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{name}={value}: a parameter is a whole number of at least 1, such as {name}=2")
    return stated


def _not_empty(stated: Any) -> Any:
    """Return the command line. Raises ValueError for an empty one."""
    if isinstance(stated, list) and not any(stated):
        raise ValueError("the command is empty; name a program, or leave argv out for the one of the job")
    return stated


def _not_too_many(stated: Any) -> Any:
    """Return the plans. Raises ValueError for more than are tried."""
    if isinstance(stated, list) and len(stated) > PLANS_MAX:
        raise ValueError(f"{len(stated)} plans are too many to try; keep at most {PLANS_MAX}, those worth it")
    return stated


class PlanOfJob(Request):
    """One way in which the ranks of the job divide its work, which the service may choose."""

    name: PlanName | None = Field(None, description="Default: the parameters, such as `tensor=2,pipeline=1`.")
    parameters: Annotated[dict[ParameterName, Degree], BeforeValidator(_checked_parameters)] = Field(
        default_factory=dict,
        max_length=PARAMETERS_MAX,
        description="Told to each rank: `tensor` as GAVEL_PLAN_TENSOR, and so on.",
    )
    sizes: list[GangSize] = Field(
        default_factory=list,
        max_length=32,
        description="Sizes of the job at which the plan holds. Default: those that the product of the parameters"
        " divides.",
    )
    argv: Annotated[list[Argument] | None, BeforeValidator(_not_empty)] = Field(
        None, min_length=1, max_length=256, description="A command line of its own. Default: that of the job."
    )
    accelerator_types: list[TypeChoice] = Field(default_factory=list, max_length=64, description=ACCELERATOR_TYPES)
    accelerator_memory_bytes: int = Field(
        0, ge=0, le=1 << 50, description="Memory that each accelerator must have for the plan. Default: any."
    )

    @property
    def full_name(self) -> str:
        """Return the name of the plan, that of its parameters if it was given none."""
        return self.name or plan_name(self.parameters)

    @property
    def degree(self) -> int:
        """Return the product of the parameters."""
        return math.prod(self.parameters.values())

    @model_validator(mode="after")
    def _has_name(self) -> Self:
        if not self.full_name:
            raise ValueError("the plan has neither name nor parameters; give it one, such as tensor=2")
        if len(self.full_name) > NAME_CHARACTERS:
            raise ValueError(f"its parameters are longer than a name, {NAME_CHARACTERS} characters; give it a name")
        return self


PlanText = Annotated[str, StringConstraints(max_length=1000)]


PlanStated = Annotated[
    PlanOfJob,
    BeforeValidator(_read, json_schema_input_type=PlanOfJob | PlanText),
    Field(description="An object, or a text such as `tensor=2,pipeline=1`."),
]


class PlansSubmit(Request):
    """The part of a submission that lists its execution plans."""

    plans: Annotated[
        list[PlanStated],
        BeforeValidator(_not_too_many),
    ] = Field(
        default_factory=list,
        max_length=PLANS_MAX,
        description="Execution plans, of which the rounds choose one for each size and accelerator type: objects, or"
        " texts such as `tensor=2,pipeline=1`.",
    )


class PlanView(View):
    """One plan of a job."""

    name: str
    parameters: dict[str, int]
    sizes: list[int] = Field(description="Sizes at which it holds.")
    argv: list[str] = Field(description="Its own command line; empty: that of the job.")
    accelerator_types: list[str]
    accelerator_memory_bytes: int
    kind: str = Field(description="The kind under which its speeds are learned.")


class PlansView(View):
    """What a job shows of its execution plans."""

    plan: str | None = Field(
        description="The plan in force; before the first gang the first one. Null: the job has no plans."
    )
    plans: list[PlanView]
