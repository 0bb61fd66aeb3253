"""A job's view gives back all that was submitted, under the names of the submit, wherever a job is shown."""

import io
from typing import Any

import httpx
import pytest
from rich.console import Console

from api.schemas import JobSubmit
from gavel.cli import show
from gavel.client import Client
from tests.api.conftest import NOW_S, Service

# a value of each field that is not its default
ASKED: dict[str, Any] = {
    "argv": ["python", "train.py", "--rate", "0.1"],
    "name": "all-that",
    "kind_args": ["crop"],
    "total_steps": 4321,
    "scale_factor": 2,
    "tier": "gold",
    "weight": 2.5,
    "deadline_at_s": NOW_S + 5000.0,
    "env": {"SEED": "77", "MODE": "fast"},
    "labels": {"project": "vision"},
    "throughputs": {"fast": 12.5, "slow": 3.25},
    "preemptible": False,
    "cpu_cores": 3,
    "memory_bytes": 123456789,
    "accelerator_types": ["fast", "!slow"],
    "accelerator_memory_bytes": 987654321,
    "node_labels": {"disk": "nvme"},
    "regions": ["local"],
    "data_region": "local",
    "data_bytes": 1234567,
    "priority": -2,
    "max_retries": 4,
    "workdir": "/home/ann/project",
    "python": "/home/ann/project/.venv/bin/python",
    "secrets": ["HF_TOKEN"],
    "setup": "pip install -r requirements.txt",
    "data": {"vocabulary": "https://there.example/words.txt"},
    "notify": ["end", "no-progress"],
}


IN_IMAGE = {"image": "registry.example/train:1", "total_steps": 7, "argv": ["python", "train.py"]}


SAVED = {"dump": "./save", "restore": "./load"}


SESSION = {"mode": "interactive", "longest_s": 600.0, "idle_s": 90.0}
RESERVED = {"mode": "interactive", "longest_s": 600.0, "reserved_at_s": NOW_S + 9000.0, "accelerator_types": ["slow"]}
SHARED = {"mode": "interactive", "accelerator_share": 0.5}
TOPOLOGY = {"topology_label": "disk", "total_steps": 5}


SERVICE = {"mode": "service", "service": {"port": 0, "readiness": {"path": "/ready"}, "replicas": 2, "surge": 2}}
ELASTIC = {"sizes": [1, 2], "global_batch": 4096, "max_global_batch": 65536}
PLANNED = {"plans": ["data=1", {"name": "own", "argv": ["./other"]}]}


# what does not go together with the rest
OTHERS: dict[str, dict[str, Any]] = {
    "image": IN_IMAGE,
    **dict.fromkeys(SAVED, SAVED),
    **dict.fromkeys(SESSION, SESSION),
    "reserved_at_s": RESERVED,
    "accelerator_share": SHARED,
    "topology_label": TOPOLOGY,
    "service": SERVICE,
    **dict.fromkeys(ELASTIC, ELASTIC),
    "plans": PLANNED,
}


@pytest.fixture(scope="module")
def asked(service: Service) -> tuple[str, httpx.Client, dict[str, Any], str]:
    name, ann = service.user()
    first = ann.post("/v1/jobs", json={"argv": ["x"], "total_steps": 1}).json()["id"]
    digest = ann.post("/v1/code-versions", json={"files": []}).json()["digest"]
    ann.put("/v1/secrets/HF_TOKEN", json={"value": "a value of hers"})
    code = {"digest": digest, "commit": "c" * 40, "is_modified": True, "diff": ""}
    code |= {"git_url": "https://git.example.org/train.git", "git_ref": "main"}
    body = ASKED | {"after": [first], "kind": f"{name}/all", "code": code}
    answer = ann.post("/v1/jobs", json=body)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"]), ann, body, name


