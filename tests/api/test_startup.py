"""How long starts take, and jobs that make no progress: the explanation, the overview and the metrics."""

from dataclasses import replace

import pytest

from api.startup_metrics import startup_metrics
from api.views.jobs_and_rounds import job_view
from api.views.overview import summary
from gavel.mechanism.explaining.explanation import explain
from gavel.mechanism.explaining.headline import headline
from gavel.ports import Snapshot
from gavel.types import Cluster, Reason, StartupTimes, Tier
from tests.builders import a_job
from tests.mechanism.test_explaining import JOB, NOW_S, a_record, a_state

WHY = "The program reported no step in 2 leases, the longest of 600 s."
TIMES = (
    StartupTimes(kind="mlp", accelerator_type="fast", startup_s=(4.0, 6.0), restore_s=(1.5,)),
    StartupTimes(kind="cnn", accelerator_type="slow", startup_s=(90.0,)),
)


def test_a_job_without_progress_is_explained_by_that_first_and_told_what_helps() -> None:
    stalled = replace(JOB, no_progress=WHY)
    others = [a_job(f"j{row}", submitted_at_s=50.0 + row) for row in (1, 2)]
    why = explain(stalled, a_state(stalled, *others, record=a_record()))
    assert why.code is Reason.NO_PROGRESS and why.message.startswith(WHY)
    assert any("start_limit_s" in sentence for sentence in why.would_unblock)
    assert headline(stalled, why, start=None, finish=None, now_s=NOW_S).startswith(WHY)


def test_a_job_s_view_has_its_own_times() -> None:
    view = job_view(a_job(startup_s=4.0, checkpoint_s=0.5, no_progress=WHY), None, NOW_S)
    assert (view.startup_s, view.restore_s, view.checkpoint_s, view.no_progress) == (4.0, None, 0.5, WHY)


@pytest.mark.parametrize(("kinds", "expected"), [(("mlp",), "mlp need about 6.5 s on fast"), (("gpt",), "")])
def test_the_overview_says_when_rounds_are_short_against_the_starts_of_visible_jobs(
    kinds: tuple[str, ...], expected: str
) -> None:
    jobs = {f"j{row}": a_job(f"j{row}", spec={"kind": kind}) for row, kind in enumerate((*kinds, "cnn"))}
    snapshot = Snapshot(version=1, jobs=jobs, tiers={}, round_records=(a_record(),), startup_times=TIMES)
    notes = summary(snapshot, Cluster(), [], lambda job: job.spec.kind != "cnn", NOW_S).notes
    assert [expected in note for note in notes] == ([True] if expected else [])


def test_metrics_count_jobs_without_progress_and_give_the_median_start_of_each_kind() -> None:
    jobs = {"j0": a_job("j0", no_progress=WHY), "j1": a_job("j1")}
    tiers = {name: Tier(name=name) for name in ("gold", "silver")}
    stalled, times = startup_metrics(Snapshot(version=1, jobs=jobs, tiers=tiers, startup_times=TIMES))
    assert {each.labels["tier"]: each.value for each in stalled.samples} == {"gold": 1.0, "silver": 0.0}
    assert {each.labels["kind"]: each.value for each in times.samples} == {"mlp": 6.5, "cnn": 90.0}
