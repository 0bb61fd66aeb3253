"""The curves of a job's metrics by REST, client and command line."""

from collections.abc import Mapping

import httpx
import pytest
from typer.testing import CliRunner

from gavel.cli import app
from gavel.client import Client
from gavel.types import MetricPoint
from tests.api.conftest import NOW_S, Service


@pytest.fixture(scope="module")
def ann(service: Service) -> tuple[str, httpx.Client]:
    return service.user()


def a_job_with(service: Service, ann: httpx.Client, *values: Mapping[str, float]) -> str:
    """A job that has reported these metrics, one after each step, the second half on another type."""
    job_id = str(ann.post("/v1/jobs", json={"argv": ["x"], "total_steps": 10_000}).json()["id"])
    points = [
        MetricPoint(
            job_id=job_id,
            generation=1 if index < len(values) / 2 else 4,
            accelerator_type="fast" if index < len(values) / 2 else "slow",
            previous_step=index,
            step=index + 1,
            at_s=NOW_S + index,
            values=each,
        )
        for index, each in enumerate(values)
    ]
    service.change(metric_points=tuple(points))
    return job_id


def test_every_metric_comes_with_its_steps_leases_and_types(service: Service, ann: tuple[str, httpx.Client]) -> None:
    job_id = a_job_with(service, ann[1], {"loss": 2.0}, {"loss": 1.0, "error": 0.5})
    assert ann[1].get(f"/v1/jobs/{job_id}/metrics").json() == {
        "names": ["error", "loss"],
        "steps": [1, 2],
        "at_s": [NOW_S, NOW_S + 1],
        "generations": [1, 4],
        "accelerator_types": ["fast", "slow"],
        "values": {"error": [None, 0.5], "loss": [2.0, 1.0]},
    }


def test_the_number_of_points_is_asked_for_and_the_ends_stay(service: Service, ann: tuple[str, httpx.Client]) -> None:
    job_id = a_job_with(service, ann[1], *({"loss": float(index)} for index in range(600)))
    for asked in (2, 7, 500):
        steps = ann[1].get(f"/v1/jobs/{job_id}/metrics", params={"points": asked}).json()["steps"]
        assert len(steps) == asked and (steps[0], steps[-1]) == (1, 600) and steps == sorted(set(steps))
    assert len(ann[1].get(f"/v1/jobs/{job_id}/metrics", params={"points": 1001}).json()["steps"]) == 600
    assert ann[1].get(f"/v1/jobs/{job_id}/metrics", params={"points": 1}).status_code == 422


def test_a_job_that_reports_ever_new_names_gets_a_short_answer(service: Service, ann: tuple[str, httpx.Client]) -> None:
    values = [{f"m{step}-{index}": 1.0 for index in range(16)} for step in range(300)]
    answer = ann[1].get(f"/v1/jobs/{a_job_with(service, ann[1], *values)}/metrics")
    names = answer.json()["names"]
    assert len(names) == 32 and "m299-0" in names and len(answer.content) < 1 << 20


def test_a_job_that_has_reported_nothing_has_no_names(service: Service, ann: tuple[str, httpx.Client]) -> None:
    answer = ann[1].get(f"/v1/jobs/{a_job_with(service, ann[1])}/metrics").json()
    assert answer["names"] == answer["steps"] == [] and answer["values"] == {}


def test_the_client_and_the_command_show_them(service: Service, ann: tuple[str, httpx.Client]) -> None:
    job_id, token = a_job_with(service, ann[1], {"loss": 2.0}, {"loss": 0.125}), service.token(ann[0])
    with Client(service.url, token) as client:
        assert client.job_metrics(job_id, points=2)["values"] == {"loss": [2.0, 0.125]}
    shown = CliRunner().invoke(app, ["--url", service.url, "--token", token, "job", "metrics", job_id])
    assert shown.exit_code == 0, shown.output
    assert "loss" in shown.output and "0.125" in shown.output and "slow" in shown.output
