"""Metrics of moves between regions."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping

from prometheus_client.core import GaugeMetricFamily

from gavel.types import Cluster, Job
from gavel.types.regions import LinkCopies


def region_metrics(jobs: Iterable[Job], cluster: Cluster, backends: Iterable[str]) -> Iterator[GaugeMetricFamily]:
    """Yield what unfinished jobs have copied out of regions, what that cost, and how many are in each region.

    And the nodes of each region that has a backend of its own (`backends`): 0 if that cannot be reached.
    """
    present = Counter(node.region for node in cluster.nodes)
    nodes = {region: float(present[region]) for region in backends}
    text = "Nodes that can be reached, by region, where each has a backend."
    yield _family("gavel_region_nodes", text, "region", nodes)
    there, egress_bytes, egress_usd = (defaultdict[str, float](float) for _ in range(3))
    for job in jobs:
        if job.residence.region:
            there[job.residence.region] += 1
            egress_bytes[job.spec.tier] += job.residence.egress_bytes
            egress_usd[job.spec.tier] += job.residence.egress_usd
    yield _family("gavel_region_jobs", "Unfinished jobs by the region where they run.", "region", there)
    text = "What moves of unfinished jobs have copied out of regions, by tier."
    yield _family("gavel_egress_bytes", text, "tier", egress_bytes)
    yield _family("gavel_egress_usd", "What these copies cost, at the prices of the settings.", "tier", egress_usd)


def link_metrics(links: Iterable[LinkCopies]) -> Iterator[GaugeMetricFamily]:
    """Yield how fast the last copies of checkpoints from region to region were, and how many are counted."""
    labels = ("origin", "target")
    text = "Bandwidth of the last copies of checkpoints from one region to another, with their comparison."
    speeds = GaugeMetricFamily("gavel_region_link_bytes_per_second", text, labels=labels)
    copies = GaugeMetricFamily(
        "gavel_region_link_copies", "How many copies that is made of, 16 at most.", labels=labels
    )
    for each in (link for link in links if link.seconds > 0):
        speeds.add_metric((each.origin, each.target), each.gigabytes * 1e9 / each.seconds)
        copies.add_metric((each.origin, each.target), each.copies)
    yield from (speeds, copies)


def _family(name: str, text: str, label: str, values: Mapping[str, float]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text, labels=(label,))
    for key, value in values.items():
        family.add_metric((key,), value)
    return family
