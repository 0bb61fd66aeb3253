"""`gavel.yaml`: a project's defaults and profiles, which of several values counts, and mistakes with their place."""

from pathlib import Path

import jsonschema_rs
import pytest
import yaml

from gavel.cli.project_file import NAME
from scripts.job_file_schema import PROJECT_SCHEMA, project_schema
from tests.api.conftest import Service, service
from tests.cli.test_job_file import Run, gavel, write

__all__ = ["gavel", "service"]

PROJECT = """
defaults:
  tier: silver
  weight: 2.0
  cpu_cores: 2
  env: {SEED: 1, MODE: plain}
profiles:
  big: {scale_factor: 2, weight: 3.0, cpu_cores: 3, max_retries: 5}
  odd: {labels: {team: vision}}
"""
SUBMIT = ("job", "submit", "--json", "--no-snapshot")


def test_the_first_of_command_line_job_file_script_profile_and_defaults_counts(gavel: Run, service: Service) -> None:
    write(PROJECT, NAME)
    write("#GAVEL --cpus 3 --max-retries 6 --priority -1\n", "train.py")
    write("argv: [train.py]\nmax_retries: 7\npriority: -2\nenv: {MODE: file}\n")
    _, job, _ = gavel(*SUBMIT, "--profile", "big", "-f", "job.yaml", "--priority", "-3", "--env", "SEED=9")
    assert (job["priority"], job["max_retries"]) == (-3, 7), "command line, job file"
    _, job, _ = gavel(*SUBMIT, "--profile", "big", "train.py")
    assert (job["cpu_cores"], job["max_retries"]) == (3, 6), "the script's lines go before the profile"
    assert (job["weight"], job["scale_factor"]) == (3.0, 2), "profile"
    assert job["tier"] == "silver", "defaults"
    assert dict(service.store.job(job["id"]).spec.env) == {"SEED": "1", "MODE": "plain"}
    _, job, _ = gavel(*SUBMIT, "train.py")
    assert (job["weight"], job["scale_factor"]) == (2.0, 1), "without a profile only the defaults"


def test_the_file_of_a_folder_above_counts_and_the_nearest_goes_before_it(
    gavel: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("defaults: {weight: 2.0, workdir: src}\n", NAME)
    (tmp_path / "src" / "deep").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "src" / "deep")
    _, job, _ = gavel(*SUBMIT, "true")
    assert (job["weight"], job["workdir"]) == (2.0, str(tmp_path / "src"))
    write("defaults: {weight: 4.0}\n", NAME)
    _, job, _ = gavel(*SUBMIT, "true")
    assert job["weight"] == 4.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("profiles:\n  big:\n    teir: gold\n", "gavel.yaml:3:5: there is no field teir; did you mean tier?"),
        ("defaults:\n  tier: gold\n  tier: silver\n", "gavel.yaml:3:3: tier is there twice"),
        ("default: {tier: gold}\n", "gavel.yaml:1:1: there is no part default; did you mean defaults?"),
        ("- a\n", "gavel.yaml:1:1: gavel.yaml has defaults and profiles"),
        ("", "gavel.yaml:1:1: gavel.yaml has fields"),
        ("profiles: [big]\n", "gavel.yaml:1:11: profiles has a name"),
        ("profiles: {big: 5}\n", "gavel.yaml:1:17: profile big has fields"),
        ("defaults: {tier: platinum}\n", "gavel.yaml:1:12: "),
        ("defaults: {tier: gold\n", "gavel.yaml:2:1: "),
    ],
)
def test_a_mistake_is_named_with_line_and_column(gavel: Run, text: str, message: str) -> None:
    write(text, NAME)
    code, _, errors = gavel(*SUBMIT, "true")
    assert code == 2 and message in errors and len(errors.splitlines()) == 1


def test_a_profile_that_is_not_there_is_refused(gavel: Run) -> None:
    code, _, errors = gavel(*SUBMIT, "--profile", "big", "true")
    assert code == 2 and "there is no gavel.yaml here or above" in errors
    write(PROJECT, NAME)
    code, _, errors = gavel(*SUBMIT, "--profile", "bigg", "true")
    assert code == 2 and "did you mean big?" in errors


def test_the_published_schema_is_fresh_and_knows_the_file() -> None:
    assert PROJECT_SCHEMA.read_text() == project_schema(), "run .venv/bin/python -m scripts.job_file_schema"
    check = jsonschema_rs.validator_for(project_schema())
    assert check.is_valid(yaml.safe_load(PROJECT.replace("{SEED: 1,", "{SEED: '1',")))
    assert not check.is_valid({"profiles": {"big": {"teir": "gold"}}})
