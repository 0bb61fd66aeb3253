"""The clients' calls about why and what if (docs/explain.md)."""

from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from gavel.client.answers import Calibration, Effects, Explanation, Verification
from gavel.client.bodies import JobSubmit, NodesAdded, TierPreview, TierPut
from gavel.client.script import Method, Script, call, get, part

WORKING_OUT_S = 60.0  # seconds that an answer may take longer, since a process of its own computes it


class ExplainCalls:
    """Calls about why and what if, part of both clients."""

    @Method
    def explain(self, job_id: str) -> Script[Explanation]:
        """Return why the job does not run, and when it will."""
        return get(f"/v1/jobs/{part(job_id)}/explanation")

    @Method
    def calibration(self) -> Script[Calibration]:
        """Return how good the predictions of the last jobs were."""
        return get("/v1/calibration")

    @Method
    def preview_tier(self, name: str, /, **rules: Unpack[TierPut]) -> Script[Effects]:
        """Return what a tier with these rules (see `put_tier`) would change. Nothing is changed."""
        return _worked_out(f"/v1/tiers/{part(name)}/preview", dict(rules))

    @Method
    def what_if(
        self,
        *,
        policy: str | None = None,
        tiers: Sequence[TierPreview] = (),
        nodes_gone: Sequence[str] = (),
        nodes_added: Sequence[NodesAdded] = (),
        job: JobSubmit | None = None,
    ) -> Script[Effects]:
        """Return what a change would do. Nothing is changed."""
        body: dict[str, Any] = {"policy": policy, "nodes_gone": list(nodes_gone)}
        body |= {"tiers": [dict(each) for each in tiers], "nodes_added": [dict(each) for each in nodes_added]}
        return _worked_out("/v1/what-if", body | {"job": None if job is None else dict(job)})

    @Method
    def verify_round(self, round_index: int) -> Script[Verification]:
        """Return whether a stored round, decided again, has the same allocation and leases."""
        return _worked_out(f"/v1/rounds/{round_index:d}/verify")


def _worked_out(path: str, body: Mapping[str, Any] | None = None) -> Script[Any]:
    return call("POST", path, may_repeat=True, patience_s=WORKING_OUT_S, json=body)
