"""The Helm chart: what it renders, against the schemas of three releases and the service's own settings and calls."""

import json
import re
import textwrap
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from gavel.backends.kubernetes.api import Object
from gavel.backends.kubernetes.gates import KINDS, OF_GATES, Holding
from gavel.backends.kubernetes.rights import OF_CORDONS, OF_EVENTS, OF_GANGS, Right
from gavel.config import Settings
from gavel.daemon.training_jobs.controller import OF_OBJECTS
from gavel.daemon.training_jobs.definition import definition
from tests.architecture.test_floors import ROOT
from tests.backends.kubernetes.charts import CHART, HIGHLY_AVAILABLE, NAMESPACE, VALUES, helm, of_kind, rendered, rules
from tests.backends.kubernetes.test_objects import SCHEMAS
from tests.backends.kubernetes.training_jobs import DOCS, blocks

GROUPS = {
    "admissionregistration.k8s.io/v1": "io.k8s.api.admissionregistration.v1",
    "apiextensions.k8s.io/v1": "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1",
    "apps/v1": "io.k8s.api.apps.v1",
    "networking.k8s.io/v1": "io.k8s.api.networking.v1",
    "rbac.authorization.k8s.io/v1": "io.k8s.api.rbac.v1",
    "v1": "io.k8s.api.core.v1",
}
MONITORING = json.loads(Path(__file__).with_name("monitoring_schemas.json").read_text())
"""Of the operator of Prometheus 0.93: its kinds, without their prose."""


def check(made: Object, release: str) -> None:
    """The object is one that the release has."""
    if made["apiVersion"] == "monitoring.coreos.com/v1":
        jsonschema.Draft202012Validator(MONITORING[made["kind"]]).validate(made)
        return
    schema = {**SCHEMAS[release], "$ref": f"#/$defs/{GROUPS[made['apiVersion']]}.{made['kind']}"}
    jsonschema.Draft7Validator(schema).validate(made)


@pytest.mark.parametrize("release", SCHEMAS)
@pytest.mark.parametrize("values", VALUES)
def test_every_object_is_one_that_the_release_has(release: str, values: str) -> None:
    objects = rendered(VALUES[values])
    for each in objects:
        check(each, release)
    named = [(each["kind"], each["metadata"]["name"]) for each in objects]
    assert len(set(named)) == len(named) >= 8


def test_helm_finds_nothing_to_mend() -> None:
    for values in VALUES.values():
        report = helm().lint(CHART, dict(values), strict=True, namespace=NAMESPACE)
        assert [each for each in report["messages"] if each["severity"] > 1] == []


def test_what_it_has_from_elsewhere_is_the_same_there() -> None:
    kind = of_kind(rendered({}), "CustomResourceDefinition")
    assert kind["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
    assert kind == definition()
    alerts = yaml.safe_load((ROOT / "deploy" / "prometheus" / "gavel-alerts.yml").read_text())
    assert of_kind(rendered(HIGHLY_AVAILABLE), "PrometheusRule")["spec"] == alerts
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == project


def test_every_value_is_in_the_schema_of_values_and_the_other_way_round() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())

    def compare(given: Any, described: Any) -> None:
        if "properties" in described:
            assert given.keys() == described["properties"].keys() - {"global"}
            for name, each in given.items():
                compare(each, described["properties"][name])

    compare(values, schema)


def test_the_values_of_the_docs_are_rendered() -> None:
    section = DOCS.read_text().split("## Install it by Helm\n")[1].split("\n## ")[0]
    parts = [textwrap.dedent(each) for each in re.findall(r"(?:^ {4,}.*\n)+", section, re.MULTILINE)]
    stated = [yaml.safe_load(each) for each in parts if each.startswith(("image:", "replicas:"))]
    first, several = stated
    assert of_kind(rendered(first), "PersistentVolumeClaim", "-state")["spec"]["storageClassName"] == "ssd"
    assert of_kind(rendered({**first, **several}), "StatefulSet")["spec"]["replicas"] == 1


def settings_of(objects: list[Object], folder: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """The settings that the service reads in its pod."""
    (folder / "gavel.toml").write_text(of_kind(objects, "ConfigMap")["data"]["gavel.toml"])
    monkeypatch.chdir(folder)
    return Settings()


def test_the_service_reads_the_settings_that_values_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = settings_of(rendered({}), tmp_path, monkeypatch)
    assert (settings.backend, settings.host, settings.port) == ("kubernetes", "0.0.0.0", 8080)
    assert (settings.round_duration_s, settings.public_url) == (60, "http://gavel.training.svc:8080")
    own = settings.kubernetes
    assert (own.namespace, own.image) == (NAMESPACE, "registry.example/gavel:0.1.0")
    assert own.shared_volume == {"persistentVolumeClaim": {"claimName": "gavel-shared"}}
    encrypted = settings_of(rendered(VALUES["external"]), tmp_path, monkeypatch)
    assert (encrypted.public_url, str(encrypted.tls_key_file)) == ("https://gavel.training.svc:8080", "/tls/tls.key")
    settings = settings_of(rendered(HIGHLY_AVAILABLE), tmp_path, monkeypatch)
    stated = HIGHLY_AVAILABLE["settings"]["kubernetes"]  # type: ignore[index]
    assert settings.public_url == "https://gavel.example.org" and settings.kubernetes.pull_secrets == ["registry"]
    for name, value in stated.items():
        assert getattr(settings.kubernetes, name) == value


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"replicas": 2}, "needs database.kind postgresql"),
        ({"replicas": 2, "database": {"kind": "postgresql"}}, "needs state.accessMode ReadWriteMany"),
        ({"database": {"kind": "external"}}, "database.urlSecret"),
        ({"settings": {"kubernetes": {"namespace": "other"}}}, "the namespace of the release"),
        ({"settings": {"port": 9090}}, "service.port is the port of the Service"),
        ({"replica": 2}, "replica"),
        ({"database": {"kind": "mysql"}}, "database"),
        ({"shared": {"size": "much"}}, "size"),
        ({"shared": {"enabled": False}}, "checkpoint_dir is an fsspec URL"),
    ],
)
def test_values_that_do_not_go_together_are_refused(values: dict[str, Any], words: str) -> None:
    with pytest.raises(helm().HelmError, match=re.escape(words)):
        rendered(values)


