"""The live feed: jobs and rounds written after a position.

A position is the number of the commit that wrote them last.
"""

from operator import itemgetter
from typing import Any

from sqlalchemy import Connection, select

from gavel.ports import Feed
from gavel.store import codec
from gavel.store.schema import CountersRow, JobRow, RoundRow
from gavel.types import Job, RoundPlan


def feed(connection: Connection, after: int | None, limit: int) -> Feed:
    """Return jobs and plans with after < change <= position, oldest first; without `after` only the newest position."""
    newest = connection.execute(select(CountersRow.change)).scalar_one()
    if after is None or after >= newest:
        return Feed(position=newest, newest=newest)
    # What is written again while this is read has a later change, and comes with the next feed.
    until = min(newest, *(_page_end(connection, each, after, limit, newest) for each in (JobRow, RoundRow)))
    jobs = select(JobRow.__table__).where(JobRow.change > after, JobRow.change <= until)
    by_commit = jobs.order_by(JobRow.change, JobRow.id)  # by ID alone, SQLite would read all jobs in that order
    plans = select(RoundRow.change, RoundRow.round_index, RoundRow.plan)
    plans = plans.where(RoundRow.change > after, RoundRow.change <= until)
    items: list[tuple[int, Job | RoundPlan]] = [(row.change, codec.job(row)) for row in connection.execute(by_commit)]
    items += [(row.change, codec.plan(row)) for row in connection.execute(plans.order_by(RoundRow.round_index))]
    return Feed(position=until, newest=newest, items=tuple(sorted(items, key=itemgetter(0))))


def _page_end(connection: Connection, table: Any, after: int, limit: int, newest: int) -> int:
    """Return the commit of row number `limit`: a page ends with a whole commit, and the next begins behind it."""
    query = select(table.change).where(table.change > after).order_by(table.change).offset(limit - 1).limit(1)
    return int(connection.execute(query).scalar() or newest)
