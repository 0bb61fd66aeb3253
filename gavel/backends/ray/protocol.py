"""Where Ray is."""

from dataclasses import dataclass

from gavel.backends.nodes.protocol import NodeSettings

NAMESPACE = "gavel"
"""Ray namespace of our actors and placement groups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RaySettings(NodeSettings):
    """Where Ray is, and what is where on its nodes.

    `address`: as `ray.init` takes it. `report_period_s`: the cluster's raylet_report_resources_period. `box`: where the
    service asks for tunnels.
    """

    address: str
    box: str = ""
    report_period_s: float = 0.1

    @property
    def settle_s(self) -> float:
        """Return the seconds that Ray may take to learn that capacity is free again."""
        return 1.5 * self.report_period_s + 0.005
