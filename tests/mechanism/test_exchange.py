"""What the driver remembers of the backend between ticks: no report is lost or counted twice, nothing is told twice."""

from collections.abc import Iterable
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from gavel.mechanism.cluster.reconcile import reconcile
from gavel.mechanism.exchange import Exchange
from gavel.ports import ExtendLease, Instruction, SetResources, StopGang
from gavel.types import (
    Cluster,
    GangSeen,
    GangState,
    JobState,
    Lease,
    Observation,
    Report,
    ReportKind,
    RoundPlan,
)
from tests.builders import a_cluster, a_job

KEYS = st.tuples(st.sampled_from("ab"), st.integers(1, 2))


def a_gang(job_id: str = "a", generation: int = 1, reports: tuple[Report, ...] = ()) -> GangSeen:
    return GangSeen(
        job_id=job_id,
        generation=generation,
        state=GangState.RUNNING,
        accelerator_type="fast",
        worker_ids=("w",),
        reports=reports,
    )


def a_view(*gangs: GangSeen) -> Observation:
    return Observation(observed_at_s=0.0, cluster=Cluster(), gangs=gangs)


def a_lease(job_id: str, generation: int, expires_at_s: float, partner: str | None = None) -> Lease:
    return Lease(
        job_id=job_id,
        generation=generation,
        combination=(job_id, partner) if partner else (job_id,),
        accelerator_type="fast",
        worker_ids=("fast-0",),
        round_index=1,
        expires_at_s=expires_at_s,
    )


def instructed(exchange: Exchange, lease: Lease) -> tuple[Instruction, ...]:
    """What the reconciler instructs the lease's gang to do, which runs, at any tick."""
    plan = RoundPlan(
        round_index=1, parent_round_index=0, starts_at_s=0.0, duration_s=30.0, leases=(lease,), policy="test",
        allocation_digest="",
    )  # fmt: skip
    job = a_job(lease.job_id, generation=lease.generation, state=JobState.LEASED)
    seen = replace(a_view(a_gang(lease.job_id, lease.generation)), cluster=a_cluster(fast=1))
    return reconcile([plan], {job.id: job}, seen, lease_grace_s=1.0, sent=exchange.sent).instructions


def ends(instructions: Iterable[Instruction]) -> list[float]:
    """The ends of leases that the gang, and the resource that its tasks require, are told."""
    leases = [each.expires_at_s for each in instructions if isinstance(each, ExtendLease)]
    resources = [each.resources[0].lease_expires_at_s - 1.0 for each in instructions if isinstance(each, SetResources)]
    assert leases == resources
    return leases


@given(st.lists(st.tuples(st.dictionaries(KEYS, st.integers(0, 2), min_size=4), st.booleans())))
def test_every_commit_holds_all_reports_since_the_one_before_in_order(
    ticks: list[tuple[dict[tuple[str, int], int], bool]],
) -> None:
    """1. Gangs report. 2. Some commits fail. 3. The next one that does not takes all reports, each once."""
    exchange, sequence = Exchange(), 0
    handed_over: dict[tuple[str, int], list[int]] = {}
    committed: dict[tuple[str, int], list[int]] = {}
    for reports_of, succeeds in ticks:
        gangs = []
        for key, count in sorted(reports_of.items()):
            numbers = range(sequence, sequence := sequence + count)
            reports = tuple(Report(sequence=number, kind=ReportKind.PROGRESS, step=0) for number in numbers)
            handed_over.setdefault(key, []).extend(numbers)
            gangs.append(a_gang(*key, reports=reports))
        seen = exchange.with_uncommitted(a_view(*gangs))
        if succeeds:
            for gang in seen.gangs:
                numbers_seen = [report.sequence for report in gang.reports]
                committed.setdefault((gang.job_id, gang.generation), []).extend(numbers_seen)
            exchange.committed()
            assert committed == handed_over


@given(st.lists(st.tuples(KEYS, st.sampled_from([10.0, 20.0]), st.booleans())))
def test_an_extension_is_told_exactly_when_the_backend_has_not_heard_it(
    ticks: list[tuple[tuple[str, int], float, bool]],
) -> None:
    """The backend forgets nothing of a gang that is there; what it did not execute is told again."""
    exchange, gangs = Exchange(), [a_gang(job_id, generation) for job_id in "ab" for generation in (1, 2)]
    last: dict[tuple[str, int], float] = {}
    for key, expires_at_s, arrives in ticks:
        unheard = instructed(exchange, a_lease(*key, expires_at_s))
        assert ends(unheard) == ([] if last.get(key) == expires_at_s else [expires_at_s])
        if arrives:
            exchange.heard(unheard, gangs)
            last[key] = expires_at_s


def test_an_extension_that_names_another_partner_is_told_though_the_end_is_the_same() -> None:
    exchange = Exchange()
    exchange.heard(instructed(exchange, a_lease("a", 1, 10.0)), [a_gang()])
    (packed,) = [each for each in instructed(exchange, a_lease("a", 1, 10.0, "b")) if isinstance(each, ExtendLease)]
    assert packed.shares_with == "b"


def test_what_concerns_a_gang_that_is_gone_is_forgotten_and_stops_are_never_held_back() -> None:
    exchange, lease = Exchange(), a_lease("a", 1, 10.0)
    exchange.heard(instructed(exchange, lease), [a_gang()])
    assert instructed(exchange, lease) == ()
    exchange.heard([], [])
    assert ends(instructed(exchange, lease)) == [10.0]
    for _ in range(2):
        stop = reconcile([], {}, a_view(a_gang()), lease_grace_s=1.0, sent=exchange.sent).instructions
        assert [type(each) for each in stop] == [StopGang]
        exchange.heard(stop, [a_gang()])
