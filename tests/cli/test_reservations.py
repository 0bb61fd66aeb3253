"""`--at` and `gavel reservations`, in this process against a real server."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from gavel.cli import app
from gavel.cli.instants import instant_if
from gavel.cli.option_names import option_of
from tests.api.conftest import NOW_S, Service, service

__all__ = ["service"]

Run = Callable[..., Any]


@pytest.fixture
def gavel(service: Service) -> Run:
    name, _ = service.user("silver")
    env = {"GAVEL_URL": service.url, "GAVEL_TOKEN": service.token(name), "COLUMNS": "120"}
    return lambda *arguments: CliRunner().invoke(app, arguments, env=env)


def at(seconds: float) -> str:
    return datetime.fromtimestamp(NOW_S + seconds, UTC).isoformat()


def test_an_instant_is_of_this_machine_s_time_zone_unless_it_names_one() -> None:
    assert instant_if("--at", "2026-12-01T09:00Z") == datetime(2026, 12, 1, 9, tzinfo=UTC).timestamp()
    assert instant_if("--at", "2026-12-01 09:00+02:00") == datetime(2026, 12, 1, 7, tzinfo=UTC).timestamp()
    assert instant_if("--at", "2026-12-01T09:00") == datetime(2026, 12, 1, 9).timestamp()
    assert instant_if("--at", None) is None
    with pytest.raises(typer.Exit):
        instant_if("--at", "tomorrow")


def test_a_session_that_is_reserved_is_not_waited_for_listed_and_given_back(gavel: Run) -> None:
    done = gavel("interactive", "--shell", "--no-snapshot", "--name", "course", "--longest", "2h", "--at", at(7200.0))
    assert done.exit_code == 0, done.output
    assert "reserved 1 of slow from" in done.stderr
    job_id = done.stderr.split("for session ")[1].split()[0]
    assert f"gavel attach {job_id}" in done.stderr
    listed = gavel("reservations").stdout
    assert "1 slow" in listed and job_id in listed and "course" in listed
    assert "from when 1 slow are reserved" in " ".join(gavel("job", "show", job_id).stdout.split())
    assert gavel("job", "cancel", job_id).exit_code == 0
    assert job_id not in gavel("reservations").stdout


def test_a_refusal_names_a_time_that_would_do(gavel: Run) -> None:
    done = gavel("interactive", "--forward", "8888", "--no-snapshot", "--at", at(1.0), "jupyter", "lab")
    assert "It can be at 1970-01-12 13:49:00 UTC" in str(done.exception)
    assert option_of("reserved_at_s") == "--at"
