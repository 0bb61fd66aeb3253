"""Whether a transaction was committed whose answer was lost with the connection; PostgreSQL remembers it."""

import time

from sqlalchemy import Engine, func, select
from sqlalchemy.exc import SQLAlchemyError

LIMIT_S = 10.0  # for a database that is started again, or has not noticed yet that the connection is gone
PAUSE_S = 0.1


def was_committed(engine: Engine, transaction_id: int) -> bool | None:
    """Return whether the transaction with this id of PostgreSQL is committed; None if nobody answers within LIMIT_S."""
    end_s = time.monotonic() + LIMIT_S
    while time.monotonic() < end_s:
        try:
            with engine.connect() as connection:
                status = connection.execute(select(func.txid_status(transaction_id))).scalar()
        except SQLAlchemyError:
            status = None
        if status in ("committed", "aborted"):
            return bool(status == "committed")
        time.sleep(PAUSE_S)
    return None
