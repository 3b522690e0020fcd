"""Work in steps."""

from __future__ import annotations

import pytest

from foretool.storage.steps import Steps, finish


def count(done: list[int], most: int) -> Steps[str]:
    for number in range(most):
        done.append(number)
        yield
    return f"{most} done"


def test_a_piece_of_work_is_done_in_one_go_and_gives_its_value() -> None:
    done: list[int] = []
    assert finish(count(done, 3)) == "3 done" and done == [0, 1, 2]
    assert finish(count(done, 0)) == "0 done"


def test_an_error_in_a_step_reaches_who_finishes_it() -> None:
    def fail() -> Steps[None]:
        yield
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        finish(fail())
