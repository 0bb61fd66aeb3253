"""`topology_label` of a submission: a gang on nodes with one value of a label."""

from tests.api.conftest import Service
from tests.api.test_submit import PROGRAM, refused


def test_a_gang_that_fits_where_the_label_has_one_value_is_accepted(service: Service) -> None:
    _, ann = service.user()
    job = ann.post("/v1/jobs", json=PROGRAM | {"topology_label": "disk", "scale_factor": 2}).json()
    assert job["topology_label"] == "disk"
    again = ann.post(f"/v1/jobs/{job['id']}/resubmit", json={}).json()
    assert again["topology_label"] == "disk"
    assert ann.post("/v1/jobs", json=PROGRAM).json()["topology_label"] == ""


def test_one_that_fits_nowhere_so_is_refused_and_so_is_what_does_not_go_with_it(service: Service) -> None:
    _, ann = service.user()
    refused(ann.post("/v1/jobs", json=PROGRAM | {"topology_label": "rack"}), "topology_label", "no value of label rack")
    sizes = {"topology_label": "disk", "sizes": [1, 2], "global_batch": 64}
    refused(ann.post("/v1/jobs", json=PROGRAM | sizes), "topology_label", "does not go with sizes")
