"""The part of `gavel.store.conformance` about the decisions of the autopilot."""

from dataclasses import replace
from math import inf

from gavel.errors import Conflict, NotFound
from gavel.store.samples import WholeStore, refused
from gavel.types.autopilot import AutopilotDecision, AutopilotMode, CompositionScore

_SCORE = CompositionScore(
    composition="fifo/backfill=false",
    futures=8,
    cost=1 / 3,
    gain=-0.1,
    error=inf,
    epoch_cost=0.1 + 0.2,
    correction=1.0,
    preference=0.0,
    keeps_limits=False,
)
_DECISION = AutopilotDecision(
    number=0,
    at_s=1 / 3,
    mode=AutopilotMode.AUTO,
    goal="mean_jct=2,money",
    seed=7,
    incumbent="fifo",
    chosen="fifo/backfill=false",
    reason="it gains 1 % ± 0",
    is_followed=True,
    inputs_digest="d",
    scores=(_SCORE,),
    features=(("load", 2 / 3),),
    replayed=(("fifo", 1.5),),
    actual=1.25,
    cpu_s=0.7,
    jobs=3,
    has_question=True,
)


def a_decision_of_the_autopilot_is_kept_whole(store: WholeStore) -> None:
    """Every field, bit for bit; its question and its experience as they were given."""
    decisions = store.autopilot
    assert decisions.decisions() == () and decisions.experience() == b""
    with refused(NotFound):
        decisions.decision(0)
    decisions.add(_DECISION, b"\x00question", b"\xffexperience", keep_questions=2)
    assert decisions.decision(0) == _DECISION and decisions.decisions() == (_DECISION,)
    assert decisions.question(0) == b"\x00question" and decisions.experience() == b"\xffexperience"


def a_decision_without_a_question_has_none(store: WholeStore) -> None:
    """One that failed, for example."""
    failed = replace(_DECISION, scores=(), failure="it took longer than 3 s", has_question=False, actual=None)
    store.autopilot.add(failed, b"", b"before", keep_questions=2)
    assert store.autopilot.decision(0) == failed and store.autopilot.experience() == b"before"
    with refused(NotFound):
        store.autopilot.question(0)


def decisions_are_listed_newest_first_and_only_the_newest_keep_their_questions(store: WholeStore) -> None:
    """A number is given once, and only after the one before."""
    for number in range(4):
        store.autopilot.add(replace(_DECISION, number=number), b"q%d" % number, b"e%d" % number, keep_questions=2)
    listed = store.autopilot.decisions()
    assert [(each.number, each.has_question) for each in listed] == [(3, True), (2, True), (1, False), (0, False)]
    assert [each.number for each in store.autopilot.decisions(before=3, limit=2)] == [2, 1]
    assert store.autopilot.question(2) == b"q2" and store.autopilot.experience() == b"e3"
    with refused(NotFound):
        store.autopilot.question(1)
    for number in (1, 3):
        with refused(Conflict):
            store.autopilot.add(replace(_DECISION, number=number), b"", b"", keep_questions=2)
    assert store.autopilot.experience() == b"e3"


CHECKS = (
    a_decision_of_the_autopilot_is_kept_whole,
    a_decision_without_a_question_has_none,
    decisions_are_listed_newest_first_and_only_the_newest_keep_their_questions,
)
