"""Sessions of browsers have random ids of their own, and an end."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Add the table of sessions. Whoever was logged in logs in again."""
    op.create_table(
        "sessions",
        sa.Column("session_hash", sa.String(), nullable=False),
        sa.Column("token_hash", sa.String(), nullable=False),
        sa.Column("ends_at_s", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("session_hash", name=op.f("pk_sessions")),
    )
    op.create_index(op.f("ix_sessions_token_hash"), "sessions", ["token_hash"])
    op.create_index(op.f("ix_sessions_ends_at_s"), "sessions", ["ends_at_s"])


def downgrade() -> None:
    """Remove the table."""
    op.drop_table("sessions")
