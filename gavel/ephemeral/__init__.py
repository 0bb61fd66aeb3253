"""Ephemeral resources and the plain matcher (ESCHER, SoCC '22): a task starts once the names it requires are there."""

from gavel.ephemeral.in_process import InProcess, request_for
from gavel.ephemeral.matcher import Match, match
from gavel.ephemeral.resources import Availability, Fallback, Gang, GangRequest, Member, NodeSpec, ResourceTable

__all__ = [
    "Availability",
    "Fallback",
    "Gang",
    "GangRequest",
    "InProcess",
    "Match",
    "Member",
    "NodeSpec",
    "ResourceTable",
    "match",
    "request_for",
]
