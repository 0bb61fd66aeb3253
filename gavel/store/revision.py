"""Which release the tables belong to, asked in every write: another release may upgrade them while this one runs."""

from sqlalchemy import Connection, text

from gavel.errors import StoreUnavailable
from gavel.store.schema import REVISIONS

_STORED = text("SELECT version_num FROM alembic_version")


def check_revision(connection: Connection) -> None:
    """Raise StoreUnavailable in a write transaction if the tables are not those of this release any more."""
    stored = connection.execute(_STORED).scalar()
    if stored != REVISIONS[-1]:
        raise StoreUnavailable(
            f"a newer Gavel has upgraded the database to revision {stored}, and this one writes {REVISIONS[-1]}: "
            "nothing is written here any more; stop this service and start the newer one"
        )
