"""When a list may move. What then moves: tests/server/lists/test_maker.py."""

from __future__ import annotations

from fakes import failing_store, live_config
from requirements import requirement

from foretool.server.lists.epochs import FIRST_S, QUIET_S, Epochs
from foretool.server.recording.recorder import Recorder
from foretool.storage.records import SessionRecord


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@requirement("list:frozen:first-week")
def test_a_session_may_move_its_list_in_the_first_week_and_after_a_quiet_hour() -> None:
    clock, config, store = Clock(), live_config(epoch_s=50.0), failing_store()[0]
    epochs = Epochs(Recorder(store, config, clock), config)
    store.sessions.begin(SessionRecord("s", "c", "1", "legacy", "stdio", "", clock.now))
    assert (epochs.end(clock.now), epochs.is_over(clock.now - 49), epochs.is_over(clock.now - 50)) == (
        1050,
        False,
        True,
    )
    clock.now += FIRST_S - 1
    assert epochs.may_move()
    clock.now += 1
    assert epochs.may_move()  # nobody has called anything for a week


def test_a_profile_that_nobody_was_given_is_never_quiet_and_a_given_one_is_once() -> None:
    clock, config = Clock(), live_config()
    epochs = Epochs(Recorder(failing_store()[0], config, clock), config)
    assert not epochs.is_quiet("p")
    epochs.note_given("p")
    clock.now += QUIET_S
    assert [epochs.is_quiet("p"), epochs.is_quiet("p")] == [True, False]


def test_with_epoch_zero_nothing_moves_in_the_course_of_time() -> None:
    clock, config = Clock(), live_config(epoch_s=0)
    epochs = Epochs(Recorder(failing_store()[0], config, clock), config)
    epochs.note_given("p")
    clock.now += 10 * QUIET_S
    assert (epochs.may_move(), epochs.is_quiet("p"), epochs.end(0.0)) == (False, False, None)
