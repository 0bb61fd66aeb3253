"""People who log in at an OpenID provider are users of their own."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    """Add the table of federated identities."""
    op.create_table(
        "federated_identities",
        sa.Column("issuer", sa.String(), nullable=False),
        sa.Column("subject", sa.String(), nullable=False),
        sa.Column("user_name", sa.String(), nullable=False),
        sa.Column("token_hash", sa.String(), nullable=True),
        sa.PrimaryKeyConstraint("issuer", "subject", name=op.f("pk_federated_identities")),
        sa.UniqueConstraint("user_name", name=op.f("uq_federated_identities_user_name")),
    )


def downgrade() -> None:
    """Remove the table."""
    op.drop_table("federated_identities")
