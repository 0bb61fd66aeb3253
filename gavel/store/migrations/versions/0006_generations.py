"""A gang's fencing number is its generation, what a job lags behind is its lag."""

import json
import zlib
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

_ROUNDS = sa.table("rounds", sa.column("round_index"), sa.column("plan"), sa.column("decision"))


def upgrade() -> None:
    """Rename the column and the fields of stored rounds; inputs of older rounds are not kept."""
    op.alter_column("jobs", "token", new_column_name="generation")
    _rewrite(_plan_upgraded, _decision_upgraded)


def downgrade() -> None:
    """The names of before."""
    op.alter_column("jobs", "generation", new_column_name="token")
    _rewrite(_plan_downgraded, _decision_downgraded)


def _rewrite(plan: Callable[[Any], Any], decision: Callable[[Any], Any]) -> None:
    """Write the plan and the decision of every stored round anew."""
    connection = op.get_bind()
    for index, stored_plan, stored_decision in connection.execute(sa.select(_ROUNDS)).all():
        values = {
            "plan": _packed(plan(_unpacked(stored_plan))),
            "decision": _packed(decision(_unpacked(stored_decision))),
        }
        connection.execute(sa.update(_ROUNDS).where(_ROUNDS.c.round_index == index).values(values))


def _plan_upgraded(plan: Any) -> Any:
    return plan | {"leases": [_renamed(lease, "token", "generation") for lease in plan["leases"]]}


def _plan_downgraded(plan: Any) -> Any:
    return plan | {"leases": [_renamed(lease, "generation", "token") for lease in plan["leases"]]}


def _decision_upgraded(decision: Any) -> Any:
    return _renamed(decision, "owed_rounds", "lag_rounds") | {"inputs": None}


def _decision_downgraded(decision: Any) -> Any:
    return _renamed(decision, "lag_rounds", "owed_rounds") | {"inputs": None}


def _renamed(item: Any, old: str, new: str) -> Any:
    return {new if name == old else name: value for name, value in item.items()}


def _unpacked(body: bytes) -> Any:
    return json.loads(zlib.decompress(body))


def _packed(item: Any) -> bytes:
    return zlib.compress(json.dumps(item, ensure_ascii=False, separators=(",", ":")).encode(), level=1)
