"""Whatever links do and whoever starts again: no job runs in two regions at the same time."""

import os
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from gavel.ports import ExtendLease, ForgetGang, StopGang
from gavel.types import GangState
from tests.backends.several.launches import gang
from tests.backends.several.links import REGIONS, Services, State

EXAMPLES = 100 if os.environ.get("GAVEL_TEST_PROFILE") == "full" else 20
JOBS = st.integers(0, 1)
REGION = st.sampled_from(REGIONS)
LEASE_S = st.sampled_from([5.0, 30.0])


class Fence(RuleBasedStateMachine):
    """A scheduler that launches each job wherever it likes, although earlier gangs of it may run elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.services = Services(Path(self.folder.name))
        self.newest = [0, 0]
        self.at = ["", ""]

    @initialize()
    def begin(self) -> None:
        self.services.seen()

    @rule(job=JOBS, region=REGION, lease_s=LEASE_S)
    def launch(self, job: int, region: str, lease_s: float) -> None:
        self.newest[job] += 1
        self.at[job] = region
        self.services.backend.execute(gang(job, self.newest[job], region, self.services.clock.now_s() + lease_s))

    @rule(job=JOBS, lease_s=LEASE_S)
    def launch_again(self, job: int, lease_s: float) -> None:
        """The same gang a second time, as after an answer that was lost."""
        if self.newest[job]:
            until_s = self.services.clock.now_s() + lease_s
            self.services.backend.execute(gang(job, self.newest[job], self.at[job], until_s))

    @rule(job=JOBS, lease_s=LEASE_S)
    def extend(self, job: int, lease_s: float) -> None:
        until_s = self.services.clock.now_s() + lease_s
        extension = ExtendLease(job_id=f"j{job}", generation=self.newest[job], expires_at_s=until_s)
        self.services.backend.execute([extension])

    @rule(job=JOBS, back=st.integers(0, 2))
    def stop(self, job: int, back: int) -> None:
        self.services.backend.execute([StopGang(job_id=f"j{job}", generation=max(1, self.newest[job] - back))])

    @rule()
    def forget_ended(self) -> None:
        ended = [each for each in self.services.seen().gangs if each.state is GangState.ENDED]
        self.services.backend.execute([ForgetGang(job_id=each.job_id, generation=each.generation) for each in ended])

    @rule(region=REGION, state=st.sampled_from(State))
    def set_link(self, region: str, state: State) -> None:
        self.services.lines[region].become(state)

    @rule(seconds=st.sampled_from([2.0, 7.0, 40.0]))
    def advance(self, seconds: float) -> None:
        self.services.clock.advance(seconds)

    @rule()
    def observe(self) -> None:
        self.services.seen()

    @rule()
    def restart(self) -> None:
        self.services.restart()
        self.services.seen()

    @invariant()
    def no_job_runs_in_two_regions(self) -> None:
        live = [line.live() for line in self.services.lines.values()]
        assert not live[0] & live[1]

    def teardown(self) -> None:
        try:
            self.check_that_all_is_well_again()
        finally:
            self.services.kill()
            self.folder.cleanup()

    def check_that_all_is_well_again(self) -> None:
        """With all links up, every region answers, and what is launched once all leases are over runs."""
        for line in self.services.lines.values():
            line.become(State.UP)
        for _ in range(4):
            self.services.seen()
            self.services.clock.advance(40.0)
        self.newest[0] += 2  # the one after may have been stopped before its launch
        until_s = self.services.clock.now_s() + 30.0
        for _ in range(2):
            self.services.seen()
            self.services.backend.execute(gang(0, self.newest[0], "us", until_s))
        assert "j0" in self.services.lines["us"].live()
        assert not any(each.problem for each in self.services.backend.statuses())


TestFence = Fence.TestCase
TestFence.settings = settings(
    max_examples=EXAMPLES, stateful_step_count=20, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
