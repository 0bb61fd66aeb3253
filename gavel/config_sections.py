"""Sections of the settings: each a table of `gavel.toml`, or `GAVEL_SECTION__NAME` in the environment."""

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator


class OidcSettings(BaseModel):
    """An OpenID provider at which people log in: the section `oidc`, or `GAVEL_OIDC__CLIENT_ID` and so on."""

    model_config = ConfigDict(extra="forbid")

    issuer_url: str = Field(
        pattern=r"^(https://|http://(127\.0\.0\.1|localhost|\[::1\])(:|/|$))",
        max_length=300,
        description="The provider, as it names itself; https, except on this machine.",
    )
    client_id: str = Field(min_length=1, max_length=300, description="What the provider calls this service.")
    client_secret: SecretStr = Field(
        SecretStr(""), max_length=1000, description="Its secret there; default: the provider asks for none."
    )
    client_secret_file: Path | None = Field(None, description="File with that secret, read at each login.")
    provider_name: str = Field(
        "single sign-on", min_length=1, max_length=60, description="What the login page calls the provider."
    )
    scopes: str = Field(
        "openid profile email",
        pattern=r"^(.* )?openid( .*)?$",
        max_length=300,
        description="What to ask the provider for, separated by spaces; openid is one of them.",
    )
    name_claim: str = Field(
        "preferred_username", min_length=1, max_length=100, description="Claim that users of this service are named by."
    )
    groups_claim: str = Field(
        "groups", min_length=1, max_length=100, description="Claim with a person's groups; dots lead into objects."
    )
    tiers: dict[str, list[str]] = Field(
        default_factory=dict, description="Tiers by group, as {'research': ['gold']}; * is everybody."
    )
    operator_groups: list[str] = Field(default_factory=list, description="Groups whose members are operators.")
    viewer_groups: list[str] = Field(
        default_factory=list, description="Groups whose members read what users may read, and change nothing."
    )

    @model_validator(mode="after")
    def _check_secret(self) -> Self:
        if self.client_secret.get_secret_value() and self.client_secret_file:
            raise ValueError("client_secret and client_secret_file are two ways to give one secret: choose one")
        return self

    def secret(self) -> str:
        """Return the client's secret; empty if it has none. Raises OSError if its file cannot be read."""
        if self.client_secret_file:
            return self.client_secret_file.read_text().strip()
        return self.client_secret.get_secret_value()


class NodesSection(BaseModel):
    """How orders reach the nodes of a cluster on which each gang has an allocation of its own."""

    model_config = ConfigDict(extra="forbid")

    orders: Literal["files", "connection"] = Field(
        "files",
        description="How orders reach nodes: in files of shared_dir, or over connections of nodes to public_url.",
    )
    ca_file: Path | None = Field(
        None, description="Certificates to check public_url by, in PEM form; default: those of the nodes."
    )
    shared_dir: str
    checkpoint_dir: str

    @property
    def checkpoints(self) -> str:
        """Return the folder of all checkpoints, or its URL."""
        return self.checkpoint_dir or str(Path(self.shared_dir).expanduser() / "checkpoints")

    @property
    def needs_shared_dir(self) -> bool:
        """Return False if service and nodes share nothing by files: neither orders nor checkpoints."""
        return self.orders == "files" or "://" not in self.checkpoints


class SlurmSection(NodesSection):
    """A Slurm cluster to run gangs on: the section `slurm`, or `GAVEL_SLURM__PARTITION` and so on."""

    shared_dir: str = Field(
        "~/.gavel-slurm",
        max_length=500,
        description="Folder that this machine and all nodes see under the same path: orders, checkpoints.",
    )
    checkpoint_dir: str = Field(
        "", max_length=500, description="Such a folder for checkpoints, or its fsspec URL; default: below shared_dir."
    )
    node_dir: str = Field("~/.gavel-node", max_length=300, description="Where each node keeps its gangs.")
    partition: str = Field("", max_length=100, description="Partition to run in; default: Slurm's default one.")
    account: str = Field("", max_length=100, description="Account of allocations; default: the user's default one.")
    accounts: dict[str, str] = Field(
        default_factory=dict, description="Account by tier, as {'gold': 'physics'}; other tiers have the account above."
    )
    gres: list[str] = Field(["gpu"], min_length=1, description="Generic resources that are accelerators.")
    type_features: list[str] = Field(
        default_factory=list, description="Features that name the type of accelerators that have none in Slurm."
    )
    limit_s: float = Field(
        86_400.0,
        ge=0,
        le=3e7,
        description="Time limit of allocations; 0: that of leases, extended in place, for operators of Slurm only.",
    )
    placement: Literal["gavel", "slurm"] = Field(
        "gavel",
        description="Who chooses the nodes of a gang: gavel pins them, or slurm, which is told types and numbers only.",
    )
    pending_limit_s: float = Field(
        30.0, ge=5, le=86_400, description="How long allocations may wait in Slurm's queue before they are given up."
    )
    cpus_per_worker: int = Field(0, ge=0, le=1024, description="Cores for each worker; 0: its share of the node.")
    options: str = Field("", max_length=1000, description="More options of sbatch, as --qos=long.")


