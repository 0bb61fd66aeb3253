"""What `gavel throughputs` prints of the estimator's answer."""

import io
from typing import Any

from rich.console import Console

from api.estimator import estimator_view
from gavel.cli import show
from gavel.estimator.conformance import learned
from gavel.estimator.reconciled import ReconciledThroughputs


def printed(estimator: ReconciledThroughputs) -> str:
    view = estimator_view(estimator.table(), ["fast", "slow"], may_see_kind=bool, may_see_user=bool)
    known: Any = view.model_dump()
    console = Console(width=120, file=io.StringIO(), record=True)
    console.print(show.throughputs(known))
    return console.export_text()


def test_an_empty_table_says_when_there_will_be_rates() -> None:
    assert "nothing was measured yet" in printed(ReconciledThroughputs())


def test_a_prediction_is_marked_and_the_mark_explained() -> None:
    known = learned(ReconciledThroughputs(), [100.0] * 5)
    assert isinstance(known, ReconciledThroughputs)
    (row,) = (line for line in printed(known).splitlines() if line.startswith("mlp-b256"))
    assert row.count("±") == 2 and row.count("~") == 1
    assert "~ predicted from" in printed(known) and "nothing was measured" not in printed(known)
