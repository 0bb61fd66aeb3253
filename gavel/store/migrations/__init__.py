"""Alembic migrations. They run when a store is opened; `schema.REVISIONS` lists them."""
