"""Objects of the kind TrainingJob on a real API server, with a real store and the rules of the API."""

import itertools
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from shutil import which

import pytest
import yaml

from gavel.backends.kubernetes.api import Api, Object, Refused
from gavel.backends.kubernetes.control_plane import ControlPlane
from gavel.backends.kubernetes.kubelets import LocalKubelets
from gavel.backends.kubernetes.rights import AGAIN_S
from gavel.client import Client
from gavel.daemon.training_jobs.definition import FOLDER, PLURAL
from gavel.daemon.training_jobs.objects import FINALIZER
from gavel.daemon.training_jobs.submission import OBJECT_LABEL
from gavel.types import JobState
from tests.backends.kubernetes.clusters import ONE_NODE
from tests.backends.kubernetes.test_service import service as kubernetes_service
from tests.backends.kubernetes.training_jobs import (
    BODY,
    LIMIT_S,
    MERGE,
    Served,
    a_plane_with_the_kind,
    blocks,
    commands_of_docs,
    eventually,
    object_body,
    served,
)

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(300)]
NUMBERS = itertools.count()
RBAC = "/apis/rbac.authorization.k8s.io/v1"


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """A control plane that has the kind, with a user who has no rights."""
    with a_plane_with_the_kind("nobody") as made:
        yield made


@pytest.fixture
def service(plane: ControlPlane, tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path / "state", plane.kubeconfig, f"team-{next(NUMBERS)}") as made:
        yield made


def test_an_object_is_a_submission_and_its_status_is_that_of_the_job(service: Served) -> None:
    service.create("first")
    status = service.until("first", state="QUEUED")
    job = service.job()
    assert (status["job"], status["user"], status["tier"]) == (job.id, "ann", "default")
    assert (job.spec.argv, job.spec.total_steps, job.spec.scale_factor) == (("python", "train.py"), 1000, 2)
    assert (job.spec.name, status["progress"], status["observedGeneration"]) == ("first", "0%", 1)
    (accepted,) = status["conditions"]
    assert (accepted["type"], accepted["status"]) == ("Accepted", "True")
    assert service.shown("first")["metadata"]["finalizers"] == [FINALIZER]
    assert service.events() == [("Normal", "Submitted")]


def test_what_a_job_does_and_its_end_are_told_and_stay(service: Served) -> None:
    service.create("one")
    service.until("one", state="QUEUED")
    job = service.ends(JobState.COMPLETED, steps_done=1000)
    status = service.until("one", state="COMPLETED", progress="100%")
    assert status["startedAt"] and status["endedAt"] and "eta" not in status
    eventually(lambda: not service.shown("one")["metadata"].get("finalizers"))
    assert service.events() == [("Normal", "Ended"), ("Normal", "Started"), ("Normal", "Submitted")]
    service.store.purge_job(job.id, by="operator", now_s=service.clock.now_s())
    service.change_spec("one", weight=2.0)
    service.until("one", state="COMPLETED", observedGeneration=2)
    assert service.status("one")["conditions"][0]["reason"] == "Ended"
    assert service.jobs() == ()


def test_a_status_is_written_only_when_something_has_changed(service: Served) -> None:
    service.create("quiet")
    service.until("quiet", state="QUEUED")
    version = service.shown("quiet")["metadata"]["resourceVersion"]
    service.create("loud")
    service.until("loud", state="QUEUED")
    service.change_spec("loud", weight=2.0)
    eventually(lambda: {job.spec.name: job.spec.weight for job in service.jobs()}["loud"] == 2.0)
    assert service.shown("quiet")["metadata"]["resourceVersion"] == version


def test_a_deleted_object_takes_its_job_along_and_one_made_again_is_a_new_job(service: Served) -> None:
    service.create("again")
    before = service.until("again", state="QUEUED")["job"]
    service.delete("again")
    eventually(lambda: service.is_gone("again"))
    assert service.job().cancel_requested
    service.create("again")
    after = service.until("again", state="QUEUED")["job"]
    assert after != before and len(service.jobs()) == 2


def test_an_object_deleted_while_the_service_is_away_waits_for_it(service: Served) -> None:
    service.create("patient")
    service.until("patient", state="QUEUED")
    service.stop()
    service.delete("patient")
    assert service.shown("patient")["metadata"]["deletionTimestamp"]
    assert not service.job().cancel_requested
    service.start()
    eventually(lambda: service.is_gone("patient"))
    assert service.job().cancel_requested


def test_a_job_whose_object_was_torn_away_is_cancelled(service: Served) -> None:
    service.create("torn")
    service.until("torn", state="QUEUED")
    service.stop()
    service.api.patch(f"{service.objects}/torn", {"metadata": {"finalizers": None}}, MERGE)
    service.delete("torn")
    service.start()
    eventually(lambda: service.job().cancel_requested)


def test_a_restart_submits_nothing_twice_even_if_the_status_was_never_written(service: Served) -> None:
    service.create("kept")
    service.until("kept", state="QUEUED")
    service.stop()
    service.api.patch(f"{service.objects}/kept/status", {"status": None}, MERGE)
    assert not service.status("kept")
    service.store.forget_keys(service.clock.now_s() + 1)
    service.start()
    assert service.until("kept", state="QUEUED")["job"] == service.job().id


