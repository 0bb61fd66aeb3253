"""Settings: names that say what the value is, and no name that is silently left out."""

from pathlib import Path
from typing import Any

import pytest
from annotated_types import Ge, Gt, Le
from pydantic import ValidationError
from pydantic.fields import FieldInfo
from typer.testing import CliRunner

from gavel.cli import app
from gavel.config import Settings
from gavel.config_checks import FORMER_NAMES

FIELDS = Settings.model_fields.items()
NUMBERS = [(name, field) for name, field in FIELDS if field.annotation in (int, float)]


def bounds(field: FieldInfo) -> tuple[Any, Any]:
    low = [each.ge if isinstance(each, Ge) else each.gt for each in field.metadata if isinstance(each, Ge | Gt)]
    high = [each.le for each in field.metadata if isinstance(each, Le)]
    return (low or [None])[0], (high or [None])[0]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_folder_is_called_dir_and_a_file_file() -> None:
    paths = {name for name, field in FIELDS if field.annotation in (Path, Path | None)}
    folders = {name for name in paths if not name.endswith("_file")}
    folders |= {name for name, field in FIELDS if (field.description or "").startswith("Folder")}
    assert folders and {name for name, _ in FIELDS if name.endswith("_dir")} >= folders


def test_an_address_is_called_url_unless_it_is_no_url() -> None:
    urls = {name for name, field in FIELDS if "://" in (field.description or "") or "URL" in (field.description or "")}
    assert {name for name in urls if not name.endswith("_url")} == {"ray_address", "ray_checkpoint_dir"}


def test_a_number_that_is_not_whole_is_in_seconds_or_a_fraction() -> None:
    parts = {name for name, field in NUMBERS if field.annotation is float and not name.endswith("_s")}
    assert parts == {name for name, _ in FIELDS if name.endswith("_fraction")}
    for name, field in NUMBERS:
        low, high = bounds(field)
        assert low is not None and high is not None, name
        assert not name.endswith("_fraction") or (low == 0 and high <= 1), name


def test_a_number_of_bytes_is_called_so_and_a_count_is_of_something() -> None:
    whole = {name for name, field in NUMBERS if field.annotation is int}
    assert {name for name in whole if "bytes" in name} == {name for name in whole if name.endswith("_bytes")}
    assert [name for name in whole if name.endswith(("_s", "_fraction", "_dir", "_url"))] == []


@pytest.mark.parametrize(("former", "name"), FORMER_NAMES.items())
def test_a_former_name_is_refused_with_the_present_one(
    former: str, name: str, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert name in Settings.model_fields and former not in Settings.model_fields
    (here / "gavel.toml").write_text(f'{former} = "1"\n')
    with pytest.raises(ValidationError, match=f"{former} is called {name}"):
        Settings()
    (here / "gavel.toml").unlink()
    monkeypatch.setenv(f"GAVEL_{former.upper()}", "1")
    with pytest.raises(ValidationError, match=f"{former} is called {name}"):
        Settings()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("round_lenght_s = 3", "gavel: setting round_lenght_s: there is no such setting\n"),
        ("round_duration_s = -1", "gavel: setting round_duration_s: Input should be greater than or equal to 0.5\n"),
        ("policy_path = 'x'", "gavel: setting: policy_path is called policy_dir\n"),
    ],
)
def test_a_wrong_line_of_the_settings_file_ends_the_command_with_its_name(here: Path, line: str, message: str) -> None:
    (here / "gavel.toml").write_text(line + "\n")
    ran = CliRunner().invoke(app, ["db", "check"], env={"GAVEL_URL": ""})
    assert (ran.exit_code, ran.stderr) == (2, message)


@pytest.mark.parametrize(
    ("setting", "why"),
    [
        ("0-70000", "0 is root"),
        ("999-2000", "uids of the system"),
        ("2000", "FIRST-LAST"),
        ("5000-4000", "is empty"),
        ("60000-70000", "stand for nobody"),
        ("1000000-3000000000", "above 2147483647"),
    ],
)
def test_a_range_of_uids_that_no_job_may_have_is_refused(setting: str, why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        Settings(job_users=setting)


def test_several_backends_have_settings_of_their_own_and_those_outside(here: Path) -> None:
    (here / "gavel.toml").write_text(
        'backend = "several"\nlease_grace_s = 3\n[backends.eu]\nbackend = "slurm"\nslurm = {partition = "long"}\n'
        '[backends.us]\nbackend = "ray"\nray_address = "head:6379"\n'
    )
    settings = Settings()
    eu, us = settings.by_region["eu"], settings.by_region["us"]
    assert (eu.backend, eu.slurm.partition, eu.lease_grace_s) == ("slurm", "long", 3)
    assert (us.backend, us.ray_address, us.slurm.partition) == ("ray", "head:6379", "")
    assert settings.regions is not None


def test_a_setting_of_one_of_several_backends_may_come_from_the_environment(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GAVEL_BACKEND", "several")
    monkeypatch.setenv("GAVEL_BACKENDS__EU__BACKEND", "slurm")
    monkeypatch.setenv("GAVEL_BACKENDS__EU__SLURM__PENDING_LIMIT_S", "40")
    assert Settings().by_region["eu"].slurm.pending_limit_s == 40.0


LOCAL, SLURM, RAY, PODS = ({"backend": name} for name in ("local", "slurm", "ray", "kubernetes"))


@pytest.mark.parametrize(
    ("backends", "why"),
    [
        ({}, 'backend = "several" and sections backends.REGION belong together'),
        ({"eu": {}}, "backends.eu.backend: say which one, local, slurm, ray, kubernetes, simulated"),
        ({"eu": {"backend": "several"}}, "backends.eu.backend: say which one"),
        ({"eu": {"backend": "ray", "port": 1}}, "backends.eu.port: is for all backends together, write it outside"),
        (
            {"eu": {"backend": "ray", "ray_report_period_s": 99}},
            "backends.eu.ray_report_period_s: Input should be",
        ),
        ({"eu": {"backend": "slurm", "slurm": {"queue": "x"}}}, "backends.eu.slurm.queue: Extra inputs"),
        ({"EU": LOCAL}, "should match pattern"),
        ({"eu": LOCAL, "us": LOCAL}, "backends.eu and backends.us are both local; this machine would be used twice"),
        ({"eu": SLURM, "us": SLURM}, "both slurm; Slurm's commands reach one cluster"),
        ({"eu": RAY, "us": RAY}, "both ray; both name the same cluster: set ray_address"),
        ({"eu": PODS, "us": PODS}, "both kubernetes; both name the same cluster: set kubernetes.context"),
        (
            {"eu": PODS, "us": {**PODS, "kubernetes": {"context": "us"}}},
            "backends.eu and backends.us are both at /gavel: set shared_dir",
        ),
        (
            {
                "eu": {**PODS, "kubernetes": {"orders": "connection"}},
                "us": {**SLURM, "slurm": {"orders": "connection"}},
            },
            'both with orders = "connection": only one can be',
        ),
    ],
)
def test_backends_that_cannot_be_beside_each_other_are_refused(backends: dict[str, object], why: str) -> None:
    with pytest.raises(ValidationError) as refused:
        Settings(backend="several", backends=backends, public_url="https://gavel.example.org")
    assert why in str(refused.value)
