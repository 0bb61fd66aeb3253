"""A job submitted again from the accepted checkpoint of the old one: where it begins, and what keeps the checkpoint."""

import os
import shutil
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from gavel.backends.checkpoint_copies import copied_checkpoint
from tests.api.conftest import Service


@pytest.fixture
def ann(service: Service) -> httpx.Client:
    return service.user()[1]


def root_of(service: Service) -> Path:
    return service.settings.state_dir / "checkpoints"


def saved(service: Service, ann: httpx.Client, name: str = "2-40", total_steps: int | None = 100) -> str:
    """A job whose checkpoint of this name was accepted."""
    job_id = str(ann.post("/v1/jobs", json={"argv": ["x"], "total_steps": total_steps}).json()["id"])
    (root_of(service) / job_id / name / "sub").mkdir(parents=True)
    (root_of(service) / job_id / name / "sub" / "weights").write_text("trained")
    job = service.store.job(job_id)
    service.change(replace(job, checkpoint=name, steps_done=40, generation=2))
    return job_id


def test_it_begins_with_the_old_checkpoint_which_stays_whatever_becomes_of_the_old_job(
    service: Service, ann: httpx.Client
) -> None:
    """1 step and origin are the checkpoint's, 2 the copy is the same file, 3 it stays when the old one is removed."""
    old = saved(service, ann)
    answer = ann.post(f"/v1/jobs/{old}/resubmit", json={"from_checkpoint": True})
    assert answer.status_code == 201, answer.text
    new = answer.json()
    assert (new["steps_done"], new["from_checkpoint"], new["resubmit_of"]) == (40, f"{old}/2-40", old)
    copy = copied_checkpoint(root_of(service), new["from_checkpoint"])
    assert os.path.samefile(copy / "sub" / "weights", root_of(service) / old / "2-40" / "sub" / "weights")
    shutil.rmtree(root_of(service) / old)
    assert (copy / "sub" / "weights").read_text() == "trained"
    assert [path.name for path in copy.parent.iterdir()] == ["2-40"], "nothing temporary is left"
    again = ann.post(f"/v1/jobs/{new['id']}/resubmit", json={"from_checkpoint": True}).json()
    assert again["from_checkpoint"] == f"{old}/2-40", "a job that has not saved yet goes on as it would itself"
    assert ann.post(f"/v1/jobs/{new['id']}/resubmit", json={}).json()["steps_done"] == 0


def test_two_requests_for_one_checkpoint_have_one_copy(service: Service, ann: httpx.Client) -> None:
    old = saved(service, ann, total_steps=None)
    first, second = (ann.post(f"/v1/jobs/{old}/resubmit", json={"from_checkpoint": True}).json() for _ in range(2))
    assert first["from_checkpoint"] == second["from_checkpoint"] and first["id"] != second["id"]


def test_what_has_no_checkpoint_to_begin_with_is_refused(service: Service, ann: httpx.Client) -> None:
    """1 none was accepted, 2 it is gone, 3 it covers all steps, 4 it has what cannot be copied, 5 another's job."""

    def refusal(job_id: str, client: httpx.Client = ann, **changes: object) -> tuple[int, str]:
        answer = client.post(f"/v1/jobs/{job_id}/resubmit", json={"from_checkpoint": True, **changes})
        return answer.status_code, answer.json()["detail"]

    fresh = str(ann.post("/v1/jobs", json={"argv": ["x"]}).json()["id"])
    assert refusal(fresh) == (
        422,
        f"from_checkpoint: job {fresh} has no accepted checkpoint; without it it begins at step 0",
    )
    old = saved(service, ann)
    assert refusal(old, total_steps=40) == (
        422,
        "total_steps: the checkpoint is of step 40; ask for more steps than that (--steps)",
    )
    (root_of(service) / old / "2-40" / "link").symlink_to("/etc/passwd")
    assert refusal(old) == (422, "from_checkpoint: link of checkpoint 2-40 is no regular file")
    shutil.rmtree(root_of(service) / old / "2-40")
    assert refusal(old) == (422, "from_checkpoint: checkpoint 2-40 is gone; ask again for the newest")
    assert list((root_of(service) / ".copies").glob(f"{old}/.*")) == []
    assert refusal(old, service.user()[1])[0] == 404