def test_a_job_submitted_again_by_hand_has_no_object(service: Served) -> None:
    service.create("origin")
    service.until("origin", state="QUEUED")
    spec = service.job().spec
    again = replace(spec, resubmit_of=service.job().id)
    made = service.store.submit(again, key=None, body_hash="", now_s=service.clock.now_s()).job
    service.delete("origin")
    eventually(lambda: service.is_gone("origin"))
    assert OBJECT_LABEL in made.spec.labels and not service.store.job(made.id).cancel_requested


def test_weight_priority_labels_and_pause_are_edits(service: Served) -> None:
    service.create("edited")
    service.until("edited", state="QUEUED")
    service.change_spec("edited", weight=3.0, priority=-2, labels={"project": "vision"}, paused=True)
    status = service.until("edited", state="PAUSED", observedGeneration=2)
    job = service.job()
    assert (job.spec.weight, job.spec.priority, job.pause_requested) == (3.0, -2, True)
    assert job.spec.labels["project"] == "vision" and OBJECT_LABEL in job.spec.labels
    assert status["conditions"][0]["status"] == "True"
    service.change_spec("edited", paused=False)
    service.until("edited", state="QUEUED", observedGeneration=3)


@pytest.mark.parametrize(("field", "value"), [("argv", ["python", "other.py"]), ("total_steps", 5), ("tier", "gold")])
def test_a_field_that_no_job_can_change_is_refused_with_its_name(service: Served, field: str, value: object) -> None:
    service.create("fixed")
    service.until("fixed", state="QUEUED")
    service.change_spec("fixed", **{field: value, "weight": 9.0})
    status = service.until("fixed", state="QUEUED", observedGeneration=2)
    (accepted,) = status["conditions"]
    assert (accepted["status"], accepted["reason"]) == ("False", "FieldIsFixed")
    assert accepted["message"].startswith(f"spec.{field}: ")
    assert service.job().spec.weight == 1.0
    eventually(lambda: ("Warning", "Refused") in service.events())
    service.change_spec("fixed", **{field: BODY.get(field)})
    service.until("fixed", state="QUEUED", observedGeneration=3)
    assert service.status("fixed")["conditions"][0]["status"] == "True" and service.job().spec.weight == 9.0


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({}, "spec: Value error, give argv, or kind"),
        ({**BODY, "totalSteps": 5}, "spec.totalSteps: Extra inputs are not permitted"),
        ({**BODY, "scale_factor": 5}, "spec.scale_factor: 5 is more than any type has"),
        ({**BODY, "tier": "platinum"}, "spec.tier: platinum is not one of your tiers"),
        ({**BODY, "env": {"GAVEL_RANK": "1"}}, "spec.env.GAVEL_RANK: "),
        ({**BODY, "env": {"not a name": "1"}}, "spec.env."),
        ({**BODY, "secrets": ["TOKEN"]}, "spec.secrets: "),
    ],
)
def test_a_bad_body_is_refused_in_the_status_with_the_fields_name(
    service: Served, spec: dict[str, object], words: str
) -> None:
    service.create("bad", spec)
    status = service.until("bad", state="Refused")
    assert status["message"].startswith(words), status["message"]
    assert (status["reason"], status["conditions"][0]["status"], service.jobs()) == ("Invalid", "False", ())
    assert service.events() == [("Warning", "Refused")]
    service.delete("bad")
    eventually(lambda: service.is_gone("bad"))


def test_a_refused_object_that_is_corrected_is_submitted(service: Served) -> None:
    service.create("bad", {**BODY, "scale_factor": 5})
    service.until("bad", state="Refused")
    service.change_spec("bad", scale_factor=1)
    status = service.until("bad", state="QUEUED", observedGeneration=2)
    assert status["job"] == service.job().id


def test_a_limit_of_the_user_is_said(service: Served) -> None:
    for name in ("a", "b", "c"):
        service.create(name)
        service.until(name, state="QUEUED")
    service.create("d")
    status = service.until("d", state="Refused", reason="LimitReached")
    assert "unfinished" in status["message"] and len(service.jobs()) == 3


@pytest.mark.parametrize("spec", [{"argv": "python train.py"}, {**BODY, "scale_factor": 0}, {**BODY, "weight": "2"}])
def test_the_api_server_refuses_what_the_schema_excludes(service: Served, spec: dict[str, object]) -> None:
    with pytest.raises(Refused) as refused:
        service.create("wrong", spec)
    assert refused.value.status == 422 and "spec." in str(refused.value)


def test_a_service_that_does_not_lead_does_nothing(plane: ControlPlane, tmp_path: Path) -> None:
    with served(tmp_path, plane.kubeconfig, f"team-{next(NUMBERS)}") as service:
        service.leads = False
        service.create("idle")
        service.leads = True
        service.until("idle", state="QUEUED")


