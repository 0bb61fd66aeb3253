"""Ephemeral resources and the plain matcher (ESCHER, SoCC '22): a task starts once the names it requires are there."""

from gavel.ephemeral.matcher import Match, match
from gavel.ephemeral.resources import Availability, Gang, GangRequest, Member, NodeSpec, ResourceTable

__all__ = ["Availability", "Gang", "GangRequest", "Match", "Member", "NodeSpec", "ResourceTable", "match"]
