"""The global batch in the name of a kind."""

import pytest

from gavel.estimator.kinds import OWN_KIND, family_of
from gavel.types.elastic_kinds import divides_its_batch, elastic_kind, rigid_kind


@pytest.mark.parametrize("kind", ["ann/net", "ann/train-abcdefgh-b64"])
def test_the_batch_is_put_at_the_end_and_taken_off_again(kind: str) -> None:
    elastic = elastic_kind(kind, 256)
    assert divides_its_batch(elastic) and divides_its_batch(f"{elastic}{OWN_KIND}j1")
    assert rigid_kind(elastic) == rigid_kind(kind) == elastic_kind(kind, 0) == kind
    assert not divides_its_batch(kind)
    grows = elastic_kind(kind, 256, 1024)
    assert divides_its_batch(grows) and grows != elastic and rigid_kind(grows) == kind
    assert family_of(grows) == family_of(elastic_kind(kind, 64, 1024)) != family_of(elastic)


def test_kinds_that_differ_in_the_batch_are_one_family_and_rigid_ones_another() -> None:
    assert family_of(elastic_kind("ann/net", 64)) == family_of(elastic_kind("ann/net", 256)) != family_of("ann/net")
