"""Inference services: what a submission says of one, what a job shows of it, and how it is changed."""

from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from api.schemas.fields import (
    Argument,
    ImageName,
    LabelKey,
    Request,
    TypeName,
    VariableName,
    VariableValue,
    View,
    example,
)

REPLICAS_MAX = 256
CheckPath = Annotated[str, StringConstraints(pattern=r"^(/[!-~]*)?$", max_length=1024)]


MetricsPath = Annotated[str, StringConstraints(pattern=r"^/[!-~]*$", max_length=1024)]
MetricName = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z_:][a-zA-Z0-9_:]*$", max_length=200)]
RequestsPerSecond = Annotated[float, Field(ge=0, le=1e9)]
Rate = Annotated[float, Field(ge=1e-6, le=1e9)]
Demand = RequestsPerSecond | Literal["measured"]
RateOfReplica = Rate | Annotated[dict[TypeName, Rate], Field(min_length=1, max_length=16)]
HEADROOM_MAX = 10


class CheckOfService(Request):
    """How it is found out whether a replica answers."""

    path: CheckPath = Field("", description="A GET of this path, to be answered below 400; empty: a TCP connection.")
    interval_s: float = Field(1.0, ge=0.1, le=3600, description="Seconds from one check to the next.")
    timeout_s: float = Field(1.0, ge=0.1, le=600, description="Seconds in which it has to be answered.")
    failures: int = Field(3, ge=1, le=1000, description="So many bad answers in a row mean that it fails.")


class DemandOfService(Request):
    """How the number of a service's replicas follows its demand; without `demand` it is `replicas`."""

    demand: Demand | None = Field(None, description="Requests per second, or `measured` by the replicas.")
    rate: RateOfReplica | None = Field(
        None,
        description="Requests/s of one replica within its goal, or by type.",
    )
    headroom: float = Field(
        0.2,
        ge=0,
        le=HEADROOM_MAX,
        description="Part of the demand that the replicas can answer beyond it; 0.2: a fifth.",
    )
    down_after_s: float = Field(
        300.0, ge=0, le=86_400, description="Seconds that a lower demand lasts before replicas become fewer."
    )
    metrics: MetricsPath | None = Field(None, description="Path of its metrics, in the text format of Prometheus.")
    requests_metric: MetricName | None = Field(
        None, description="Name of the counter of requests there; all its labels are added up."
    )
    queue_metric: MetricName | None = Field(
        None, description="Name of a gauge of requests that wait. Default: none is read."
    )

    @model_validator(mode="after")
    def _has_what_it_needs(self) -> Self:
        if (self.demand is None) != (self.rate is None):
            raise ValueError("demand and rate go together: requests per second in all, and those of one replica")
        if (self.metrics is None) != (self.requests_metric is None) or (self.queue_metric and not self.metrics):
            raise ValueError("give metrics and requests_metric: the path, and the name of the counter that is there")
        if self.demand is None and self.metrics is not None:
            raise ValueError("metrics are read for a demand; add demand, such as measured, and rate")
        if self.demand == "measured" and self.metrics is None:
            raise ValueError("a measured demand needs metrics and requests_metric: where replicas count their requests")
        return self


