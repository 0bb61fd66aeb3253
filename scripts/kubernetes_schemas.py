"""Make tests/backends/kubernetes/schemas.json anew from what `pip install kubernetes-validate` brings.

`python -m scripts.kubernetes_schemas 1.35 1.36 1.37` takes these releases: of each the definitions of the kinds below,
and of all that they consist of, without their prose. Closed definitions refuse fields that the release does not have.
"""

import json
import re
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

TARGET = Path(__file__).parents[1] / "tests" / "backends" / "kubernetes" / "schemas.json"
OF_SOME = {"io.k8s.api.scheduling.v1beta1": ("PodGroup",)}  # not every release has them
KINDS = {
    "io.k8s.api.admissionregistration.v1": ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"),
    "io.k8s.api.apps.v1": ("Deployment", "StatefulSet"),
    "io.k8s.api.core.v1": (
        "ConfigMap",
        "Event",
        "Node",
        "PersistentVolumeClaim",
        "Pod",
        "Service",
        "ServiceAccount",
    ),
    "io.k8s.api.networking.v1": ("Ingress", "NetworkPolicy"),
    "io.k8s.api.rbac.v1": ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"),
    "io.k8s.api.authorization.v1": ("SelfSubjectAccessReview",),
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1": ("CustomResourceDefinition",),
}
PROSE = {"description", "title", "example", "examples", "default"}


def definitions_of(release: str) -> dict[str, Any]:
    """All definitions of a release; those of fields refuse fields that are not theirs."""
    folder = files("kubernetes_validate") / "kubernetes-json-schema" / f"v{release}.0-local-strict"
    made: dict[str, Any] = json.loads((folder / "_definitions.json").read_text())["$defs"]
    return made


def needed(definitions: dict[str, Any]) -> dict[str, Any]:
    """The definitions of the kinds above, and of all that they refer to, by name."""
    left = [f"{group}.{kind}" for group, kinds in KINDS.items() for kind in kinds]
    of_some = [f"{group}.{kind}" for group, kinds in OF_SOME.items() for kind in kinds]
    left += [name for name in of_some if name in definitions]
    made: dict[str, Any] = {}
    while left:
        name = left.pop()
        if name not in made:
            made[name] = without_prose(definitions[name])
            left += re.findall(r'"#/\$defs/([^"]+)"', json.dumps(made[name]))
    return dict(sorted(made.items()))


def without_prose(schema: Any, *, is_of_fields: bool = False) -> Any:
    """A schema without what only people read. Names of fields are kept, whatever they are."""
    if isinstance(schema, list):
        return [without_prose(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {
        name: each
        for name, each in schema.items()
        if is_of_fields or not (name in PROSE or name.startswith("x-kubernetes"))
    }
    return {
        name: without_prose(each, is_of_fields=name == "properties" and not is_of_fields) for name, each in kept.items()
    }


if __name__ == "__main__":
    made = {release: {"$defs": needed(definitions_of(release))} for release in sys.argv[1:]}
    TARGET.write_text(json.dumps(made, separators=(",", ":"), sort_keys=True) + "\n")
