"""Path, query and header parameters that several routes share, each bounded."""

import re
from typing import Annotated, Any

from fastapi import Header, Path, Query

from api.schemas import NAME_PATTERN, NODE_PATTERN

JobIdPath = Annotated[str, Path(pattern=r"^[a-z0-9][-a-z0-9]*$", max_length=63, description="A job's id.")]
OperationIdPath = Annotated[str, Path(pattern=r"^[a-z0-9][-a-z0-9]*$", max_length=63, description="An operation's id.")]
NodePath = Annotated[str, Path(pattern=NODE_PATTERN, max_length=253, description="A node's name.")]
NamePath = Annotated[str, Path(pattern=NAME_PATTERN, max_length=63)]
LimitQuery = Annotated[int, Query(ge=1, le=200, description="Most items in the answer.")]
BeforeQuery = Annotated[int | None, Query(ge=1, le=2**53, description="Only entries with a smaller sequence.")]
IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        pattern=r"^[!-~]+$",
        max_length=128,
        description="Requests with the same key and the same body create one job.",
    ),
]
IfMatch = Annotated[str | None, Header(alias="If-Match", max_length=128, description="The ETag you last saw.")]
IfNoneMatch = Annotated[str | None, Header(alias="If-None-Match", max_length=1024)]

JobIfMatch = Annotated[
    str | None,
    Header(alias="If-Match", max_length=128, description="The job's ETag as you last saw it; `*`: any version."),
]

UNCHANGED: dict[int | str, dict[str, Any]] = {304: {"description": "Not changed since the ETag in If-None-Match."}}


def names_version(header: str | None, tag: str) -> bool:
    """Return True if an If-None-Match header holds `tag`, compared weakly (RFC 9110, section 13.1.2)."""
    if header is None:
        return False
    tags = {each.strip().removeprefix("W/") for each in header.split(",")}
    return "*" in tags or tag.removeprefix("W/") in tags


def version_in(if_match: str) -> int | None:
    """Return the version in one of our ETags; None for `*`; 0, which no version has, for any other text."""
    tag = if_match.strip()
    if tag == "*":
        return None
    match = re.fullmatch(r'(?:W/)?"(\d{1,18})"', tag)
    return int(match[1]) if match else 0