def test_a_namespace_has_a_user_and_a_tier_of_its_own(plane: ControlPlane, tmp_path: Path) -> None:
    name = f"team-{next(NUMBERS)}"
    own = {"training_jobs": "all", "namespace_users": {}, "namespace_tiers": {name: "gold"}}
    with served(tmp_path, plane.kubeconfig, name, **own) as service:
        service.create("mine")
        service.until("mine", state="QUEUED", user=name, tier="gold")


def test_nobody_is_the_operator_by_the_name_of_a_namespace(plane: ControlPlane, tmp_path: Path) -> None:
    with served(tmp_path, plane.kubeconfig, "operator", training_jobs="all", namespace_users={}) as service:
        service.create("sly")
        assert "namespace_users" in service.until("sly", state="Refused")["message"]
        assert service.jobs() == ()


def test_the_rights_in_the_docs_are_enough(plane: ControlPlane, tmp_path: Path) -> None:
    """1 without any right it says what is missing, 2 with those of the docs a job is submitted, told and cancelled."""
    with served(tmp_path, plane.kubeconfig, f"team-{next(NUMBERS)}", context="nobody") as service:
        assert service.controller is not None
        notes = service.controller.notes
        eventually(lambda: any('resources: ["trainingjobs"], verbs: ["list"]' in note for note in notes()))
        service.api.create(f"{RBAC}/clusterroles", blocks("rules:")[0])
        service.api.create(f"{RBAC}/clusterrolebindings", _binding())
        eventually(lambda: not notes(), AGAIN_S + LIMIT_S)
        service.create("first")
        service.until("first", state="QUEUED")
        service.change_spec("first", paused=True)
        service.until("first", state="PAUSED")
        service.delete("first")
        eventually(lambda: service.is_gone("first"))
        assert service.job().cancel_requested and service.events() == [("Normal", "Submitted")] and not notes()


def _binding() -> Object:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "gavel-trainingjobs"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "gavel-trainingjobs"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "nobody"}],
    }


@pytest.mark.skipif(which("kubectl") is None, reason="kubectl is not here")
def test_what_the_docs_say_about_kubectl(plane: ControlPlane, tmp_path: Path) -> None:
    """The commands of the section, in their order, and what each of them does."""
    (job,) = blocks("kind: TrainingJob")
    namespace = str(job["metadata"]["namespace"])
    (tmp_path / "first.yaml").write_text(yaml.safe_dump(job))
    commands = iter(commands_of_docs())

    def run() -> str:
        line = next(commands)
        env = {**os.environ, "KUBECONFIG": str(plane.kubeconfig), "HOME": str(tmp_path)}
        env["PATH"] = f"{Path(sys.executable).parent}:{env['PATH']}"
        done = subprocess.run(
            ["/bin/sh", "-c", line], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=100, check=False
        )
        assert done.returncode == 0, f"{line}: {done.stderr}"
        return done.stdout

    with served(tmp_path / "state", plane.kubeconfig, namespace, namespace_users={namespace: namespace}) as service:
        assert "trainingjobs.gavel.internal" in run()
        assert "created" in run()
        service.until("first", state="QUEUED", user="vision", tier="default")
        header, row = (line.split() for line in run().splitlines())
        assert header == ["NAME", "STATE", "TIER", "PROGRESS", "WHERE", "ETA", "REASON", "AGE"]
        assert row[:4] == ["first", "QUEUED", "default", "0%"]
        described = run()
        assert "Submitted" in described and "Message:" in described and service.job().id in described
        assert "patched" in run()
        service.until("first", observedGeneration=2)
        assert service.job().spec.weight == 2.0
        assert "deleted" in run() and service.is_gone("first") and service.job().cancel_requested
    assert [*commands] == []


@pytest.mark.timeout(600)
def test_a_whole_service_trains_what_kubectl_applies_and_its_successor_finishes_it(
    plane: ControlPlane, tmp_path: Path
) -> None:
    """1 an object is made, 2 it runs, 3 kill -9 of the service, 4 the next one finishes it, once, and says so."""
    nodes = LocalKubelets(str(plane.kubeconfig), tmp_path / "pods", ONE_NODE)
    api = Api(str(plane.kubeconfig), "", Counter())
    path = f"{FOLDER}/namespaces/default/{PLURAL}"
    nodes.start()
    try:
        with kubernetes_service(tmp_path, plane.kubeconfig) as running:
            api.create(path, object_body("digits", {"kind": "mlp-b256", "total_steps": 150}))
            eventually(lambda: api.get(f"{path}/digits").get("status", {}).get("where"), 180)
            running.kill()
            running.start()
            done = eventually(lambda: (now := api.get(f"{path}/digits")["status"]).get("endedAt") and now, 240)
            assert (done["state"], done["progress"], done["user"]) == ("COMPLETED", "100%", "default"), done["message"]
            with Client(running.url, running.operator_token) as gavel:
                assert [job["id"] for job in gavel.jobs()] == [done["job"]]
        assert not running.processes_left()
    finally:
        nodes.stop()
        api.patch(f"{path}/digits", {"metadata": {"finalizers": None}}, MERGE)
        api.delete(f"{path}/digits")
