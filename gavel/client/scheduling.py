"""The clients' calls about what the scheduler does, and about the service itself."""

from typing import Any

from gavel.client.answers import Allocation, Cluster, Estimator, Operation, Round, Throughputs
from gavel.client.script import Ask, Method, Script, answered, asked, get, listed


class SchedulingCalls:
    """Part of both clients."""

    @Method
    def allocations(
        self, *, group_by: str = "none", tier: str | None = None, kind: str | None = None
    ) -> Script[Allocation]:
        """The newest allocation: target and received of each job, or of the jobs of a `tier_and_kind` together."""
        return get("/v1/allocations/current", group_by=group_by, tier=tier, kind=kind)

    @Method
    def throughputs(self) -> Script[Throughputs]:
        """Steps per second by job kind and accelerator type."""
        return get("/v1/throughputs")

    @Method
    def estimator(self) -> Script[Estimator]:
        """Throughputs with intervals and sources, also of types not measured yet, and statements beside facts."""
        return get("/v1/estimator")

    @Method
    def rounds(self, *, before: int | None = None, limit: int = 40) -> Script[list[Round]]:
        """Rounds, newest first."""
        return listed("/v1/rounds", before=before, limit=limit)

    @Method
    def round(self, round_index: int) -> Script[Round]:
        """One round."""
        return get(f"/v1/rounds/{int(round_index)}")

    @Method
    def cluster(self) -> Script[Cluster]:
        """Nodes and workers."""
        return get("/v1/cluster")

    @Method
    def catalogue(self) -> Script[list[dict[str, Any]]]:
        """The job kinds that come with Gavel."""
        return listed("/v1/catalogue")

    @Method
    def policies(self) -> Script[dict[str, Any]]:
        """Policies that the service can be configured with, and the objectives a tier may have."""
        return get("/v1/policies")

    @Method
    def set_policy(self, policy: str | None, *, wait_s: int = 2) -> Script[Operation]:
        """Decide by another policy from the next round on; None: by that of the settings again."""
        return asked("PUT", "/v1/policy", wait_s, json={"policy": policy})

    # --- the service itself

    @Method
    def health(self) -> Script[str]:
        """`ok` when the store answers and the scheduler is alive."""
        return str((yield from get("/readyz"))["status"])

    @Method
    def is_alive(self) -> Script[bool]:
        """True when the process answers, whatever else is amiss."""
        return str((yield from get("/healthz"))["status"]) == "ok"

    @Method
    def metrics(self) -> Script[str]:
        """What Prometheus reads."""
        return (yield from answered(Ask(method="GET", path="/metrics"), may_repeat=True)).text