def test_a_changed_setting_restarts_the_service_and_another_value_does_not() -> None:
    def template(**values: Any) -> Object:
        made: Object = of_kind(rendered(values), "Deployment")["spec"]["template"]
        return made

    assert template() == template(service={"port": 8080, "annotations": {"a.example/b": "c"}})
    assert template() != template(settings={"round_duration_s": 30})


def test_one_file_is_never_written_by_two_nodes_and_a_server_lets_the_next_start_first() -> None:
    assert of_kind(rendered({}), "Deployment")["spec"]["strategy"]["type"] == "Recreate"
    assert of_kind(rendered(HIGHLY_AVAILABLE), "Deployment")["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0


@pytest.mark.parametrize("values", VALUES)
def test_pods_take_no_right_that_they_do_not_need(values: str) -> None:
    """What the standard for restricted pods asks; and no variable of a Service is taken for a setting."""
    for each in rendered(VALUES[values]):
        if each["kind"] in ("Deployment", "StatefulSet"):
            spec = each["spec"]["template"]["spec"]
            assert spec["securityContext"]["runAsNonRoot"] and not spec["enableServiceLinks"]
            assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
            for container in spec["containers"]:
                assert container["securityContext"]["allowPrivilegeEscalation"] is False
                assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


@pytest.mark.parametrize("values", VALUES)
def test_gangs_do_not_see_what_only_the_service_may(values: str) -> None:
    """The claim of the state, with the operator's token and the keys, is another one than the pods of gangs mount."""
    spec = of_kind(rendered(VALUES[values]), "Deployment")["spec"]["template"]["spec"]
    claims = {
        each["name"]: each["persistentVolumeClaim"]["claimName"]
        for each in spec["volumes"]
        if "persistentVolumeClaim" in each
    }
    paths = {each["name"]: each["mountPath"] for each in spec["containers"][0]["volumeMounts"]}
    has_shared = values != "connected"
    assert claims["state"] != claims.get("shared")
    assert (paths["state"], paths.get("shared")) == ("/var/lib/gavel/state", "/gavel" if has_shared else None)


def test_without_a_shared_volume_orders_go_over_connections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """1 no claim but that of the state, 2 settings that the service takes, and pods without a shared volume."""
    objects = rendered(VALUES["connected"])
    assert of_kind(objects, "PersistentVolumeClaim")["metadata"]["name"] == "gavel-state"
    settings = settings_of(objects, tmp_path, monkeypatch)
    assert settings.orders_dir is not None and not settings.kubernetes.needs_shared_dir


def rights_of(objects: list[Object]) -> set[Right]:
    return {
        Right(verb=verb, group=group, resource=resource, is_namespaced=bool(where))
        for where, rule in rules(objects)
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_the_roles_grant_what_the_service_asks_for_and_nothing_else() -> None:
    of_gangs = {*OF_GANGS, OF_EVENTS, OF_CORDONS, *Holding(has_gates=True, kinds=KINDS).rights}
    assert rights_of(rendered({})) == {*of_gangs, *OF_OBJECTS}
    assert rights_of(rendered(VALUES["external"])) == of_gangs


def test_the_docs_list_the_rights_that_the_service_asks_for() -> None:
    """Of gangs in words, a line for each role; of objects as a role to be applied."""
    words = DOCS.read_text()
    listed = {
        Right(verb=verb, resource=resource, is_namespaced=kind.startswith("Role"))
        for kind, line in re.findall(r"^ {6}(ClusterRole|Role in its namespace): (.+)$", words, re.MULTILINE)
        for resource, verbs in (part.split(" ", 1) for part in line.split("; "))
        for verb in verbs.split(", ")
    }
    (role,) = blocks("rules:")
    assert (listed, rights_of([role])) == ({*OF_GANGS, OF_EVENTS, OF_CORDONS, OF_GATES}, {*OF_OBJECTS})


def test_roles_are_bound_to_the_account_of_the_service() -> None:
    objects = rendered({}, release="one", namespace="vision")
    for kind in ("ClusterRoleBinding", "RoleBinding"):
        (subject,) = of_kind(objects, kind)["subjects"]
        assert (subject["name"], subject["namespace"]) == ("one", "vision")
    other = rendered({}, release="one", namespace="speech")
    assert of_kind(objects, "ClusterRole")["metadata"]["name"] != of_kind(other, "ClusterRole")["metadata"]["name"]
