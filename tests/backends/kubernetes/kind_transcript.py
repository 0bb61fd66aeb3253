"""Requests that serve a defined kind, in the order of a small story, and what of each answer is relied on.

`python -m tests.backends.kubernetes.kind_transcript` records kind_transcript.json anew, as transcript.py does its own.
"""

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from gavel.backends.kubernetes.api import Api, Object, Refused
from gavel.daemon.training_jobs.acting import MERGE
from gavel.daemon.training_jobs.definition import FOLDER, OBJECTS, PLURAL
from gavel.daemon.training_jobs.objects import FINALIZER, object_of
from gavel.daemon.training_jobs.status import events
from gavel.errors import BackendUnavailable
from tests.backends.kubernetes.training_jobs import BODY, define, object_body
from tests.backends.kubernetes.transcript import Step, _named, _refusal

RECORDED = Path(__file__).with_name("kind_transcript.json")
HERE = f"{FOLDER}/namespaces/default/{PLURAL}"
ONE, STATUS = f"{HERE}/one", f"{HERE}/one/status"
EVENTS = "/api/v1/namespaces/default/events"


def play(kubeconfig: str) -> list[Step]:
    """Return each request with what came of it, on a cluster that does not have the kind yet."""
    return [*_play(Api(kubeconfig, "", Counter()))]


def _play(api: Api) -> Iterator[Step]:
    yield "the kind is not defined", _refusal(lambda: api.get(FOLDER))
    define(api)
    yield "now it is served", PLURAL in [each["name"] for each in api.get(FOLDER)["resources"]]
    yield "no object yet", _named(api.get(OBJECTS, limit="0"))
    made = api.create(HERE, object_body("one", BODY))
    version = str(made["metadata"]["resourceVersion"])
    yield "one is made", _look(made)
    yield "made again", _refusal(lambda: api.create(HERE, object_body("one", BODY)))
    held = {"resourceVersion": version, "finalizers": [FINALIZER]}
    yield "it is held", _look(api.patch(ONE, {"metadata": held}, MERGE))
    yield "held by an old version", _refusal(lambda: api.patch(ONE, {"metadata": held}, MERGE))
    yield "spec is changed", _look(api.patch(ONE, {"spec": {"weight": 2.5}}, MERGE))
    yield "spec is changed to the same", _look(api.patch(ONE, {"spec": {"weight": 2.5}}, MERGE))
    yield from _statuses(api, made)
    yield from _events(api, made)
    api.delete(ONE)
    yield "deleted, it stays", _look(api.get(ONE))
    yield "deleted again", _refusal(lambda: api.delete(ONE))
    api.patch(ONE, {"metadata": {"finalizers": []}}, MERGE)
    yield "let go, it is gone", _refusal(lambda: api.get(ONE))
    yield "a status of what is gone", _refusal(lambda: _apply(api, made, state="QUEUED"))
    yield "what was watched", _watched(api, version)
    again = api.create(HERE, object_body("one", BODY))
    yield "made again it is another", (_look(again), again["metadata"]["uid"] != made["metadata"]["uid"])
    yield "a status of the one before", _refusal(lambda: _apply(api, made, state="QUEUED"))
    api.delete(ONE)
    yield "one that nobody holds goes at once", _named(api.get(OBJECTS, limit="0"))


def _statuses(api: Api, made: Object) -> Iterator[Step]:
    yield "a status of an old version", _refusal(lambda: _apply(api, made, job="j1"))
    now = _apply(api, api.get(ONE), job="j1", state="QUEUED", eta="soon")
    yield "a status is applied", _look(now)
    now = _apply(api, now, job="j1", state="RUNNING")
    yield "what it leaves out goes", _look(now)
    again = _apply(api, now, job="j1", state="RUNNING")
    yield "the same again is no change", again["metadata"]["resourceVersion"] == now["metadata"]["resourceVersion"]
    api.patch(ONE, {"status": {"job": "other"}}, MERGE)
    yield "a status beside its own path is not taken", _look(api.get(ONE))["status"].get("job")


def _events(api: Api, made: Object) -> Iterator[Step]:
    (event,) = events(object_of(made), {"job": "j1", "user": "ann", "tier": "gold"}, 0.0)
    yield "an event is made", api.create(EVENTS, event)["reason"]
    yield "the same event again", _refusal(lambda: api.create(EVENTS, event))


def _apply(api: Api, made: Object, **status: str) -> Object:
    names = {name: made["metadata"][name] for name in ("name", "namespace", "resourceVersion")}
    body = {"apiVersion": made["apiVersion"], "kind": made["kind"], "metadata": names, "status": status}
    return api.apply(STATUS, body, "gavel-default")


def _look(shown: Object) -> dict[str, Any]:
    names = shown["metadata"]
    return {
        "generation": names["generation"],
        "finalizers": names.get("finalizers") or [],
        "is_deleting": bool(names.get("deletionTimestamp")),
        "status": shown.get("status") or {},
    }


def _watched(api: Api, version: str) -> list[str]:
    """Return the kinds of events after a version, each once, until the object is gone."""
    kinds: list[str] = []
    with suppress(BackendUnavailable, Refused):
        for event in api.watch(OBJECTS, version):
            kinds += [event["type"]] if event["type"] != "BOOKMARK" else []
            if event["type"] == "DELETED":
                break
    return [*dict.fromkeys(kinds)]


if __name__ == "__main__":
    from gavel.backends.kubernetes.control_plane import ControlPlane

    with ControlPlane() as plane:
        RECORDED.write_text(json.dumps(play(str(plane.kubeconfig)), indent=1) + "\n")
