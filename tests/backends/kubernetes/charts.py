"""The Helm chart, rendered by Helm itself as a library; tests that need it are skipped where it is not installed."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from gavel.backends.kubernetes.api import Object

CHART = Path(__file__).parents[3] / "deploy" / "helm" / "gavel"
RELEASE, NAMESPACE = "gavel", "training"
ACCOUNT = f"system:serviceaccount:{NAMESPACE}:{RELEASE}"
HIGHLY_AVAILABLE = {
    "replicas": 3,
    "pullSecrets": ["registry"],
    "environmentSecret": "gavel-settings",
    "database": {"kind": "postgresql", "storageClass": "fast"},
    "shared": {"storageClass": "files"},
    "state": {"accessMode": "ReadWriteMany", "storageClass": "files"},
    "settings": {
        "public_url": "https://gavel.example.org",
        "kubernetes": {
            "node_selector": {"pool": "gpu"},
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
            "namespace_users": {"vision": "ann"},
        },
    },
    "ingress": {"enabled": True, "className": "nginx", "tlsSecret": "gavel-tls", "annotations": {"a.example/b": "c"}},
    "service": {"annotations": {"a.example/b": "c"}},
    "serviceAccount": {"annotations": {"a.example/b": "c"}},
    "metrics": {
        "serviceMonitor": {"enabled": True, "labels": {"release": "monitoring"}},
        "prometheusRule": {"enabled": True, "labels": {"release": "monitoring"}},
    },
    "networkPolicy": {
        "from": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ingress"}}}],
        "gangEgress": [{"to": [{"ipBlock": {"cidr": "0.0.0.0/0", "except": ["169.254.0.0/16"]}}]}],
    },
    "podAnnotations": {"a.example/b": "c"},
    "nodeSelector": {"pool": "services"},
    "tolerations": [{"key": "services", "operator": "Exists"}],
}
EXTERNAL = {
    "database": {"kind": "external", "urlSecret": "gavel-database"},
    "shared": {"existingClaim": "files"},
    "state": {"existingClaim": "state"},
    "settings": {"kubernetes": {"training_jobs": "off"}},
    "service": {"tlsSecret": "gavel-tls"},
    "metrics": {"serviceMonitor": {"enabled": True}},
    "trainingJobs": {"define": False},
    "networkPolicy": {"enabled": False},
    "admissionPolicies": {"enabled": False},
    "affinity": {"nodeAffinity": {}},
}
CONNECTED = {
    "shared": {"enabled": False},
    "settings": {"kubernetes": {"checkpoint_dir": "s3://bucket/gavel"}},
}
VALUES: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    "highly available": HIGHLY_AVAILABLE,
    "external": EXTERNAL,
    "connected": CONNECTED,
}


def helm() -> Any:
    """Helm as a library; the test is skipped where it is not there."""
    return pytest.importorskip("helm_python", reason="needs Helm as a library: make test-chart")


def rendered(values: Mapping[str, Any], *, release: str = RELEASE, namespace: str = NAMESPACE) -> list[Object]:
    """The objects that an installation with these values creates."""
    with helm().Chart.load(CHART) as chart:
        texts = chart.render(values=dict(values), name=release, namespace=namespace)
    objects = [each for name, text in texts.items() if name.endswith(".yaml") for each in yaml.safe_load_all(text)]
    return [each for each in objects if each]


def of_kind(objects: list[Object], kind: str, ending: str = "") -> Object:
    """The one object of a kind whose name ends so."""
    (only,) = (each for each in objects if each["kind"] == kind and each["metadata"]["name"].endswith(ending))
    return only


def rules(objects: list[Object]) -> list[tuple[str, Object]]:
    """The rules of the service's roles, each with the namespace where it holds or, "", in all."""
    return [
        ("" if each["kind"] == "ClusterRole" else NAMESPACE, rule)
        for each in objects
        if each["kind"] in ("ClusterRole", "Role")
        for rule in each["rules"]
    ]
