"""The decisions of the autopilot, in SQL. The newest ones keep their questions and what was learned until them."""

from collections.abc import Callable
from typing import Any

from sqlalchemy import Connection, delete, func, insert, literal, select, update

from gavel.errors import Conflict, NotFound
from gavel.store import codec
from gavel.store.rules import check_limit
from gavel.store.schema import AutopilotDecisionRow
from gavel.store.writer import Transaction
from gavel.types.autopilot import AutopilotDecision

_TABLE: Any = AutopilotDecisionRow.__table__
_COLUMNS = (_TABLE.c.number, _TABLE.c.decision, _TABLE.c.question.is_not(None).label("has_question"))


class AutopilotDecisions:
    """The decisions of a store, safe from any thread. `read` and `write` are the store's own.

    `check` raises LeadershipLost where another process leads by now: only the leader adds decisions.
    """

    def __init__(
        self,
        read: Callable[[Callable[[Connection], Any]], Any],
        write: Callable[[Callable[[Transaction], Any]], Any],
        check: Callable[[Transaction], None],
    ) -> None:
        self._read, self._write, self._check = read, write, check

    def decisions(self, *, before: int | None = None, limit: int = 100) -> tuple[AutopilotDecision, ...]:
        """Return the decisions with a number below `before`, newest first; limit 1..1000."""
        check_limit(limit, 1000)
        query = select(*_COLUMNS).order_by(_TABLE.c.number.desc()).limit(limit)
        query = query if before is None else query.where(_TABLE.c.number < before)
        return tuple(codec.autopilot_decision(row) for row in self._read(lambda each: each.execute(query).all()))

    def decision(self, number: int) -> AutopilotDecision:
        """Return one decision. Raises NotFound."""
        query = select(*_COLUMNS).where(_TABLE.c.number == number)
        row = self._read(lambda each: each.execute(query).one_or_none())
        if row is None:
            raise NotFound(f"no decision {number} of the autopilot")
        return codec.autopilot_decision(row)

    def question(self, number: int) -> bytes:
        """Return the question of a decision, as it was given to `add`. Raises NotFound, also once it is forgotten."""
        query = select(_TABLE.c.question).where(_TABLE.c.number == number)
        body = self._read(lambda each: each.execute(query).scalar_one_or_none())
        if body is None:
            raise NotFound(f"the question of decision {number} is not stored; only those of the newest decisions are")
        return bytes(body)

    def add(self, decision: AutopilotDecision, question: bytes, experience: bytes, *, keep_questions: int) -> None:
        """Add the next decision, with what was learned until it; only `keep_questions` decisions keep both.

        Raises Conflict if there is a decision with this number, LeadershipLost if another process leads by now.
        """
        row = {
            "number": decision.number,
            "at_s": decision.at_s,
            "decision": codec.pack_autopilot_decision(decision),
            "question": question or None,
            "experience": experience or None,
        }
        self._write(lambda tx: self._add(tx, row, keep_questions))

    def _add(self, tx: Transaction, row: dict[str, Any], keep_questions: int) -> None:
        self._check(tx)
        newest = tx.connection.execute(select(func.max(_TABLE.c.number))).scalar_one()
        if newest is not None and newest >= row["number"]:
            raise Conflict(f"there is a decision {row['number']} of the autopilot already; the newest is {newest}")
        tx.connection.execute(insert(_TABLE), row)
        is_old = _TABLE.c.number <= row["number"] - keep_questions
        tx.connection.execute(update(_TABLE).where(is_old).values(question=None, experience=None))

    def experience(self) -> bytes:
        """Return what the newest decision has learned; empty if there is none."""
        query = select(_TABLE.c.experience).order_by(_TABLE.c.number.desc()).limit(1)
        return bytes(self._read(lambda each: each.execute(query).scalar_one_or_none()) or b"")


def forget_decisions(tx: Transaction, before_s: float) -> None:
    """Delete decisions made before the instant; the newest one stays, with what was learned until it."""
    newest = tx.connection.execute(select(func.max(_TABLE.c.number))).scalar_one()
    if newest is not None:
        tx.connection.execute(delete(_TABLE).where(_TABLE.c.at_s < before_s, _TABLE.c.number < literal(newest)))
