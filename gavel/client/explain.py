"""The clients' calls about why and what if (docs/explain.md)."""

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from gavel.client.answers import Submission
from gavel.client.script import Method, Script, call, get, part

WORKING_OUT_S = 60.0  # what an answer of a process of its own may take longer than others


class Binding(TypedDict):
    """The accelerator type that a job waits for; `price` relative to the dearest, `source` prices or load."""

    accelerator_type: str
    price: float
    source: str
    leased_workers: int
    workers: int


class Explanation(TypedDict):
    """Why a job does not run, what would change that, when it should start and end, each with its interval."""

    job_id: str
    code: str
    message: str
    binding: Binding | None
    owed: dict[str, float]
    received: dict[str, float]
    owed_rounds: float
    position: int | None
    jobs_ahead: int
    would_unblock: list[str]
    est_start_at_s: float | None
    est_start_low_at_s: float | None
    est_start_high_at_s: float | None
    est_finish_at_s: float | None
    est_finish_low_at_s: float | None
    est_finish_high_at_s: float | None


class Calibration(TypedDict):
    """How many of the last jobs ended and began in the interval that was predicted first; `target` should."""

    predictions: int
    target: float
    finishes_inside: float | None
    starts_inside: float | None
    median_error_s: float | None
    median_relative_error: float | None
    is_learned: bool


class TierEffect(TypedDict):
    """Workers that a tier's jobs hold on average, by type, and their part of the cluster."""

    tier: str
    share_before: float | None
    share_after: float | None
    workers_before: dict[str, float] | None
    workers_after: dict[str, float] | None


class JobEffect(TypedDict):
    """One job without and with the change; `what-if`: the job that was not submitted."""

    job_id: str
    kind: str
    user: str
    tier: str
    target_before: dict[str, float] | None
    target_after: dict[str, float] | None
    steps_per_s_before: float | None
    steps_per_s_after: float | None
    finish_at_s_before: float | None
    finish_at_s_after: float | None
    is_replayed: bool


class Effects(TypedDict):
    """The live state without and with a change; of jobs, the 200 that gain or lose most."""

    policy_before: str
    policy_after: str
    capacity_before: dict[str, int]
    capacity_after: dict[str, int]
    tiers: list[TierEffect]
    jobs: list[JobEffect]
    jobs_total: int
    mean_left_s_before: float | None
    mean_left_s_after: float | None


class LeaseDifference(TypedDict):
    """A lease that only the stored round has, or only the round decided again."""

    job_id: str
    accelerator_type: str
    worker_ids: list[str]
    token: int
    is_stored: bool


class Replayed(TypedDict):
    """A round decided again from its stored inputs."""

    round_index: int
    policy: str
    same: bool
    solver_outcome: str
    largest_difference: float | None
    leases: int
    differences: list[LeaseDifference]
    note: str


class ExplainCalls:
    """Part of both clients."""

    @Method
    def explain(self, job_id: str) -> Script[Explanation]:
        """Why the job does not run, and when it will."""
        return get(f"/v1/jobs/{part(job_id)}/explain")

    @Method
    def calibration(self) -> Script[Calibration]:
        """How good the predictions of the last jobs were."""
        return get("/v1/explain/calibration")

    @Method
    def preview_tier(self, name: str, /, **rules: Any) -> Script[Effects]:
        """What a tier with these rules, as `put_tier` takes them, would do; nothing is changed."""
        return _worked_out("POST", "/v1/tiers:preview", {"name": name, **rules})

    @Method
    def simulate(
        self,
        *,
        policy: str | None = None,
        tiers: Sequence[Mapping[str, Any]] = (),
        nodes_gone: Sequence[str] = (),
        nodes_added: Sequence[Mapping[str, Any]] = (),
        job: Submission | None = None,
    ) -> Script[Effects]:
        """What a change would do; `nodes_added` hold count, accelerator_type and workers. Nothing is changed."""
        body: dict[str, Any] = {"policy": policy, "nodes_gone": list(nodes_gone)}
        body |= {"tiers": [dict(each) for each in tiers], "nodes_added": [dict(each) for each in nodes_added]}
        return _worked_out("POST", "/v1/simulate", body | {"job": None if job is None else dict(job)})

    @Method
    def replay_round(self, round_index: int) -> Script[Replayed]:
        """A stored round decided again: whether allocation and leases come out the same."""
        return _worked_out("GET", f"/v1/rounds/{round_index:d}/replay", None)


def _worked_out(method: str, path: str, body: Mapping[str, Any] | None) -> Script[Any]:
    request: dict[str, Any] = {} if body is None else {"json": dict(body)}
    return call(method, path, may_repeat=True, patience_s=WORKING_OUT_S, **request)
