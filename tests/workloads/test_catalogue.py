"""The catalogue names real programs, each of which trains under the runtime."""

import re

import pytest

from gavel.errors import InvalidRequest
from tests.workloads.gang import Gang
from workloads.catalogue import CATALOGUE, argv_of


def test_names_are_unique_and_fit_where_names_go() -> None:
    assert len(CATALOGUE) == 10
    for name, kind in CATALOGUE.items():
        assert name == kind.name
        assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", name)
        assert kind.description


def test_a_command_is_a_tuple_of_words() -> None:
    assert argv_of("mlp-b256") == ("python", "-m", "workloads.training.mlp", "--batch-size", "256")


def test_an_unknown_kind_is_refused_with_those_there_are() -> None:
    with pytest.raises(InvalidRequest, match=r"kind: 'mlp' is not in the catalogue; it has mlp-b256, mlp-b1024"):
        argv_of("mlp")


@pytest.mark.small("mlp-b256", "cnn-b64", "rnn-b256", "recsys-b16384", "rl-b96")
@pytest.mark.parametrize("name", CATALOGUE)
def test_every_kind_trains_and_reports_its_loss(gang: Gang, name: str) -> None:
    codes, outputs = gang.start(*argv_of(name)[1:], total=3).finish()
    assert codes == [0], outputs
    assert gang.reports()[-1]["step"] == 3
    assert gang.reports()[-1]["metrics"].keys() == {"first_loss", "loss"}
    assert gang.names() == ["7-3"]
