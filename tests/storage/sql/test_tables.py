"""Records become rows and come back."""

from __future__ import annotations

from typing import cast

from msgspec import Struct
from msgspec.json import Decoder

from foretool.storage.sql.database import Database, Said
from foretool.storage.sql.tables import Repeats, Table


class Note(Struct):
    name: str
    tags: tuple[str, ...]
    is_read: bool
    id: int = 0


NOTES = Table("notes", Note, {"tags": Decoder(tuple[str, ...])}, flags=("is_read",), said=("name",))


def test_a_record_is_a_row_of_its_fields_and_comes_back() -> None:
    row = NOTES.row(Note("a", ("x", "y"), True))
    assert row == ("a", '["x","y"]', True)
    assert [type(each) for each in row] == [Said, str, bool]
    assert NOTES.read(("a", '["x","y"]', 1, 7)) == Note("a", ("x", "y"), True, 7)


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
