"""Objects and jobs in any order: one job for each object, and none that runs for an object that is gone.

The world here has the rules of an API server (versions, finalizers) and of the store (keys, cancellations). What
decides is the function that the service uses.
"""

from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from gavel.daemon.training_jobs.decision import Act, Deed, KnownJob, acts
from gavel.daemon.training_jobs.objects import FINALIZER, TrainingObject
from tests.conftest import IS_FULL

NAMES = st.sampled_from(["a", "b"])
WHICH = st.integers(0, 1)


@dataclass
class World:
    """The API server's objects by name, each change of them in order, and the stored jobs by their object's uid."""

    objects: dict[str, TrainingObject] = field(default_factory=dict)
    changes: list[tuple[str, TrainingObject | None]] = field(default_factory=list)
    jobs: dict[str, list[KnownJob]] = field(default_factory=dict)
    submissions: Counter[str] = field(default_factory=Counter)  # by the uid of the object
    numbers: "count[int]" = field(default_factory=lambda: count(1))

    def put(self, changed: TrainingObject) -> None:
        """Store a changed object; one that is deleted and has no finalizer is gone."""
        made = replace(changed, version=str(next(self.numbers)))
        is_gone = made.is_deleting and not made.finalizers
        if is_gone:
            del self.objects[made.name]
        else:
            self.objects[made.name] = made
        self.changes.append((made.name, None if is_gone else made))

    def current(self, seen: TrainingObject) -> TrainingObject | None:
        """The object as it is now; None if it is gone, or another one has its name."""
        now = self.objects.get(seen.name)
        return now if now is not None and now.uid == seen.uid else None

    def tell(self, seen: TrainingObject, **status: object) -> None:
        """A status is applied only if the object has not changed since it was seen."""
        now = self.current(seen)
        if now is not None and now.version == seen.version:
            self.put(replace(now, status={**now.status, **status}))

    def job(self, uid: str) -> KnownJob | None:
        return next(iter(self.jobs.get(uid, ())), None)

    def change_job(self, uid: str, **fields: bool) -> None:
        self.jobs[uid] = [replace(each, **fields) for each in self.jobs[uid]]


