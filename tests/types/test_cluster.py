"""What there is to run on, counted by type."""

from dataclasses import replace

from gavel.types import Cluster
from tests.builders import a_cluster


def test_the_price_of_a_type_is_the_mean_of_its_workers() -> None:
    """One of two fast workers costs 3 USD an hour, the other 1; types come in the order of the cluster's."""
    cluster = a_cluster(slow=1, fast=2)
    workers = [replace(each, price_usd_per_hour=3.0) if each.id == "fast-0" else each for each in cluster.workers]
    priced = replace(cluster, workers=tuple(workers))
    assert list(priced.mean_price_usd_per_hour().items()) == [("fast", 2.0), ("slow", 1.0)]
    assert Cluster().mean_price_usd_per_hour() == {}
