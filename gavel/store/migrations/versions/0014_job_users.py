"""The jobs of each user may run as a Unix user of their own."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0012"


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "job_users",
        sa.Column("user_name", sa.String(), nullable=False),
        sa.Column("uid", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("user_name", name=op.f("pk_job_users")),
        sa.UniqueConstraint("uid", name=op.f("uq_job_users_uid")),
    )


def downgrade() -> None:
    """Remove the table."""
    op.drop_table("job_users")
