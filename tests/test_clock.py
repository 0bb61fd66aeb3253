from gavel.clock import ManualClock, SystemClock


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
