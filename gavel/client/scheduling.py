"""The clients' calls about what the scheduler does, and about the service itself."""

from gavel.client.answers import (
    Allocation,
    CatalogueEntry,
    Cluster,
    Finding,
    Operation,
    PolicyList,
    Round,
    ThroughputList,
)
from gavel.client.script import Ask, Method, Script, answered, asked, get, listed


class SchedulingCalls:
    """Calls about the scheduler and the service, part of both clients."""

    @Method
    def allocations(
        self, *, group_by: str = "none", tier: str | None = None, kind: str | None = None
    ) -> Script[Allocation]:
        """Return the newest allocation: target and received of each job, or of all jobs of a `tier_and_kind`."""
        return get("/v1/allocations/current", group_by=group_by, tier=tier, kind=kind)

    @Method
    def throughputs(self, *, job_id: str | None = None) -> Script[ThroughputList]:
        """Return how fast job kinds, or one job, run on each accelerator type, with intervals and sources."""
        return get("/v1/throughputs", job_id=job_id)

    @Method
    def rounds(self, *, before: int | None = None, limit: int = 40) -> Script[list[Round]]:
        """Return rounds, newest first."""
        return listed("/v1/rounds", before=before, limit=limit)

    @Method
    def round(self, round_index: int) -> Script[Round]:
        """Return one round."""
        return get(f"/v1/rounds/{int(round_index)}")

    @Method
    def cluster(self) -> Script[Cluster]:
        """Return nodes and workers."""
        return get("/v1/cluster")

    @Method
    def catalogue(self) -> Script[list[CatalogueEntry]]:
        """Return the job kinds that come with Gavel."""
        return listed("/v1/catalogue")

    @Method
    def policies(self) -> Script[PolicyList]:
        """Return the policies that the service can use, and the objectives that a tier may have."""
        return get("/v1/policies")

    @Method
    def set_policy(self, policy: str | None, *, wait_s: int = 2) -> Script[Operation]:
        """Use another policy from the next round on; None: the policy of the settings again."""
        return asked("PUT", "/v1/policies/current", wait_s, json={"policy": policy})

    # --- the service itself

    @Method
    def health(self) -> Script[str]:
        """Return the health: `ok` when the store answers and the scheduler is alive."""
        return str((yield from get("/readyz"))["status"])

    @Method
    def is_alive(self) -> Script[bool]:
        """Return True when the process answers, whatever else is wrong."""
        return str((yield from get("/healthz"))["status"]) == "ok"

    @Method
    def findings(self) -> Script[list[Finding]]:
        """Return what the service finds on its machine, and how you reach it, as `gavel doctor` does there."""
        return listed("/v1/findings")

    @Method
    def metrics(self) -> Script[str]:
        """Return the metrics that Prometheus reads."""
        return (yield from answered(Ask(method="GET", path="/metrics"), may_repeat=True)).text
