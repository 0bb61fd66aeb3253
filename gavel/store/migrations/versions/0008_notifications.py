"""Users are notified of what happens to their jobs."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"

_SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Make the queue and the choices of users. Nobody is notified of what happened before."""
    op.add_column("counters", sa.Column("notified_event", sa.BigInteger(), server_default="0", nullable=False))
    op.execute("UPDATE counters SET notified_event = (SELECT COALESCE(MAX(sequence), 0) FROM events)")
    op.create_table(
        "notifications",
        sa.Column("id", _SERIAL, nullable=False),
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("user_name", sa.String(), nullable=False),
        sa.Column("occasion", sa.String(), nullable=False),
        sa.Column("at_s", sa.Double(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("channel", sa.String(), nullable=False),
        sa.Column("address", sa.String(), nullable=False),
        sa.Column("created_at_s", sa.Double(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("attempts", sa.BigInteger(), nullable=False),
        sa.Column("next_attempt_at_s", sa.Double(), nullable=False),
        sa.Column("error", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_notifications")),
    )
    columns = ["state", "job_id", "channel", "address"]
    op.create_index(op.f("ix_notifications_state_job_id_channel_address"), "notifications", columns)
    op.create_index(op.f("ix_notifications_user_name_id"), "notifications", ["user_name", "id"])
    op.create_table(
        "notification_settings",
        sa.Column("user_name", sa.String(), nullable=False),
        sa.Column("occasions", sa.JSON(), nullable=False),
        sa.Column("email", sa.String(), nullable=False),
        sa.Column("webhook_url", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("user_name", name=op.f("pk_notification_settings")),
    )


def downgrade() -> None:
    """Forget them."""
    op.drop_table("notification_settings")
    op.drop_table("notifications")
    op.drop_column("counters", "notified_event")
