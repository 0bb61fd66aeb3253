"""What `gavel throughputs` prints of the estimator's answer."""

import io
from typing import Any

from rich.console import Console

from api.views.throughputs import throughput_list
from gavel.cli import matrices
from gavel.estimator.conformance import learned
from gavel.estimator.reconciled import ReconciledThroughputs


def printed(estimator: ReconciledThroughputs) -> str:
    view = throughput_list(estimator, estimator.table(), ["fast", "slow"], may_see_kind=bool, may_see_user=bool)
    payload: Any = view.model_dump()
    console = Console(width=120, file=io.StringIO(), record=True)
    console.print(matrices.throughputs(payload))
    return console.export_text()


def test_an_empty_table_says_when_there_will_be_rates() -> None:
    assert "nothing was measured yet" in printed(ReconciledThroughputs())


def test_a_prediction_is_marked_and_the_mark_explained() -> None:
    estimator = learned(ReconciledThroughputs(), [100.0] * 5)
    assert isinstance(estimator, ReconciledThroughputs)
    (row,) = (line for line in printed(estimator).splitlines() if line.startswith("mlp-b256"))
    assert row.count("±") == 2 and row.count("~") == 1
    assert "~ predicted, or measured beside idle workers" in printed(
        estimator
    ) and "nothing was measured" not in printed(estimator)
