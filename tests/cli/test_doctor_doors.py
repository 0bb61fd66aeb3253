"""`gavel doctor` about the ways into the service: each state with what to do."""

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text

from gavel.config import Settings
from gavel.daemon.doctor import findings
from gavel.daemon.doctor_doors import NOT_SYNCHRONIZED, address, certificate, clock, database, ways_in
from gavel.store.sql import SqlStore
from tests.nginx import a_certificate


def test_all_are_among_the_findings_and_the_kernel_is_asked_for_the_clock(tmp_path: Path) -> None:
    settings = Settings(state_dir=tmp_path)
    names = [each.about for each in ways_in(settings)]
    assert names == ["clock", "database", "address"]
    assert set(names) <= {each.about for each in findings(settings)}


@pytest.mark.parametrize(("status", "verdict"), [(None, "note"), (NOT_SYNCHRONIZED, "note"), (0x2001, "ok")])
def test_a_clock_that_nothing_keeps_right_is_noted(status: int | None, verdict: str) -> None:
    assert clock(status).verdict == verdict


def test_a_database_is_made_later_current_outdated_or_out_of_reach(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(state_dir=tmp_path)
    assert database(settings).verdict == "ok" and "will be made" in database(settings).text
    assert not (tmp_path / "gavel.db").exists()
    SqlStore(settings.url).close()
    assert database(settings).verdict == "ok" and "current" in database(settings).text
    with create_engine(settings.url).begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '0009'"))
    assert database(settings).verdict == "note" and "gavel db upgrade" in database(settings).text
    (tmp_path / "gavel.db").write_bytes(b"no database at all" * 100)
    assert database(settings).verdict == "problem"
    remote = Settings(database_url="postgresql://127.0.0.1:1/gavel")
    assert database(remote).verdict == "problem" and "cannot be read" in database(remote).text
    monkeypatch.setitem(sys.modules, "psycopg", None)
    assert "pip install 'gavel[postgres]'" in database(remote).text


@pytest.mark.parametrize(
    ("over", "verdict"),
    [
        ({}, "ok"),
        ({"host": "0.0.0.0"}, "problem"),
        ({"public_url": "http://gavel.example.org"}, "problem"),
        ({"public_url": "https://gavel.example.org", "host": "0.0.0.0"}, "ok"),
        ({"host": "0.0.0.0", "tls_cert_file": "cert.pem", "tls_key_file": "key.pem"}, "ok"),
    ],
)
def test_an_address_that_others_reach_without_encryption_is_a_problem(over: dict[str, Any], verdict: str) -> None:
    assert address(Settings(**over)).verdict == verdict


def test_a_certificate_is_replaced_before_it_ends(tmp_path: Path) -> None:
    path, _ = a_certificate(tmp_path, days=30)
    now = datetime.now(UTC)
    assert certificate(path, now).verdict == "ok"
    ending, ended = (certificate(path, now + timedelta(days=days)) for days in (20, 40))
    assert (ending.verdict, ended.verdict) == ("problem", "problem")
    assert " ends on " in ending.text and " has ended on " in ended.text
    assert certificate(tmp_path / "none.pem", now).verdict == "problem"
    (tmp_path / "odd.pem").write_text("no certificate")
    assert certificate(tmp_path / "odd.pem", now).verdict == "problem"
