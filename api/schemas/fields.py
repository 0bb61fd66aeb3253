"""The types that fields of requests share, with their bounds."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

NAME_PATTERN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"

KIND_PATTERN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(/[a-z0-9]([-a-z0-9]*[a-z0-9])?)?$"

TYPE_PATTERN = r"^[A-Za-z0-9]([-_.A-Za-z0-9]*[A-Za-z0-9])?$"
NODE_PATTERN = f"{TYPE_PATTERN[:-1]}(@{TYPE_PATTERN[1:-1]})?$"  # with its region, where there are several backends
NodeName = Annotated[str, StringConstraints(pattern=NODE_PATTERN, max_length=253)]

LABEL_KEY_PATTERN = r"^[A-Za-z0-9]([-_./A-Za-z0-9]*[A-Za-z0-9])?$"

LABEL_VALUE_PATTERN = r"^[^\u0000-\u001f\u007f]*$"

TEXT_PATTERN = r"^[^\u0000]*$"  # a program's arguments are C strings: anything but NUL

JOB_ID_PATTERN = r"^[a-z0-9][-a-z0-9]*$"

LABEL_PATTERN = r"^[^=\u0000]+=[^\u0000]*$"

Name = Annotated[str, StringConstraints(pattern=NAME_PATTERN, max_length=63)]

Kind = Annotated[str, StringConstraints(pattern=KIND_PATTERN, max_length=127)]

TypeName = Annotated[str, StringConstraints(pattern=TYPE_PATTERN, max_length=63)]

RegionName = Annotated[str, StringConstraints(pattern=TYPE_PATTERN, max_length=63)]

CompositionText = Annotated[str, StringConstraints(pattern=TEXT_PATTERN, max_length=300)]
"""POLICY?parameter=value/PART=VALUE."""

Argument = Annotated[str, StringConstraints(pattern=TEXT_PATTERN, max_length=4096)]

ArgumentName = Annotated[str, StringConstraints(pattern=r"^[-+~]*[A-Za-z0-9][-_.A-Za-z0-9]*$", max_length=63)]

VariableName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=127)]

VariableValue = Annotated[str, StringConstraints(pattern=TEXT_PATTERN, max_length=4096)]

ImageName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/@-]*$", max_length=255)]

InputName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$", max_length=63)]

InputSource = Annotated[str, StringConstraints(pattern=r"^[^\u0000-\u0020]([^\u0000-\u001f]*)$", max_length=4096)]

ShellLine = Annotated[str, StringConstraints(pattern=TEXT_PATTERN, min_length=1, max_length=4096)]

AbsolutePath = Annotated[str, StringConstraints(pattern=r"^/[^\u0000-\u001f]*$", max_length=4096)]

LabelKey = Annotated[str, StringConstraints(pattern=LABEL_KEY_PATTERN, max_length=63)]

LabelValue = Annotated[str, StringConstraints(pattern=LABEL_VALUE_PATTERN, max_length=127)]

ObjectiveName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$", max_length=63)]

JobIdText = Annotated[str, StringConstraints(pattern=JOB_ID_PATTERN, max_length=63)]

Label = Annotated[str, StringConstraints(pattern=LABEL_PATTERN, max_length=192)]

Priority = Annotated[int, Field(ge=-10, le=10)]

Weight = Annotated[float, Field(ge=1e-3, le=1e3)]

StepsPerSecond = Annotated[float, Field(gt=1e-9, lt=1e9)]


class Request(BaseModel):
    """A request body: no unknown fields, no conversions, no NaN or infinities."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class View(BaseModel):
    """An answer. Every field is present, also those with a default value."""

    model_config = ConfigDict(frozen=True, json_schema_serialization_defaults_required=True)


def example(**fields: Any) -> ConfigDict:
    """Return the configuration that shows these fields as the example in the API's documentation."""
    return ConfigDict(json_schema_extra={"examples": [fields]})
