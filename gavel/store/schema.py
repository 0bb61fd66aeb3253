"""The tables. A change here needs a migration beside it, and its revision at the end of `REVISIONS`."""

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Text,
    false,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

REVISIONS = (*(f"{number:04}" for number in range(1, 13)), "0014", "0015", "0017", "0018", "0019")
"""Every revision there has been, oldest first; the code works on the last."""

Serial = BigInteger().with_variant(Integer(), "sqlite")  # only INTEGER counts by itself in SQLite


class Base(DeclarativeBase):
    """Root of the tables; named constraints, so that later migrations can name them."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {int: BigInteger, float: Double, str: String}  # noqa: RUF012 - read by SQLAlchemy


class CountersRow(Base):
    """One row. `version` counts the scheduler's commits; `change` counts all commits, and orders them.

    `preemptions` counts gangs that rounds stopped or moved. `notified_event` is the last event that was looked at for
    notifications.
    """

    __tablename__ = "counters"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    version: Mapped[int]
    change: Mapped[int]
    preemptions: Mapped[int] = mapped_column(server_default="0")
    notified_event: Mapped[int] = mapped_column(server_default="0")


class LeadershipRow(Base):
    """One row, the leader of the scheduler; no row before anybody led. See leadership.py."""

    __tablename__ = "leadership"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    database: Mapped[str]
    generation: Mapped[int]
    holder: Mapped[str]
    beat: Mapped[int]
    lease_s: Mapped[float]


class JobRow(Base):
    """A job: what is queried as columns, the rest as JSON. `change` is the commit that wrote the row last."""

    __tablename__ = "jobs"
    __table_args__ = (
        Index(None, "state", "tier"),  # counting
        Index(None, "state", "id"),
        Index(None, "user_name", "id"),
        Index(None, "change"),
        Index(None, "array_id"),
        Index(None, "finished_at_s"),
    )
    id: Mapped[str] = mapped_column(primary_key=True)
    user_name: Mapped[str]
    tier: Mapped[str]
    state: Mapped[str]
    submitted_at_s: Mapped[float]
    version: Mapped[int]
    cancel_requested: Mapped[bool] = mapped_column(Boolean)
    pause_requested: Mapped[bool] = mapped_column(Boolean, server_default=false())
    array_id: Mapped[str | None]
    generation: Mapped[int]
    steps_done: Mapped[int]
    total_steps: Mapped[int]  # as submitted; 0: not said
    change: Mapped[int]
    finished_at_s: Mapped[float | None]  # as in `progress`; None: not ended
    spec: Mapped[str] = mapped_column(Text)
    progress: Mapped[str] = mapped_column(Text)


class JobLabelRow(Base):
    """A job's labels, for filtering."""

    __tablename__ = "job_labels"
    __table_args__ = (Index(None, "name", "value", "job_id"),)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[str]


class IdempotencyKeyRow(Base):
    """The job that a user's key made, further jobs if there were many, and the hash of the request's body."""

    __tablename__ = "idempotency_keys"
    __table_args__ = (Index(None, "job_id"),)
    user_name: Mapped[str] = mapped_column(primary_key=True)
    key: Mapped[str] = mapped_column(primary_key=True)
    body_hash: Mapped[str]
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"))
    more_job_ids: Mapped[list[str] | None] = mapped_column(JSON)


class EventRow(Base):
    """An event of a job; of the cluster where `job_id` is empty."""

    __tablename__ = "events"
    __table_args__ = (Index(None, "job_id", "sequence"),)
    sequence: Mapped[int] = mapped_column(Serial, primary_key=True)
    job_id: Mapped[str]
    at_s: Mapped[float]
    kind: Mapped[str]
    message: Mapped[str] = mapped_column(Text)
    round_index: Mapped[int | None]


class RoundRow(Base):
    """A round: its plan, and what it was decided on; both compressed JSON. `change` is its last commit."""

    __tablename__ = "rounds"
    __table_args__ = (Index(None, "change"),)
    round_index: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    plan: Mapped[bytes] = mapped_column(LargeBinary)
    decision: Mapped[bytes] = mapped_column(LargeBinary)
    change: Mapped[int] = mapped_column(server_default="0")


class PredictionRow(Base):
    """A job's predicted times, with intervals, and the actual times once it has completed."""

    __tablename__ = "predictions"
    __table_args__ = (Index(None, "finished_at_s"), Index(None, "made_at_s"))
    job_id: Mapped[str] = mapped_column(primary_key=True)
    made_at_s: Mapped[float]
    start_s: Mapped[float | None]
    start_low_s: Mapped[float | None]
    start_high_s: Mapped[float | None]
    finish_s: Mapped[float]
    finish_low_s: Mapped[float]
    finish_high_s: Mapped[float]
    started_at_s: Mapped[float | None]
    finished_at_s: Mapped[float | None]


class MetricPointRow(Base):
    """The metrics of a job after a step, as JSON; of the gang `generation` on `accelerator_type`."""

    __tablename__ = "metric_points"
    __table_args__ = (Index(None, "at_s"),)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    step: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    generation: Mapped[int]
    accelerator_type: Mapped[str]
    at_s: Mapped[float]
    metrics: Mapped[str] = mapped_column(Text)


class NotificationRow(Base):
    """A message about a job to one address. See notifications.py."""

    __tablename__ = "notifications"
    __table_args__ = (Index(None, "state", "job_id", "channel", "address"), Index(None, "user_name", "id"))
    id: Mapped[int] = mapped_column(Serial, primary_key=True)
    job_id: Mapped[str]
    user_name: Mapped[str]
    occasion: Mapped[str]
    at_s: Mapped[float]
    message: Mapped[str] = mapped_column(Text)
    channel: Mapped[str]
    address: Mapped[str]
    created_at_s: Mapped[float]
    state: Mapped[str]
    attempts: Mapped[int]
    next_attempt_at_s: Mapped[float]
    error: Mapped[str] = mapped_column(Text)


