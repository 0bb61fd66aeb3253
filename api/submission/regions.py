"""Checks what a submission says of regions: where the job may be, and where its data set is."""

from collections.abc import Mapping

from api.http.errors import invalid
from api.rules import Rules
from gavel.errors import did_you_mean
from gavel.mechanism.cluster.configured import regions_of
from gavel.types import JobSpec, plain_type


def check_regions(spec: JobSpec, rules: Rules) -> None:
    """Raise a 422 problem for a region that nobody has, and for data without a place or a place without data."""
    there = sorted({*regions_of(rules.feasibility.cluster), *rules.unreached})
    named = [("regions", each) for each in spec.regions]
    named += [("data_region", spec.data_region)] if spec.data_region else []
    for field, region in named:
        if region not in there:
            hint = did_you_mean(region, there)
            raise invalid(field, f"no node is in region {region}; there are {', '.join(there)}{hint}")
    if spec.data_bytes and not spec.data_region:
        raise invalid("data_region", "say in which region the data are, or leave data_bytes out")
    if spec.data_region and not spec.data_bytes:
        raise invalid("data_bytes", "say how large the data are, or leave data_region out")


def largest_by_type(capacity: Mapping[str, int]) -> dict[str, int]:
    """Return the workers of each accelerator type; of a type in several regions those of the region with most."""
    largest: dict[str, int] = {}
    for name, workers in capacity.items():
        for each in {name, plain_type(name)}:
            largest[each] = max(workers, largest.get(each, 0))
    return largest