class KubernetesSection(NodesSection):
    """A Kubernetes cluster to run gangs on: the section `kubernetes`, or `GAVEL_KUBERNETES__NAMESPACE` and so on."""

    kubeconfig: str = Field(
        "", max_length=500, description="File that says where the cluster is; default: kubectl's, or the service's pod."
    )
    context: str = Field("", max_length=300, description="Context of that file; default: its current one.")
    namespace: str = Field(
        "default", pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$", description="Namespace of the pods of gangs."
    )
    shared_dir: str = Field(
        "/gavel", max_length=500, description="Where service and pods see the shared volume: orders, checkpoints."
    )
    shared_volume: dict[str, Any] = Field(
        {"persistentVolumeClaim": {"claimName": "gavel"}},
        description="The volume source that pods mount there; all nodes see the same.",
    )
    checkpoint_dir: str = Field(
        "", max_length=500, description="Another such folder for checkpoints, or their fsspec URL."
    )
    node_dir: str = Field(
        "/var/lib/gavel", max_length=300, description="Where pods keep what their gang needs on the node."
    )
    node_volume: dict[str, Any] = Field(
        {"emptyDir": {}},
        description="The volume source mounted there; a hostPath keeps code and environments between gangs.",
    )
    image: str = Field(
        "",
        max_length=500,
        description="Image with Gavel, for jobs that name none; it also brings Gavel into images of jobs.",
    )
    python: str = Field("python3", max_length=300, description="Interpreter with Gavel in that image.")
    resources: list[str] = Field(
        [
            "nvidia.com/gpu",
            "amd.com/gpu",
            "google.com/tpu",
            "gpu.intel.com/i915",
            "gpu.intel.com/xe",
            "habana.ai/gaudi",
            "aws.amazon.com/neuroncore",
            "huawei.com/Ascend910",
        ],
        min_length=1,
        description="Extended resources that are accelerators, besides NVIDIA's MIG devices.",
    )
    node_selector: dict[str, str] = Field(default_factory=dict, description="Labels that nodes of gangs must have.")
    tolerations: list[dict[str, Any]] = Field(
        default_factory=list, description="Taints that pods tolerate, as Kubernetes writes tolerations."
    )
    volumes: list[dict[str, Any]] = Field(default_factory=list, description="More volumes of pods.")
    mounts: list[dict[str, Any]] = Field(default_factory=list, description="Where pods mount those volumes.")
    pull_secrets: list[str] = Field(default_factory=list, description="Names of secrets with which images are pulled.")
    service_account: str = Field(
        "default", max_length=253, description="Service account of pods; they get no token of it."
    )
    scheduler: str = Field(
        "", max_length=253, description="Scheduler that binds pods, such as one for gangs; default: the cluster's own."
    )
    bind_limit_s: float = Field(
        30.0, ge=1, le=86_400, description="How long pods may wait to be bound before another place is looked for."
    )
    start_limit_s: float = Field(
        600.0, ge=1, le=86_400, description="How long bound pods may take to start, the pull of their image included."
    )
    cordons: bool = Field(
        True, description="Whether nodes that an operator cordons or drains here are cordoned in Kubernetes, too."
    )
    training_jobs: Literal["all", "mapped", "off"] = Field(
        "all",
        description="Whose TrainingJob objects are submitted, where the cluster has that kind: those of all namespaces,"
        " of those in namespace_users, or of none.",
    )
    namespace_users: dict[str, str] = Field(
        default_factory=dict, description="User whose jobs a namespace's objects are; default: the namespace's name."
    )
    namespace_tiers: dict[str, str] = Field(
        default_factory=dict, description="Tier of a namespace's jobs that name none; default: the user's first."
    )


class LinkSection(BaseModel):
    """What copying from one region to another costs: an entry of `regions.links`, named `eu->us`."""

    model_config = ConfigDict(extra="forbid")

    gbit_s: float = Field(1.0, gt=0, le=1e6, description="Bandwidth, Gbit/s.")
    usd_per_gb: float = Field(0.0, ge=0, le=1e6, description="Egress: price of each GB that leaves the first region.")


class RegionsSection(BaseModel):
    """Regions of the cluster, and what moves between them cost: the section `regions`, or `GAVEL_REGIONS__GBIT_S`."""

    model_config = ConfigDict(extra="forbid")

    gbit_s: float = Field(1.0, gt=0, le=1e6, description="Bandwidth from any region to any other, Gbit/s.")
    usd_per_gb: float = Field(0.0, ge=0, le=1e6, description="Egress: price of each GB that leaves a region.")
    links: dict[Annotated[str, Field(pattern=r"^[^@\s]{1,63}->[^@\s]{1,63}$")], LinkSection] = Field(
        default_factory=dict, description="Links that differ, as {'eu->us': {'gbit_s': 10, 'usd_per_gb': 0.02}}."
    )
    margin_fraction: float = Field(
        0.25, ge=0, le=10, description="A move has to gain so much more than staying and its price."
    )
    horizon_s: float = Field(
        21_600.0, ge=60, le=3e7, description="How far ahead a move has to pay, or until the job ends if that is sooner."
    )
    interval_s: float = Field(600.0, ge=0, le=86_400, description="Time from one look at moves to the next.")
    leave_after_s: float = Field(
        1800.0, ge=0, le=3e7, description="Jobs may leave their region once no node of it could be used for so long."
    )

    def link(self, origin: str, target: str) -> LinkSection:
        """Return what copying from one region to another costs."""
        stated = self.links.get(f"{origin}->{target}")
        return stated or LinkSection(gbit_s=self.gbit_s, usd_per_gb=self.usd_per_gb)