class Controller:
    """A service: what it sees is what it was told, which may be old; what it reads of jobs is what is stored."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.seen: dict[str, TrainingObject] = {}
        self.place = 0

    def take(self, most: int, again: int) -> None:
        """Be told of some more changes; the last ones before may come twice."""
        self.place = max(0, self.place - again)
        for name, shown in self.world.changes[self.place : self.place + most]:
            self.seen.pop(name, None)
            if shown is not None:
                self.seen[name] = shown
        self.place = min(len(self.world.changes), self.place + most)

    def decide(self) -> list[Act]:
        """What to do. Jobs are found by the status or by the label, and all unfinished ones by their label."""
        world, objects = self.world, [*self.seen.values()]
        jobs = {uid: job for uid in world.jobs if (job := world.job(uid)) and not job.has_ended}
        for each in objects:
            job = world.job(each.uid)
            if job is not None and not each.is_over and (each.job_id or each.is_held):
                jobs[each.uid] = job
        return acts(objects, jobs, ())

    def do(self, act: Act) -> None:
        world, seen = self.world, act.seen
        if seen is None:  # checked by a list that is made now
            if act.uid not in {each.uid for each in world.objects.values()}:
                world.change_job(act.uid, is_cancelled=True)
            return
        now = world.current(seen)
        match act.deed:
            case Deed.HOLD | Deed.LET_GO:
                if now is not None and now.version == seen.version:
                    stored = world.job(seen.uid)
                    assert stored is None or stored.has_ended or stored.is_cancelled or act.deed is Deed.HOLD
                    others = tuple(each for each in now.finalizers if each != FINALIZER)
                    world.put(replace(now, finalizers=(*others, FINALIZER) if act.deed is Deed.HOLD else others))
            case Deed.SUBMIT:
                if world.job(seen.uid) is None:  # by the key
                    world.jobs[seen.uid] = [KnownJob(id=f"j{next(world.numbers)}")]
                    world.submissions[seen.uid] += 1
                self.show(seen, observedGeneration=seen.generation)
            case Deed.EDIT:  # refused if the job has ended
                self.show(seen, observedGeneration=seen.generation)
            case Deed.CANCEL:
                world.change_job(seen.uid, is_cancelled=True)
            case Deed.CLOSE:
                world.tell(seen, endedAt="now")

    def show(self, seen: TrainingObject, **status: object) -> None:
        job = self.world.job(seen.uid)
        of_job = {"job": job.id, **({"endedAt": "now"} if job.has_ended else {})} if job is not None else {}
        self.world.tell(seen, **of_job, **status)

    def look(self, most: int = 100) -> bool:
        """Do so much of what is to be done before the service ends; return whether there was anything."""
        decided = self.decide()
        for act in decided[:most]:
            self.do(act)
        acted = {act.uid for act in decided}
        shown = [each for each in self.seen.values() if each.uid not in acted and not each.is_over]
        for each in shown if most >= len(decided) else ():
            job = self.world.job(each.uid)
            if job is not None and job.has_ended and not each.is_deleting and each.is_held:
                self.show(each)
                return True
        return bool(decided)


class AnyOrder(RuleBasedStateMachine):
    """Users, a watch that is late and tells things twice, two services that end at any act, and jobs that end."""

    @initialize()
    def begin(self) -> None:
        self.world = World()
        self.controllers = [Controller(self.world), Controller(self.world)]
        self.uids: set[str] = set()
        self.purged: set[str] = set()

    @rule(name=NAMES)
    def create(self, name: str) -> None:
        if name not in self.world.objects:
            uid = f"uid-{next(self.world.numbers)}"
            self.uids.add(uid)
            self.world.put(_new(name, uid))

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        if (now := self.world.objects.get(name)) is not None:
            self.world.put(replace(now, is_deleting=True))

    @rule(name=NAMES)
    def edit(self, name: str) -> None:
        if (now := self.world.objects.get(name)) is not None:
            self.world.put(replace(now, generation=now.generation + 1))

    @rule(name=NAMES)
    def tear_away(self, name: str) -> None:
        """Somebody takes the finalizer away, and deletes the object."""
        if (now := self.world.objects.get(name)) is not None:
            self.world.put(replace(now, finalizers=(), is_deleting=True))

    @rule(which=WHICH, most=st.integers(1, 6), again=st.integers(0, 3))
    def tell(self, which: int, most: int, again: int) -> None:
        self.controllers[which].take(most, again)

    @rule(which=WHICH, most=st.integers(0, 4))
    def look(self, which: int, most: int) -> None:
        self.controllers[which].look(most)

    @rule(which=WHICH)
    def keep_up(self, which: int) -> None:
        """A service is told everything, and does two things about it, as most do all the time."""
        for _ in range(2):
            self.controllers[which].take(len(self.world.changes), 0)
            self.controllers[which].look()

    @rule(which=WHICH)
    def restart(self, which: int) -> None:
        """The next service lists all objects, and knows nothing else."""
        self.controllers[which] = Controller(self.world)
        self.controllers[which].seen = dict(self.world.objects)
        self.controllers[which].place = len(self.world.changes)

    @rule(name=NAMES)
    def end_job(self, name: str) -> None:
        now = self.world.objects.get(name)
        if now is not None and self.world.job(now.uid) is not None:
            self.world.change_job(now.uid, has_ended=True)

    @rule(name=NAMES)
    def purge_job(self, name: str) -> None:
        """A job that has ended is no longer stored."""
        now = self.world.objects.get(name)
        job = self.world.job(now.uid) if now is not None else None
        if now is not None and job is not None and job.has_ended and now.job_id:
            self.purged.add(now.uid)
            self.world.jobs[now.uid] = []

    @invariant()
    def no_object_has_two_jobs(self) -> None:
        world = getattr(self, "world", None)
        assert world is None or all(count == 1 for count in world.submissions.values())

    def teardown(self) -> None:
        """Once everything has been told, nothing is left to do, and jobs are as objects say."""
        if not hasattr(self, "world"):
            return
        for _ in range(100):
            was_busy = False
            for each in self.controllers:
                each.take(len(self.world.changes), 0)
                was_busy |= each.look()
            if not was_busy:
                break
        else:
            raise AssertionError("the services never come to rest")
        there = {each.uid: each for each in self.world.objects.values()}
        assert not any(each.is_deleting for each in there.values())
        assert {uid for uid in there if not self.world.job(uid)} == self.purged & there.keys()
        assert all(there[uid].is_over for uid in self.purged & there.keys())
        for uid in self.uids - there.keys():
            job = self.world.job(uid)
            assert job is None or job.has_ended or job.is_cancelled
        for uid, each in ((uid, each) for uid, each in there.items() if uid not in self.purged):
            job = self.world.job(uid)
            assert job is not None and not job.is_cancelled and each.job_id == job.id
            assert each.is_over == job.has_ended and each.is_held != job.has_ended


KNOWN, CANCELLED, ENDED = KnownJob(id="j1"), KnownJob(id="j1", is_cancelled=True), KnownJob(id="j1", has_ended=True)
HELD: dict[str, Any] = {"finalizers": (FINALIZER,)}
TAKEN: dict[str, Any] = {**HELD, "status": {"job": "j1", "observedGeneration": 1}}
OVER: dict[str, Any] = {"status": {"job": "j1", "observedGeneration": 1, "endedAt": "now"}}
GOING: dict[str, Any] = {**TAKEN, "is_deleting": True}


@pytest.mark.parametrize(
    ("fields", "job", "deed"),
    [
        ({}, None, Deed.HOLD),
        (HELD, None, Deed.SUBMIT),
        (HELD, KNOWN, Deed.EDIT),  # the service ended before it wrote the status
        (TAKEN, KNOWN, None),
        (TAKEN, CANCELLED, None),
        ({**TAKEN, "finalizers": ()}, KNOWN, Deed.HOLD),
        ({**TAKEN, "generation": 2}, KNOWN, Deed.EDIT),
        (TAKEN, ENDED, None),  # until the status says so
        (TAKEN, None, Deed.CLOSE),
        ({**OVER, **HELD}, None, Deed.LET_GO),
        (OVER, None, None),
        ({**OVER, "generation": 2}, None, Deed.EDIT),
        (GOING, KNOWN, Deed.CANCEL),
        (GOING, CANCELLED, Deed.LET_GO),
        (GOING, ENDED, Deed.LET_GO),
        ({**HELD, "is_deleting": True}, None, Deed.LET_GO),
        ({"is_deleting": True, "finalizers": ("other.example/x",)}, KNOWN, None),
    ],
)
def test_what_is_done_for_one_object(fields: dict[str, Any], job: KnownJob | None, deed: Deed | None) -> None:
    seen = replace(_new("a", "uid"), **fields)
    decided = acts([seen], {"uid": job} if job else {}, ())
    assert decided == ([] if deed is None else [Act(deed=deed, uid="uid", seen=seen, job=job)])


def test_what_was_refused_a_moment_ago_rests_until_it_is_changed() -> None:
    seen = replace(_new("a", "uid"), **HELD)
    assert acts([seen], {}, {("uid", 1)}) == []
    assert [act.deed for act in acts([replace(seen, generation=2)], {}, {("uid", 1)})] == [Deed.SUBMIT]


def test_only_a_job_that_runs_is_cancelled_without_its_object() -> None:
    decided = acts([], {"u1": KNOWN, "u2": CANCELLED, "u3": ENDED}, ())
    assert decided == [Act(deed=Deed.CANCEL, uid="u1", job=KNOWN)]


def _new(name: str, uid: str) -> TrainingObject:
    return TrainingObject(
        namespace="team",
        name=name,
        uid=uid,
        version="0",
        generation=1,
        is_deleting=False,
        finalizers=(),
        spec={},
        status={},
    )


AnyOrder.TestCase.settings = hypothesis_settings(max_examples=1000 if IS_FULL else 150, stateful_step_count=40)
TestAnyOrder = AnyOrder.TestCase
