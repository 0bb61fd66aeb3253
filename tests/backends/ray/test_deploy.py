"""deploy/ray: valid by Ray's own schema, and every option, variable and command that is named there exists."""

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from gavel.cli import app
from gavel.config import Settings

ray = pytest.importorskip("ray", reason="the extra [ray] is not installed")

DEPLOY = Path(__file__).parents[3] / "deploy" / "ray"
RAY_START = re.compile(r"(?:RAY_\w+=\S+ +)*ray start (.*)")
GAVEL_VARIABLE = re.compile(r"\bGAVEL_([A-Z_]+)\b")
SPEC = {"rayVersion", "headGroupSpec", "workerGroupSpecs"}  # of KubeRay's v1 RayCluster
GROUP = {"rayStartParams", "template"}
WORKERS = GROUP | {"groupName", "replicas", "minReplicas", "maxReplicas"}


def launcher() -> Mapping[str, Any]:
    config: dict[str, Any] = yaml.safe_load((DEPLOY / "cluster.yaml").read_text())
    return config


def kuberay() -> Mapping[str, Any]:
    manifest: dict[str, Any] = next(yaml.safe_load_all((DEPLOY / "kuberay.yaml").read_text()))
    return manifest


def groups() -> list[Mapping[str, Any]]:
    spec = kuberay()["spec"]
    return [spec["headGroupSpec"], *spec["workerGroupSpecs"]]


def starts() -> Iterator[str]:
    """What follows `ray start` in each file, as a shell reads it; KubeRay puts parameters there as they are."""
    config = launcher()
    for line in (*config["head_start_ray_commands"], *config["worker_start_ray_commands"]):
        matched = RAY_START.search(line)
        if matched:
            yield matched[1]
    for group in groups():
        yield " ".join(f"--{name}={value}" for name, value in group["rayStartParams"].items())


def test_the_launchers_file_is_valid_by_rays_schema() -> None:
    schema = json.loads((Path(ray.__file__).parent / "autoscaler" / "ray-schema.json").read_text())
    jsonschema.validate(launcher(), schema)


def test_kuberay_is_given_what_its_version_one_knows() -> None:
    manifest = kuberay()
    assert (manifest["apiVersion"], manifest["kind"]) == ("ray.io/v1", "RayCluster")
    assert manifest["spec"].keys() == SPEC
    assert manifest["spec"]["headGroupSpec"].keys() == GROUP
    assert all(each.keys() == WORKERS for each in manifest["spec"]["workerGroupSpecs"])
    assert manifest["spec"]["rayVersion"] == ray.__version__


def test_every_volume_that_is_mounted_is_claimed() -> None:
    documents = [*yaml.safe_load_all((DEPLOY / "kuberay.yaml").read_text())]
    claims = {each["metadata"]["name"] for each in documents if each["kind"] == "PersistentVolumeClaim"}
    for group in groups():
        pod = group["template"]["spec"]
        volumes = {each["name"]: each["persistentVolumeClaim"]["claimName"] for each in pod["volumes"]}
        mounted = {mount["name"] for container in pod["containers"] for mount in container["volumeMounts"]}
        assert mounted == volumes.keys()
        assert set(volumes.values()) <= claims


def test_ray_starts_with_options_that_it_has_and_values_that_it_can_read() -> None:
    from ray.scripts.scripts import start

    lines = [*starts()]
    assert len(lines) == 5
    for line in lines:
        words = shlex.split(line.replace("$RAY_HEAD_IP", "10.0.0.1"))
        made = start.make_context("start", words)
        assert made.args == []
        if made.params["system_config"]:
            assert made.params["system_config"] == {"raylet_report_resources_period_milliseconds": 10}


@pytest.mark.parametrize("name", ["cluster.yaml", "kuberay.yaml"])
def test_every_setting_of_the_service_exists(name: str) -> None:
    named = {each.lower() for each in GAVEL_VARIABLE.findall((DEPLOY / name).read_text())}
    assert {"backend", "ray_address", "ray_checkpoint_dir", "ray_report_period_s"} <= named
    assert named <= Settings.model_fields.keys()


def test_the_service_in_kubernetes_is_a_command_with_settings_that_are_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    from typer.main import get_command

    (service,) = (
        each for each in groups()[0]["template"]["spec"]["containers"] if each.get("command", [""])[0] == "gavel"
    )
    for each in service["env"]:
        if "value" in each:
            monkeypatch.setenv(each["name"], each["value"])
    _, command, *words = service["command"]
    serve = get_command(app).commands[command]  # type: ignore[attr-defined]
    assert serve.make_context(command, words).params["host"] == "0.0.0.0"
    settings = Settings()
    assert (settings.backend, settings.ray_address) == ("ray", "ray://127.0.0.1:10001")
