"""Path, query and header parameters that several routes share, each bounded."""

from typing import Annotated, Any

from fastapi import Header, Path, Query

from api.schemas import NAME_PATTERN

JobIdPath = Annotated[str, Path(pattern=r"^[a-z0-9][-a-z0-9]*$", max_length=63, description="A job's id.")]
NamePath = Annotated[str, Path(pattern=NAME_PATTERN, max_length=63)]
LimitQuery = Annotated[int, Query(ge=1, le=200, description="Most items in the answer.")]
IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        pattern=r"^[!-~]+$",
        max_length=128,
        description="The same key with the same body is one job, however often it is sent.",
    ),
]
IfMatch = Annotated[str | None, Header(alias="If-Match", max_length=128, description="The ETag you last saw.")]
IfNoneMatch = Annotated[str | None, Header(alias="If-None-Match", max_length=1024)]

UNCHANGED: dict[int | str, dict[str, Any]] = {304: {"description": "Not changed since the ETag in If-None-Match."}}


def names_version(header: str | None, tag: str) -> bool:
    """True when an If-None-Match header holds `tag`, compared weakly (RFC 9110, section 13.1.2)."""
    if header is None:
        return False
    tags = {each.strip().removeprefix("W/") for each in header.split(",")}
    return "*" in tags or tag.removeprefix("W/") in tags
