"""Settings: each limit has a name, a unit and a bound. TOML below environment (`GAVEL_ROUND_DURATION_S=5`)."""

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, SecretStr, ValidationError, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, TomlConfigSettingsSource

from gavel.config_checks import REGION, check_backends, check_beside, check_public_url, check_tls, connected, renamed
from gavel.config_sections import KubernetesSection, OidcSettings, RegionsSection, SlurmSection
from gavel.types.job_uids import checked_uids

__all__ = ["KubernetesSection", "OidcSettings", "RegionsSection", "Settings", "SlurmSection"]

CONFIGURATION = "gavel.toml"


class Settings(BaseSettings):
    """Everything an operator may set; `gavel.toml` in the working directory, overridden by the environment.

    A name ends with what the value is: `_dir` a folder, `_file` a file, `_url` an address, `_s` seconds, `_bytes`,
    `_fraction` of a whole between 0 and 1, `_per_s` so many a second. Any other number counts something.
    """

    model_config = SettingsConfigDict(
        env_prefix="GAVEL_", env_nested_delimiter="__", toml_file=CONFIGURATION, extra="forbid"
    )

    state_dir: Path = Field(Path(".gavel"), description="Database, gangs, checkpoints and logs live below this folder.")
    database_url: str | None = Field(None, description="SQLAlchemy URL; default: SQLite in the state folder.")
    host: str = Field("127.0.0.1", description="Address the API listens on.")
    port: int = Field(8080, ge=0, le=65535, description="Port the API listens on; 0: a free one.")
    public_url: str = Field("", max_length=300, description="Address that jobs reach the API by; default: this one's.")

    allowed_hosts: str = Field(
        "",
        max_length=4000,
        description="Names of the service that requests may use, *.example.org for all below; default: any.",
    )
    trusted_proxies: str = Field(
        "127.0.0.1", max_length=1000, description="Proxies whose X-Forwarded headers count; addresses with commas."
    )
    tls_cert_file: Path | None = Field(None, description="Certificate chain to serve https with, in PEM form.")
    tls_key_file: Path | None = Field(None, description="Private key of that certificate.")

    oidc: OidcSettings | None = Field(
        None, description="OpenID provider at which people may log in; needs public_url. Default: tokens only."
    )

    virtual_nodes: int = Field(1, ge=1, le=64, description="Nodes this machine poses as; for trying things out.")
    backend: Literal["local", "ray", "slurm", "kubernetes", "simulated", "several"] = Field(
        "local",
        description="Run gangs on this machine, on a Ray, Slurm or Kubernetes cluster, not at all (simulated nodes), "
        "or on several of these: `backends`.",
    )
    backends: dict[Annotated[str, Field(pattern=REGION)], dict[str, Any]] = Field(
        default_factory=dict, description="Backends by region, each with settings of its own, where there are several."
    )
    simulated_nodes: dict[str, Annotated[int, Field(ge=0, le=100_000)]] = Field(
        {"v100": 4, "p100": 4, "k80": 4}, description="Nodes by accelerator type, where the backend is simulated."
    )
    simulated_workers_per_node: int = Field(1, ge=1, le=64, description="Accelerators of each simulated node.")
    simulated_report_period_s: float = Field(
        10.0, ge=0, le=86_400, description="How often a simulated gang reports its progress."
    )
    simulated_checkpoint_period_s: float = Field(
        600.0, ge=0, le=86_400, description="How often a simulated gang saves a checkpoint, besides when it is stopped."
    )
    ray_address: str = Field("auto", max_length=300, description="The Ray cluster: auto, HOST:PORT or ray://HOST:PORT.")
    ray_checkpoint_dir: str = Field(
        "", max_length=500, description="Folder that all Ray nodes see, or its fsspec URL; default: below state_dir."
    )
    ray_node_dir: str = Field("~/.gavel-node", max_length=300, description="Where each Ray node keeps its gangs.")
    ray_report_period_s: float = Field(
        0.1, ge=0.001, le=10, description="The cluster's raylet_report_resources_period; 0.01 starts gangs sooner."
    )

    slurm: SlurmSection = Field(
        default_factory=lambda: SlurmSection.model_validate({}),
        description="The Slurm cluster, where that is the backend.",
    )
    kubernetes: KubernetesSection = Field(
        default_factory=lambda: KubernetesSection.model_validate({}),
        description="The Kubernetes cluster, where that is the backend.",
    )

    node_labels: dict[str, dict[str, str]] = Field(
        default_factory=dict, description="Labels by node, as {'host-1': {'disk': 'nvme'}}; jobs may require them."
    )
    accelerator_memory_bytes: dict[str, int] = Field(
        default_factory=dict, description="Memory of an accelerator by type, where the backend does not report it."
    )

    regions: RegionsSection | None = Field(
        None, description="Tell the regions of nodes apart, and move jobs between them. Default: all nodes are alike."
    )

    policy: str = Field("hierarchical", max_length=200, description="Cluster-wide policy: a name, with ?parameters.")
    policy_dir: Path | None = Field(None, description="Folder of your own policy files, which the service executes.")
    round_duration_s: float = Field(10.0, ge=0.5, le=86_400, description="Length of a round.")
    planner: Literal["lag", "published", "published_shuffled"] = Field(
        "lag",
        description="Who goes first: the largest lag, or the published ratio (types in a fixed or shuffled order).",
    )
    minimum_run_s: float = Field(0.0, ge=0, le=86_400, description="A gang that was started stays at least so long.")
    start_limit_s: float = Field(
        600.0, ge=0, le=86_400, description="A gang stays until it trains, and can keep it, but no longer than this."
    )
    warm_starts: bool = Field(
        True, description="Programs of the next round load their libraries before their lease begins."
    )
    cpu_workers: str = Field(
        "auto",
        pattern=r"^(auto|all|none|[0-9]{1,4})$",
        description="CPU workers of this machine: all, none, or at most so many; auto: none beside GPUs, else all.",
    )
    cpu_workers_per_core: int = Field(
        0, ge=0, le=64, description="CPU workers that share a core; 0: two where cores are few, else one."
    )
    warm_memory_bytes: int = Field(
        1 << 30, ge=0, le=1 << 40, description="Free memory that each process started early needs; else it is not."
    )
    solve_on: Literal["change", "event"] = Field(
        "change", description="Solve anew when what the policy reads changed, or on arrivals, ends and new workers."
    )
    space_sharing: bool = Field(
        True, description="Jobs may share workers, two and two, where that pays and both fit into their memory."
    )
    pair_trials: int = Field(
        4, ge=0, le=100, description="Unmeasured pairs of kinds that a round may hope the best of."
    )
    allocation_interval_s: float = Field(0.0, ge=0, le=86_400, description="Least time from one solve to the next.")
    planning_lead_fraction: float = Field(0.25, ge=0.0, le=0.9, description="Part of a round to decide the next in.")
    tick_s: float = Field(0.1, ge=0.01, le=10, description="How often the cluster is observed while gangs run.")
    idle_tick_s: float = Field(1.0, ge=0.01, le=60, description="The same while idle; a submit wakes the loop.")
    solve_time_limit_s: float = Field(5.0, gt=0, le=3_600, description="Most a solve may take (and 20 % of a round).")
    solve_memory_limit_bytes: int = Field(4 << 30, ge=1 << 29, le=1 << 40, description="Most the solver may map.")
    leader_lease_s: float = Field(
        10.0, ge=0.5, le=600, description="Longest silence of a leading scheduler before another process takes over."
    )
    stall_limit_s: float = Field(
        120.0,
        ge=0.1,
        le=86_400,
        description="Longest time without a completed tick; then a leader gives way to others.",
    )
    what_if_time_limit_s: float = Field(30.0, ge=1, le=600, description="Most that a what-if or a preview may take.")
    lease_grace_s: float = Field(5.0, ge=0.1, le=600, description="From lease end to the kill of what still runs.")
    profiling_workers_fraction: float = Field(0.5, ge=0, le=1, description="Part of a type that may profile at once.")
    profiling_budget_fraction: float = Field(
        0.01, ge=0, le=1, description="Part of the accelerator time of any window that may go to profiling."
    )
    profiling_window_s: float = Field(86_400.0, gt=0, le=31_536_000, description="The window; it may go all at once.")
    price_moves: bool = Field(True, description="Move a gang only if that pays for what starts and stops cost so far.")
    backfill: bool = Field(True, description="Give workers that get free during a round to waiting jobs at once.")
    minimum_lease_fraction: float = Field(
        0.2, ge=0, le=1, description="Part of a round that must be left for a gang to be started in its middle."
    )
    lost_retries: int = Field(10, ge=0, le=10_000, description="Gangs a job may lose in a row; the next is its end.")
    lost_backoff_s: float = Field(1.0, ge=0, le=3_600, description="Pause after a second loss; doubles to an hour.")
    job_log_bytes: int = Field(4 << 20, ge=4096, le=1 << 30, description="Log kept per job; older lines go first.")
    log_requests: Literal["none", "failed", "all"] = Field(
        "failed", description="Which requests to the API get a line in the log."
    )
    telemetry_url: str = Field(
        "", max_length=300, description="OTLP/HTTP collector of traces, as http://host:4318; default: no traces."
    )
    keep_rounds: int = Field(2_000, ge=2, le=10_000_000, description="Rounds kept with their problems; older ones go.")
    keep_events_s: float = Field(
        90 * 86_400.0, ge=3_600, le=3e9, description="How long histories of jobs and decisions of rounds are kept."
    )
    code_bytes: int = Field(
        500_000_000, ge=0, le=1 << 40, description="Largest code version: the files that a job takes from its caller."
    )
    user_code_bytes: int = Field(
        20_000_000_000, ge=0, le=1 << 50, description="Code versions of one user together; the same chunk counts once."
    )
    keep_code_s: float = Field(
        30 * 86_400.0,
        ge=3_600,
        le=3e9,
        description="How long code, environments, and the folders in which jobs worked, stay after the last use.",
    )
    output_bytes: int = Field(
        10_000_000_000, ge=0, le=1 << 50, description="Most that a job may keep in its output folder; 0: any size."
    )
    keep_outputs_s: float = Field(
        30 * 86_400.0, ge=3_600, le=3e9, description="How long the output folder of a job stays after its end."
    )
    prices_usd_per_hour: dict[str, Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]] = Field(
        {}, description="Price of a worker by accelerator type, USD an hour; 1 for a type that is not named."
    )
    keep_logs_s: float = Field(90 * 86_400.0, ge=0, le=3e9, description="How long a job's log stays after its end.")
    keep_checkpoints_s: float = Field(30 * 86_400.0, ge=0, le=3e9, description="How long its checkpoints stay then.")
    keep_jobs_s: float = Field(
        365 * 86_400.0, ge=0, le=3e9, description="How long a job stays after its end, with all that it has left."
    )
    session_s: float = Field(
        7 * 86_400.0, ge=60, le=3e9, description="How long a browser stays logged in to the dashboard."
    )
    keep_keys_s: float = Field(
        7 * 86_400.0, ge=60, le=3e9, description="How long an Idempotency-Key answers with the job that it made."
    )
    clear_interval_s: float = Field(
        600.0, ge=1, le=86_400, description="Pause from one deletion of what is no longer kept to the next."
    )
    user_disk_bytes: int = Field(
        0, ge=0, le=1 << 60, description="Disk that the jobs of a user may fill before no other one starts; 0: any."
    )
    disk_bytes: int = Field(
        0, ge=0, le=1 << 60, description="Disk that all jobs may fill before no other one starts; 0: any."
    )
    disk_reserve_bytes: int = Field(
        1_000_000_000,
        ge=0,
        le=1 << 60,
        description="Free disk below which no gang is started; at most 5 % of the disk.",
    )
    secrets_key_file: Path | None = Field(
        None, description="Key that secrets are encrypted with; default: secrets.key in the state folder."
    )
    image_command: str = Field(
        "podman --log-level error --runtime runc --cgroup-manager cgroupfs",
        min_length=1,
        max_length=500,
        description="Podman, which runs jobs in images, with its own options; where it is not, Apptainer does.",
    )
    image_options: str = Field(
        "--network host",
        max_length=1000,
        description="Options of `podman run` for every job in an image; Apptainer has none.",
    )
    isolation: Literal["auto", "sandbox", "none"] = Field(
        "auto",
        description="Run jobs in a sandbox: where a node can make one, always (other nodes are not used), or never.",
    )
    sandbox_folders: str = Field(
        "",
        max_length=4000,
        pattern=r"^(/[^\s:]*(:r[ow])?(\s+|$))*$",
        description="What every job sees in its sandbox: folders, PATH or PATH:rw, separated by spaces.",
    )
    job_folders: str = Field(
        "",
        max_length=4000,
        pattern=r"^(/\S*(\s+|$))*$",
        description="Where jobs may name files and folders: folders, {user} for their user, / for anywhere; default: "
        "nowhere but in what is their own, and anywhere for the jobs of the operator.",
    )
    job_users: Annotated[str, AfterValidator(checked_uids)] = Field(
        "", max_length=21, description="Uids FIRST-LAST that jobs run as, one for each user; default: as the service."
    )
    setup_limit_s: float = Field(3_600.0, ge=1, le=86_400, description="Most that the setup of a job may take.")
    data_cache_bytes: int = Field(
        50_000_000_000, ge=0, le=1 << 50, description="Most that fetched inputs of jobs take on a node together."
    )
    data_limit_s: float = Field(21_600.0, ge=1, le=604_800, description="Most that the fetch of an input may take.")
    data_hosts: str = Field(
        "*", max_length=4000, description="Hosts that inputs are fetched from, * for any part; separated by spaces."
    )
    git_schemes: str = Field(
        "https http ssh",
        max_length=100,
        pattern=r"^((https|http|ssh|git|file)(\s+|$))*$",
        description="Schemes with which git fetches code; file: repositories on the machine of the service.",
    )
    git_hosts: str = Field(
        "*",
        max_length=4000,
        description="Hosts that code is fetched from with git, * for any part; separated by spaces.",
    )
    git_known_hosts: str = Field("/etc/ssh/ssh_known_hosts", pattern=r"^/[\w./-]+$", description="Keys of ssh hosts.")
    git_limit_s: float = Field(600.0, ge=1, le=86_400, description="Most that a fetch of code with git may take.")
    notification_webhook_url: str = Field(
        "",
        max_length=500,
        description="Where notifications of all users are posted, an http or https URL; default: nowhere.",
    )
    notification_webhook_secret: SecretStr = Field(
        SecretStr(""), max_length=500, description="Key that webhooks are signed with: text, or whsec_ and Base64."
    )
    notification_hosts: str = Field(
        "", max_length=2000, description="Hosts that users may send webhooks to, separated by spaces; default: none."
    )
    notification_email_domains: str = Field(
        "",
        max_length=2000,
        description="Domains of e-mail addresses that users may set themselves, separated by spaces.",
    )
    notification_retry_s: float = Field(
        86_400.0, ge=0, le=3e7, description="How long a notification is tried again before it is given up."
    )
    smtp_host: str = Field("", max_length=300, description="Mail server for notifications; default: no e-mail.")
    smtp_port: int = Field(587, ge=1, le=65535, description="Port of the mail server.")
    smtp_security: Literal["starttls", "tls", "none"] = Field(
        "starttls", description="Encrypt after connecting, from the beginning, or not at all."
    )
    smtp_user: str = Field("", max_length=300, description="Login at the mail server; default: none.")
    smtp_password: SecretStr = Field(SecretStr(""), max_length=500, description="Its password.")
    smtp_from: str = Field("", max_length=300, description="Sender of e-mail; default: gavel@ and the mail server.")
    smtp_ca_file: Path | None = Field(
        None, description="Certificates to check the mail server by, in PEM form; default: those of the system."
    )
    body_bytes: int = Field(256 << 10, ge=1024, le=16 << 20, description="Largest request body.")
    requests_per_user_per_s: float = Field(
        200.0, ge=0.1, le=1e6, description="Requests a user may send per second, twice as many at once; operators any."
    )
    unfinished_jobs_per_user: int = Field(10_000, ge=1, le=1_000_000, description="Jobs a user may have unfinished.")

    @model_validator(mode="before")
    @classmethod
    def _refuse_former_names(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Return what was given; raise ValueError if it uses a former name, in the environment too."""
        return renamed(given)

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        check_tls(self.tls_cert_file, self.tls_key_file)
        check_backends(self.backend, self.backends)
        check_public_url(self.public_url, has_oidc=self.oidc is not None, has_connections=self.orders_dir is not None)
        if self.backends:
            check_beside(self.by_region)
            self.regions = self.regions or RegionsSection.model_validate({})
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments above environment above TOML."""
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls)

    @property
    def by_region(self) -> "dict[str, Settings]":
        """Return the settings of each backend by its region; where there is only one, these by ""."""
        return {name: self._of_backend(name, given) for name, given in self.backends.items()} or {"": self}

    def _of_backend(self, region: str, given: dict[str, Any]) -> "Settings":
        try:
            own = _Given.model_validate({"public_url": self.public_url, **given})
        except ValidationError as error:
            place = ".".join(map(str, error.errors()[0]["loc"]))
            raise ValueError(f"backends.{region}.{place}: {error.errors()[0]['msg']}") from None
        return self.model_copy(update={"backends": {}, **{name: getattr(own, name) for name in given}})

    @property
    def lease_of_leader_s(self) -> float:
        """Return the leader's lease in seconds: at most a round, so that the next leader plans within two rounds."""
        return min(self.leader_lease_s, max(2.0, self.round_duration_s))

    @property
    def shared_checkpoints(self) -> str:
        """Return the folder of all checkpoints that nodes see, or its URL; "" if they are in the state folder."""
        nodes = {"slurm": self.slurm, "kubernetes": self.kubernetes}.get(self.backend)
        return nodes.checkpoints if nodes else self.ray_checkpoint_dir if self.backend == "ray" else ""

    @property
    def orders_dir(self) -> Path | None:
        """Return the folder of orders that nodes get over connections; None where they read them in files, or none."""
        return self.state_dir.resolve() / "orders" if connected(self.by_region) else None

    @property
    def checkpoints_dir(self) -> Path | None:
        """Return the folder of all checkpoints; None if they are at a URL."""
        chosen = self.shared_checkpoints
        return None if "://" in chosen else Path(chosen or self.state_dir / "checkpoints").resolve()

    @property
    def outputs_dir(self) -> Path | None:
        """Return the folder of all jobs' output folders; None if checkpoints are at a URL."""
        checkpoints = self.checkpoints_dir
        if checkpoints is None:
            return None
        return checkpoints / "_outputs" if self.shared_checkpoints else self.state_dir.resolve() / "outputs"

    @property
    def url(self) -> str:
        """Return the SQLAlchemy URL of the database."""
        return self.database_url or f"sqlite:///{self.state_dir.resolve() / 'gavel.db'}"


class _Given(Settings):
    """Settings from what is given only."""

    model_config = SettingsConfigDict(toml_file=None)

    @classmethod
    def settings_customise_sources(
        cls, settings_cls: type[BaseSettings], init_settings: PydanticBaseSettingsSource, *others: Any, **sources: Any
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments only."""
        return (init_settings,)
