"""Run by Alembic with the connection that `database.py` holds, inside its transaction."""

from alembic import context

from gavel.store.schema import Base

context.configure(
    connection=context.config.attributes["connection"], target_metadata=Base.metadata, render_as_batch=True
)
with context.begin_transaction():
    context.run_migrations()
