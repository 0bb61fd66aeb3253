"""TrainingJob objects on what plays the API server, wherever there is none: one story."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from gavel.backends.kubernetes.api import Api
from gavel.daemon.training_jobs.submission import OBJECT_LABEL
from gavel.types import JobState
from tests.backends.kubernetes.stand_in import a_stand_in
from tests.backends.kubernetes.training_jobs import BODY, Served, define, eventually, served
from tests.builders import a_spec


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Served]:
    with a_stand_in(tmp_path) as kubeconfig:
        define(Api(str(kubeconfig), "", Counter()))
        with served(tmp_path / "state", kubeconfig, "team") as made:
            yield made


def test_an_object_is_submitted_edited_and_cancelled_also_by_the_next_service(service: Served) -> None:
    service.create("first")
    job_id = service.until("first", state="QUEUED")["job"]
    service.change_spec("first", weight=2.0)
    service.until("first", observedGeneration=2)
    assert (service.job().id, service.job().spec.weight) == (job_id, 2.0)
    service.change_spec("first", argv=["other"])
    assert service.until("first", observedGeneration=3)["conditions"][0]["message"].startswith("spec.argv: ")
    service.stop()
    service.delete("first")
    service.start()
    eventually(lambda: service.is_gone("first"))
    assert service.job().cancel_requested
    service.create("first")
    assert service.until("first", state="QUEUED")["job"] != job_id
    assert service.events() == [("Normal", "Submitted"), ("Normal", "Submitted"), ("Warning", "Refused")]


def test_a_refusal_and_an_end_are_said(service: Served) -> None:
    service.create("bad", {**BODY, "scale_factor": 5})
    assert service.until("bad", state="Refused")["message"].startswith("spec.scale_factor: ")
    service.change_spec("bad", scale_factor=1)
    service.until("bad", state="QUEUED")
    service.ends(JobState.COMPLETED, steps_done=1000)
    service.until("bad", state="COMPLETED", progress="100%")
    eventually(lambda: not service.shown("bad")["metadata"].get("finalizers"))


def test_a_status_of_the_object_that_had_the_name_before_says_nothing_of_this_one(service: Served) -> None:
    service.create("first")
    status = service.until("first", state="QUEUED")
    service.delete("first")
    eventually(lambda: service.is_gone("first"))
    service.stop()
    made = service.create("first")
    names = {"name": "first", "namespace": "team"}
    body = {**{name: made[name] for name in ("apiVersion", "kind")}, "metadata": names, "status": dict(status)}
    service.api.apply(f"{service.objects}/first/status", body, "somebody")
    service.start()
    eventually(lambda: service.status("first").get("state") == "Gone")
    assert len(service.jobs()) == 1 and service.job().cancel_requested


def test_a_label_that_somebody_else_wrote_takes_no_object_from_its_user(service: Served) -> None:
    service.stop()
    made = service.create("first", {**BODY, "weight": 3.0})
    spec = a_spec(user="bob", labels={OBJECT_LABEL: made["metadata"]["uid"]})
    foreign = service.store.submit(spec, key=None, body_hash="", now_s=0.0).job
    service.start()
    own = service.store.job(service.until("first", state="QUEUED")["job"])
    assert (own.spec.user, own.spec.weight) == ("ann", 3.0)
    unchanged = service.store.job(foreign.id)
    assert (unchanged.spec.weight, unchanged.cancel_requested) == (spec.weight, False)
