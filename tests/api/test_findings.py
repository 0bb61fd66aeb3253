"""What operators are shown of the service's machine, and of the way that they came by."""

from collections.abc import Mapping
from typing import Any

import pytest
from fastapi import Request
from typer.testing import CliRunner

from api.http.reached import as_reached
from gavel.cli import app
from gavel.config import Settings
from tests.api.conftest import Service

PUBLIC = {"public_url": "https://gavel.example.org"}
HTTPS_PAGE = {"referer": "https://gavel.example.org/setup"}


def came(headers: Mapping[str, str], client: str = "127.0.0.1") -> Request:
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    return Request(
        {"type": "http", "scheme": "http", "server": ("127.0.0.1", 8080), "path": "/", "query_string": b"",
         "headers": raw, "client": (client, 4711)}
    )  # fmt: skip


@pytest.mark.parametrize(
    ("headers", "client", "settings", "verdict", "text"),
    [
        ({}, "127.0.0.1", {}, "ok", "nothing is in front"),
        (HTTPS_PAGE, "127.0.0.1", PUBLIC, "ok", "nothing is in front"),
        ({**HTTPS_PAGE, "x-forwarded-for": "192.0.2.1"}, "192.0.2.1", PUBLIC, "ok", "a proxy in front is known"),
        ({"x-forwarded-for": "192.0.2.1"}, "10.0.0.5", PUBLIC, "problem", "10.0.0.5 says for whom it asks"),
        (
            {"referer": "https://other.example.org/"},
            "127.0.0.1",
            PUBLIC,
            "note",
            "you came by https://other.example.org",
        ),
        (HTTPS_PAGE, "127.0.0.1", {}, "problem", 'set public_url = "https://gavel.example.org"'),
    ],
)
def test_a_way_that_the_settings_do_not_name_is_noticed(
    headers: dict[str, str], client: str, settings: dict[str, Any], verdict: str, text: str
) -> None:
    finding = as_reached(came(headers, client), Settings(**settings))
    assert finding.verdict == verdict and text in finding.text


def test_the_command_asks_the_service(service: Service) -> None:
    token = service.operator().headers["authorization"].split()[1]
    env = {"GAVEL_URL": service.url, "GAVEL_TOKEN": token, "COLUMNS": "200"}
    done = CliRunner().invoke(app, ["doctor", "--service"], env=env)
    assert done.exit_code == 0 and "nothing is in front" in done.output, done.output