class NotificationSettingsRow(Base):
    """What a user wants to be notified of, and where."""

    __tablename__ = "notification_settings"
    user_name: Mapped[str] = mapped_column(primary_key=True)
    occasions: Mapped[list[str]] = mapped_column(JSON)
    email: Mapped[str]
    webhook_url: Mapped[str]


class OperationRow(Base):
    """A command and its result; body and result are JSON."""

    __tablename__ = "operations"
    __table_args__ = (Index(None, "state", "sequence"),)
    sequence: Mapped[int] = mapped_column(Serial, primary_key=True)
    id: Mapped[str] = mapped_column(unique=True)
    kind: Mapped[str]
    subject: Mapped[str]
    body: Mapped[str] = mapped_column(Text)
    by_name: Mapped[str]
    created_at_s: Mapped[float]
    state: Mapped[str]
    result: Mapped[str] = mapped_column(Text)
    error: Mapped[str] = mapped_column(Text)
    error_kind: Mapped[str]
    error_field: Mapped[str]
    finished_at_s: Mapped[float | None]


class DocumentRow(Base):
    """A value that is only replaced as a whole: the cluster, the table of throughputs; compressed JSON."""

    __tablename__ = "documents"
    name: Mapped[str] = mapped_column(primary_key=True)
    body: Mapped[bytes] = mapped_column(LargeBinary)


class AutopilotDecisionRow(Base):
    """A decision of the autopilot, compressed JSON; its question and what was learned until it, while they are kept."""

    __tablename__ = "autopilot_decisions"
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    at_s: Mapped[float]
    decision: Mapped[bytes] = mapped_column(LargeBinary)
    question: Mapped[bytes | None] = mapped_column(LargeBinary)
    experience: Mapped[bytes | None] = mapped_column(LargeBinary)


class TierRow(Base):
    """A tier."""

    __tablename__ = "tiers"
    name: Mapped[str] = mapped_column(primary_key=True)
    weight: Mapped[float]
    objective: Mapped[str]
    within_user: Mapped[str] = mapped_column(server_default="fast")
    guarantee: Mapped[float]
    cap: Mapped[float] = mapped_column(server_default="1.0")
    default_priority: Mapped[int] = mapped_column(server_default="0")
    max_jobs: Mapped[int | None]
    accelerator_hours_per_month: Mapped[float | None]
    budget_usd_per_month: Mapped[float | None]
    non_preemptible_workers: Mapped[int | None]
    session_longest_s: Mapped[float | None]
    parent: Mapped[str | None] = mapped_column(ForeignKey("tiers.name"))
    version: Mapped[int]


class UsageRow(Base):
    """The usage of a tier in a month."""

    __tablename__ = "usage"
    month: Mapped[str] = mapped_column(primary_key=True)
    tier: Mapped[str] = mapped_column(primary_key=True)
    accelerator_hours: Mapped[float]
    cost_usd: Mapped[float]
    worker_hours: Mapped[float] = mapped_column(server_default="0")
    lost_gangs: Mapped[int] = mapped_column(server_default="0")


class UserRow(Base):
    """A user, and the names of the tiers it may submit to."""

    __tablename__ = "users"
    name: Mapped[str] = mapped_column(primary_key=True)
    tiers: Mapped[list[str]] = mapped_column(JSON)


class TokenRow(Base):
    """A bearer token, as its SHA-256 only."""

    __tablename__ = "tokens"
    __table_args__ = (Index(None, "job_id"),)
    token_hash: Mapped[str] = mapped_column(primary_key=True)
    user_name: Mapped[str]
    scope: Mapped[str]
    job_id: Mapped[str | None]
    created_at_s: Mapped[float]


class SessionRow(Base):
    """A session of a browser, as the SHA-256 of its id only; it ends with the token that began it, or before."""

    __tablename__ = "sessions"
    __table_args__ = (Index(None, "token_hash"), Index(None, "ends_at_s"))
    session_hash: Mapped[str] = mapped_column(primary_key=True)
    token_hash: Mapped[str]
    ends_at_s: Mapped[float]


class FederatedIdentityRow(Base):
    """A person at an OpenID provider, the user that it is here, and the token (SHA-256) that its sessions belong to."""

    __tablename__ = "federated_identities"
    issuer: Mapped[str] = mapped_column(primary_key=True)
    subject: Mapped[str] = mapped_column(primary_key=True)
    user_name: Mapped[str] = mapped_column(unique=True)
    token_hash: Mapped[str | None]


class JobUserRow(Base):
    """The uid that the jobs of a user run as, for ever."""

    __tablename__ = "job_users"
    user_name: Mapped[str] = mapped_column(primary_key=True)
    uid: Mapped[int] = mapped_column(unique=True)


class AuditRow(Base):
    """A decision: who made it, and the values before and after (JSON; `before` is null for a new one)."""

    __tablename__ = "audit"
    __table_args__ = (Index(None, "subject", "sequence"), Index(None, "user_name", "sequence"))
    sequence: Mapped[int] = mapped_column(Serial, primary_key=True)
    at_s: Mapped[float]
    by_name: Mapped[str]
    subject: Mapped[str]
    before: Mapped[str | None] = mapped_column(Text)
    after: Mapped[str] = mapped_column(Text)
    action: Mapped[str] = mapped_column(server_default="changed")
    user_name: Mapped[str] = mapped_column(server_default="")
    round_index: Mapped[int | None]
