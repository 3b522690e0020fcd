"""What is written again because the answer to its commit was lost."""

from __future__ import annotations

from typing import cast

from foretool.storage.sql.database import Database
from foretool.storage.sql.repeats import Repeats


class Doubting:
    doubts = 0


def test_a_batch_that_was_written_is_left_out_and_what_was_added_to_it_is_not() -> None:
    kept: list[int] = []
    database = Doubting()
    repeats = Repeats(cast("Database", database), lambda each: each, lambda each: each in kept)
    assert repeats.leave_out([1, 2]) == [1, 2]
    kept += [1, 2]
    assert repeats.leave_out([1, 2]) == [1, 2], "nobody doubts it"
    database.doubts += 1
    assert repeats.leave_out([1, 2, 3]) == [3]
    database.doubts += 1  # of 3, which was not written
    assert repeats.leave_out([1, 2, 3, 4]) == [3, 4]
    kept += [3, 4]
    database.doubts += 1
    assert repeats.leave_out([1, 2, 3, 4, 5]) == [5]
    assert repeats.leave_out([6]) == [6]


def test_what_never_came_to_the_store_is_written_again() -> None:
    database = Doubting()
    repeats = Repeats(cast("Database", database), lambda each: each, lambda each: 0)
    repeats.leave_out(["a"])
    database.doubts += 1
    assert repeats.leave_out(["a"]) == ["a"] and repeats.leave_out([]) == []
