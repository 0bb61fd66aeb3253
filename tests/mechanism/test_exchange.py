"""What the driver remembers of the backend between ticks: no report is lost or counted twice, nothing is told twice."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from gavel.mechanism.cluster.reconcile import OWNER, resource_name
from gavel.mechanism.exchange import Exchange
from gavel.ports import ExtendLease, Instruction, SetResources, StopGang
from gavel.types import Cluster, EphemeralResource, GangSeen, GangState, Observation, Report, ReportKind

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


def an_extension(job_id: str, generation: int, expires_at_s: float) -> list[Instruction]:
    """As the reconciler says it at every tick."""
    resource = EphemeralResource(
        name=resource_name(job_id, generation),
        node="n",
        capacity=1,
        owner=OWNER,
        lease_expires_at_s=expires_at_s + 1,
        generation=generation,
    )
    return [
        SetResources(resources=(resource,)),
        ExtendLease(job_id=job_id, generation=generation, expires_at_s=expires_at_s),
    ]


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
        wanted = an_extension(*key, expires_at_s)
        unheard = exchange.unheard(wanted)
        assert unheard == ([] if last.get(key) == expires_at_s else wanted)
        if arrives:
            exchange.heard(unheard, gangs)
            last[key] = expires_at_s


def test_an_extension_that_names_another_partner_is_told_though_the_end_is_the_same() -> None:
    exchange, (_, alone) = Exchange(), an_extension("a", 1, 10.0)
    exchange.heard([alone], [a_gang()])
    assert isinstance(alone, ExtendLease)
    assert exchange.unheard([alone, packed := replace(alone, shares_with="b")]) == [packed]


def test_what_concerns_a_gang_that_is_gone_is_forgotten_and_stops_are_never_held_back() -> None:
    exchange, wanted = Exchange(), an_extension("a", 1, 10.0)
    exchange.heard(wanted, [a_gang()])
    assert exchange.unheard(wanted) == []
    exchange.heard([], [])
    assert exchange.unheard(wanted) == wanted
    stop = StopGang(job_id="a", generation=1)
    exchange.heard([stop], [a_gang()])
    assert exchange.unheard([stop]) == [stop]
