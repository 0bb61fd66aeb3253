"""The kind TrainingJob as Kubernetes is told of it: the fields of a submission, and what a status has."""

import re
from collections.abc import Mapping
from typing import Any

from pydantic import Field

from api.schemas import JobSubmit
from gavel.backends.kubernetes.protocol import DOMAIN

VERSION = "v1"
API_VERSION = f"{DOMAIN}/{VERSION}"
KIND, PLURAL = "TrainingJob", "trainingjobs"
FOLDER = f"/apis/{API_VERSION}"
OBJECTS = f"{FOLDER}/{PLURAL}"
"""Where the objects of all namespaces are."""

Schema = dict[str, Any]

KEPT = (
    "type",
    "description",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "maxProperties",
    "enum",
    "required",
)
"""What a structural schema of Kubernetes and the schema of a request have alike."""

COLUMNS = ("State", "Tier", "Progress", "Where", "ETA", "Reason")
"""What `kubectl get` shows, each from the field of the status with this name in small letters; then comes the age."""


ANY_VALUE: Schema = {"x-kubernetes-preserve-unknown-fields": True}


class TrainingJobSpec(JobSubmit):
    """The `spec` of an object: the body of a submission, and whether the job is paused."""

    paused: bool = Field(False, description="The job stops after a checkpoint, and waits until this is false again.")


def definition() -> Schema:
    """Return the CustomResourceDefinition."""
    columns = [{"name": name, "type": "string", "jsonPath": f".status.{name.lower()}"} for name in COLUMNS]
    age = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{DOMAIN}"},
        "spec": {
            "group": DOMAIN,
            "scope": "Namespaced",
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": KIND.lower(),
                "shortNames": ["tj"],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": _schema()},
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [*columns, age],
                }
            ],
        },
    }


def manifest() -> str:
    """Return the definition as YAML, for `kubectl apply -f -`."""
    import yaml

    text: str = yaml.safe_dump(definition(), sort_keys=False, allow_unicode=True, width=120)
    return text


def _schema() -> Schema:
    """Return the schema of an object. Unknown fields of `spec` are kept, so that the service can refuse them by name.

    Kubernetes would leave them out without a word where a client does not ask for strict validation.
    """
    body = TrainingJobSpec.model_json_schema()
    spec = structural(body, body.get("$defs", {}))
    return {
        "type": "object",
        "description": "A training job that Gavel schedules.",
        "required": ["spec"],
        "properties": {"spec": {**spec, **ANY_VALUE}, "status": _status()},
    }


def structural(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> Schema:
    """Return a JSON schema as Kubernetes takes it: no references, no null, no defaults, patterns that Go reads.

    A field that may be one of several types may be anything there; the service checks it.
    """
    if "$ref" in schema:
        meant = definitions[schema["$ref"].rpartition("/")[2]]
        return structural({**meant, **{name: value for name, value in schema.items() if name != "$ref"}}, definitions)
    if "anyOf" in schema:
        only, *others = [each for each in schema["anyOf"] if each.get("type") != "null"]
        if others:  # which of them it is, the service checks: a structural schema has one type for a field
            return {name: schema[name] for name in ("description",) if name in schema} | ANY_VALUE
        return structural({**only, **{name: value for name, value in schema.items() if name != "anyOf"}}, definitions)
    made = {name: schema[name] for name in KEPT if name in schema}
    made |= _bounds(schema)
    if "pattern" in schema:
        made["pattern"] = re.sub(r"\\u00([0-9a-f]{2})", r"\\x\1", schema["pattern"])
    if "items" in schema:
        made["items"] = structural(schema["items"], definitions)
    return made | _fields(schema, definitions)


def _bounds(schema: Mapping[str, Any]) -> Schema:
    """Return the bounds that a number must not reach, and the size of whole numbers."""
    made: Schema = {"format": "int64"} if schema.get("type") == "integer" else {}
    for name in ("minimum", "maximum"):
        exclusive = f"exclusive{name.capitalize()}"
        if exclusive in schema:
            made |= {name: schema[exclusive], exclusive: True}
    return made


def _fields(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> Schema:
    """Return the fields of an object, or what every value of a map is. The names in a map, the service checks."""
    if "properties" in schema:
        return {"properties": {name: structural(each, definitions) for name, each in schema["properties"].items()}}
    of_map = [*schema.get("patternProperties", {}).values()]
    if isinstance(schema.get("additionalProperties"), dict):
        of_map.append(schema["additionalProperties"])
    return {"additionalProperties": structural(of_map[0], definitions)} if of_map else {}


def _status() -> Schema:
    texts = {
        "job": "Id of the job; gavel and the dashboard name it so.",
        "user": "User of the service whose job it is.",
        "tier": "Tier that the job is in.",
        "state": "State of the job, or Refused: there is none.",
        "progress": "How far it is.",
        "where": "Accelerators and nodes that it holds now.",
        "eta": "When it is expected to end, UTC.",
        "reason": "Why it is in its state, in one word.",
        "message": "The same in sentences with figures.",
        "fix": "What helps.",
    }
    instants = {"startedAt": "When it first ran.", "endedAt": "When it ended."}
    return {
        "type": "object",
        "properties": {
            "observedGeneration": {"type": "integer", "format": "int64"},
            **{name: {"type": "string", "description": text} for name, text in texts.items()},
            **{name: {"type": "string", "format": "date-time", "description": text} for name, text in instants.items()},
            "conditions": _conditions(),
        },
    }


def _conditions() -> Schema:
    texts = ("type", "status", "reason", "message")
    fields: Schema = {name: {"type": "string"} for name in texts}
    fields |= {
        "lastTransitionTime": {"type": "string", "format": "date-time"},
        "observedGeneration": {"type": "integer", "format": "int64"},
    }
    item = {"type": "object", "required": [*texts, "lastTransitionTime"], "properties": fields}
    return {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"], "items": item}
