"""A service with short rounds and its client, for modules that have none of their own."""

from collections.abc import Iterator

import pytest

from gavel.client import Client
from gavel.demo.service import ServiceProcess, wait_until
from tests.serving import LIMIT_S

SETTINGS = {"GAVEL_ROUND_DURATION_S": "3", "GAVEL_LEASE_GRACE_S": "5"}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    with ServiceProcess(tmp_path_factory.mktemp("service") / "state", SETTINGS) as running:
        yield running


@pytest.fixture(scope="module")
def client(running: ServiceProcess) -> Iterator[Client]:
    with Client(running.url, running.operator_token) as client:
        assert wait_until(lambda: bool(client.cluster()["workers"]), LIMIT_S)
        yield client
