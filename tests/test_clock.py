from hypothesis import given
from hypothesis import strategies as st

from gavel.clock import HELD_S, ManualClock, SystemClock


def test_a_manual_clock_moves_only_when_told() -> None:
    clock = ManualClock(5.0)
    clock.wait(3.0)
    assert clock.now_s() == 5.0
    clock.advance(2.5)
    assert clock.now_s() == 7.5


def test_wake_ends_a_wait_of_the_system_clock_early() -> None:
    clock = SystemClock()
    began = clock.now_s()
    clock.wake()
    clock.wait(began + 60)
    assert clock.now_s() < began + 30


class Walls:
    """A wall clock and a boot clock that the test moves."""

    def __init__(self) -> None:
        self.wall_s, self.boottime_s = 1_000_000.0, 50.0
        self.clock = SystemClock(lambda: self.wall_s, lambda: self.boottime_s)

    def pass_s(self, seconds: float) -> float:
        self.wall_s, self.boottime_s = self.wall_s + seconds, self.boottime_s + seconds
        return self.clock.now_s()


def test_a_clock_that_is_set_back_keeps_the_order_and_meets_the_wall_again() -> None:
    walls = Walls()
    before = walls.pass_s(10)
    walls.wall_s -= 3600
    after = [walls.pass_s(60) for _ in range(30)]
    assert before < after[0] and after == sorted(after) and walls.clock.steps == 1
    assert walls.pass_s(20 * 3600) == walls.wall_s


def test_a_clock_that_is_set_ahead_or_was_far_ahead_follows_at_once() -> None:
    walls = Walls()
    walls.wall_s += 56 * 365 * 86_400.0  # from 1970
    assert walls.pass_s(1) == walls.wall_s and walls.clock.steps == 1
    walls.wall_s -= 10 * 365 * 86_400.0
    assert walls.pass_s(1) == walls.wall_s and walls.clock.steps == 2


def test_a_suspended_machine_is_no_step() -> None:
    walls = Walls()
    assert walls.pass_s(8 * 3600) == walls.wall_s and walls.clock.steps == 0


@given(st.lists(st.tuples(st.floats(0, 1e4), st.floats(-1e5, 1e5)), max_size=30))
def test_time_is_in_order_but_for_steps_back_of_more_than_a_day(moves: list[tuple[float, float]]) -> None:
    walls = Walls()
    before = walls.clock.now_s()
    for passed_s, step_s in moves:
        walls.wall_s += step_s
        after = walls.pass_s(passed_s)
        assert after >= before or before - walls.wall_s > HELD_S - 1e4
        assert 0 <= after - walls.wall_s <= HELD_S
        before = after


def test_a_manual_clock_steps_back_when_told() -> None:
    clock = ManualClock(5.0)
    clock.step(-3.0)
    assert (clock.now_s(), clock.steps) == (2.0, 1)