class ServiceOfJob(DemandOfService):
    """The part of a submission that says what an inference service needs."""

    model_config = example(
        port=0, readiness={"path": "/ready"}, liveness={"path": "/healthz"}, replicas=2, replicas_max=4
    )

    port: int = Field(
        ge=0,
        le=65_535,
        description="Port that a replica listens on; 0: a free one, in GAVEL_REPLICA_PORT and put for"
        " {GAVEL_REPLICA_PORT} in argv.",
    )
    readiness: CheckOfService = Field(description="A replica that passes it is an endpoint.")
    liveness: CheckOfService | None = Field(
        None, description="One that fails it is replaced. Default: only when its program ends."
    )
    replicas: int = Field(
        1, ge=0, le=REPLICAS_MAX, description="How many replicas it has now; with a demand, until that is known."
    )
    replicas_min: int | None = Field(None, ge=0, le=REPLICAS_MAX, description="The fewest. Default: as many as now.")
    replicas_max: int | None = Field(None, ge=1, le=REPLICAS_MAX, description="The most. Default: as many as now.")
    min_available: int | None = Field(
        None,
        ge=0,
        le=REPLICAS_MAX,
        description="Ready through every planned act. Default: one less than now, at least 1.",
    )
    spread_by: LabelKey | None = Field(
        None, description="`node`, or a label of nodes such as rack: the replicas are apart there. Default: anywhere."
    )
    spread_hard: bool = Field(False, description="A replica waits rather than join another one there.")
    surge: int = Field(1, ge=0, le=REPLICAS_MAX, description="Replicas more than `replicas`, while some are replaced.")
    drain_s: float = Field(10.0, ge=0, le=3600, description="Seconds that a replica which leaves has for its requests.")
    rollout_s: float = Field(
        600.0,
        ge=1,
        le=86_400,
        description="Seconds until a new version is given up.",
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        least, most = self.least, self.most
        if not least <= self.replicas <= most:
            raise ValueError(f"replicas is {self.replicas}; give one from {least} (replicas_min) to {most}")
        if self.min_available is not None and self.min_available > self.replicas:
            raise ValueError(f"min_available is {self.min_available}; at most replicas ({self.replicas}) can be ready")
        if self.surge == 0 and self.available >= max(1, self.replicas):
            raise ValueError("surge 0 leaves no way to replace a replica; lower min_available, or give surge 1")
        return self

    @property
    def least(self) -> int:
        """Return the fewest replicas."""
        return self.replicas if self.replicas_min is None else self.replicas_min

    @property
    def most(self) -> int:
        """Return the most replicas."""
        return max(1, self.replicas) if self.replicas_max is None else self.replicas_max

    @property
    def available(self) -> int:
        """Return how many replicas are ready through every planned act."""
        return min(self.replicas, max(1, self.replicas - 1)) if self.min_available is None else self.min_available


class ServiceSubmit(Request):
    """The part of a submission that makes the job an inference service."""

    service: ServiceOfJob | None = Field(None, description="What an inference service needs besides its program.")


class VersionOfService(Request):
    """What a new version of a service's program has; what is left out stays. `env` replaces all variables."""

    model_config = example(argv=["python", "serve.py", "--model", "v2"])

    argv: list[Argument] | None = Field(None, min_length=1, max_length=256)
    env: dict[VariableName, VariableValue] | None = Field(None, max_length=128)
    image: ImageName | None = None

    @model_validator(mode="after")
    def _says_what(self) -> Self:
        if self.argv is None and self.env is None and self.image is None:
            raise ValueError("say what the new version has: argv, env or image")
        return self


class ServicePatch(Request):
    """What to change of a service."""

    replicas: int | None = Field(
        None, ge=0, le=REPLICAS_MAX, description="Of a service, from its replicas_min to its replicas_max."
    )
    replicas_min: int | None = Field(None, ge=0, le=REPLICAS_MAX, description="The fewest that a service has.")
    replicas_max: int | None = Field(None, ge=1, le=REPLICAS_MAX, description="The most that a service has.")
    demand: Demand | None = Field(None, description="Of a service with a rate: requests/s, or `measured`.")
    rate: RateOfReplica | None = Field(None, description="Of a service with a rate: the new one.")
    headroom: float | None = Field(None, ge=0, le=HEADROOM_MAX, description="Of a service with a rate: the new one.")
    new_version: VersionOfService | None = Field(None, description="Of a service: what its replicas run from now on.")


class CheckView(View):
    """A check of a replica."""

    path: str
    interval_s: float
    timeout_s: float
    failures: int


class DemandView(View):
    """How the number of a service's replicas follows its demand; all in requests per second."""

    stated: Demand = Field(description="What was stated; `measured`: what the replicas count.")
    rates: dict[str, float] = Field(
        description="What one replica answers within its latency goal, by accelerator type; the empty name: on any."
    )
    headroom: float
    down_after_s: float
    metrics: str = Field(description="Path where replicas tell their metrics; empty: nowhere.")
    requests_metric: str
    queue_metric: str
    now: float | None = Field(description="The demand, as it was last known; null: it never was.")
    forecast: float | None = Field(description="What is expected within the next `lead_s` seconds, or is there now.")
    lead_s: float = Field(description="Seconds from the making of a replica to its being ready, as measured.")
    needed: float = Field(description="What the replicas are to answer: headroom and the recent past included.")
    replicas: dict[str, int] | None = Field(
        description="How many are wanted, by accelerator type; null: the demand is not known yet."
    )
    answered: float = Field(description="What so many replicas answer; less than `needed`: no more can be.")
    bound: Literal["", "replicas_min", "replicas_max", "room", "down_after_s", "readiness"] = Field(
        description="What keeps the number from being what the demand alone would ask for; empty: nothing."
    )


class ServiceView(View):
    """A service: what was submitted, and how far it is."""

    port: int
    readiness: CheckView
    liveness: CheckView | None
    replicas: int = Field(description="How many it is to have.")
    replicas_min: int
    replicas_max: int
    min_available: int
    spread_by: str
    spread_hard: bool
    surge: int
    drain_s: float
    rollout_s: float
    version: int = Field(description="Grows with each change of the program.")
    stable_version: int = Field(description="The newest of which all replicas were ready at once; 0: none was yet.")
    refused_version: int = Field(description="The newest that was given up; 0: none was.")
    replicas_now: int = Field(description="Those there are, without those that leave.")
    ready: int = Field(description="Those that are endpoints.")
    demand: DemandView | None = Field(description="null: the number of replicas is stated.")


class ServiceShown(View):
    """What a job shows of its service, or of the service that it is a replica of."""

    service: ServiceView | None = Field(description="null: the job is no service.")
    replica_of: str | None = Field(description="The service whose replica the job is; null: of none.")
    replica_version: int | None = Field(description="The version of the service's program that the replica runs.")
    endpoint: str = Field(description="HOST:PORT of a replica that is ready; empty: it is none, or not ready.")


class EndpointView(View):
    """Where a replica that is ready is reached."""

    job_id: str
    address: str = Field(description="HOST:PORT.")
    version: int


class EndpointList(View):
    """The replicas of a service that are ready and do not leave, oldest first."""

    items: list[EndpointView]


class TargetGroup(View):
    """One replica in the form of Prometheus' HTTP service discovery."""

    targets: list[str]
    labels: dict[str, str]