@pytest.mark.parametrize("field", JobSubmit.model_fields)
def test_every_field_of_a_submit_is_in_the_job_s_view(
    asked: tuple[str, httpx.Client, dict[str, Any], str], field: str
) -> None:
    job_id, ann, body, _ = asked
    other = OTHERS.get(field)
    if other is not None:
        job_id, body = str(ann.post("/v1/jobs", json={"argv": ["./solver"], **other}).json()["id"]), other
    assert field in body, "a new field of the submit: give it a value here"
    default = JobSubmit.model_fields[field].default
    assert body[field] != default, "a default would be found by chance"
    if field == "plans":
        shown = ann.get(f"/v1/jobs/{job_id}").json()[field]
        assert [(each["name"], each["argv"]) for each in shown] == [("data=1", []), ("own", ["./other"])]
        return
    if field == "service":
        shown = ann.get(f"/v1/jobs/{job_id}").json()[field]
        assert {name: shown[name] for name in ("port", "replicas", "surge")} == {"port": 0, "replicas": 2, "surge": 2}
        assert shown["readiness"]["path"] == "/ready"
        return
    listed = next(job for job in ann.get("/v1/jobs").json()["items"] if job["id"] == job_id)
    shown = list(body[field]) if field == "env" else body[field]  # of the environment the names: values may be secrets
    assert ann.get(f"/v1/jobs/{job_id}").json()[field] == listed[field] == shown


def test_the_command_line_shows_every_field(
    asked: tuple[str, httpx.Client, dict[str, Any], str], service: Service
) -> None:
    job_id, _, body, name = asked
    with Client(service.url, service.token(name)) as client:
        job = client.job(job_id)
    console = Console(width=200, record=True, file=io.StringIO())
    job["image"] = str(IN_IMAGE["image"])  # of another job than an interpreter of the node, as are the next two
    job["dump"], job["restore"] = SAVED["dump"], SAVED["restore"]
    job["longest_s"], job["idle_s"], job["topology_label"] = 600.0, 90.0, "rack"
    job["accelerator_share"] = 0.5
    job["sizes"], job["global_batch"], job["max_global_batch"] = [1, 2], 4096, 65536
    job["plan"], job["plans"] = "tensor=2", [{"name": "tensor=2", "sizes": [2]}]  # type: ignore[typeddict-item]
    console.print(show.job(job))
    text = console.export_text()
    shown = {
        "argv": "python train.py --rate 0.1",
        "env": "SEED, MODE",
        "secrets": "HF_TOKEN",
        "image": job["image"],
        **SAVED,
        "mode": "an interactive session",
        "reserved_at_s": "600 s after its start",
        "accelerator_share": "another session, or a training, may run on its accelerators",
        "topology_label": "nodes with one value of rack",
        "longest_s": "600 s after its start",
        "idle_s": "90 s after its last use",
        "labels": "project=vision",
        "throughputs": "fast 12.5, slow 3.25",
        "preemptible": "preemptible",
        "deadline_at_s": show.instant(body["deadline_at_s"]),
        "weight": "2.5, -2",
        "priority": "2.5, -2",
        "max_retries": "0 of 4",
        "kind_args": "crop",
        "data": "vocabulary=https://there.example/words.txt",
        "scale_factor": "×2",
        "sizes": "2 now, of 1, 2",
        "plans": "tensor=2 now, of tensor=2 at 2",
        "global_batch": "4096 samples in each step",
        "max_global_batch": "up to 65536 in an update",
        "after": body["after"][0],
        "cpu_cores": "3 CPU cores",
        "memory_bytes": "123.5 MB of memory",
        "accelerator_memory_bytes": "987.7 MB of memory",
        "accelerator_types": "fast, !slow",
        "node_labels": "nodes with disk=nvme",
        "regions": "regions local",
        "data_region": "in local",
        "data_bytes": "1.2 MB in",
        "notify": "end, no-progress",
        "code": f"{body['code']['digest'][:12]} of commit {'c' * 12} with changes",
    }
    for field in [name for name in JobSubmit.model_fields if name != "service"]:
        assert (shown.get(field) or str(body[field])) in text, field
