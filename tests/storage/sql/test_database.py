"""What every engine does alike: secrets stay out, and rows are written together or not at all."""

import pytest

from foretool.storage.engine import StorageError
from foretool.storage.opening import open_store
from foretool.storage.sql.database import Said, encode_json, is_writable, replace_surrogates
from foretool.storage.store import Store


class Word:
    def redact(self, text: str) -> str:
        return text.replace("hunter2", "...")


def test_secrets_are_taken_out_of_what_others_said_and_of_nothing_else(store: Store) -> None:
    database = store.calls._database  # type: ignore[attr-defined]
    database.hide(Word)
    assert "hunter2" not in database.clean("the word is hunter2")
    assert database.clean_places(("hunter2", "hunter2"), (1,)) == ("hunter2", "...")
    database.run("INSERT INTO counters (name, value) VALUES (?, ?)", (Said("hunter2"), 1))
    database.run("INSERT INTO counters (name, value) VALUES (?, ?)", ("hunter2", 2))
    assert database.rows("SELECT name FROM counters WHERE name <> 'catalog' ORDER BY value") == [("...",), ("hunter2",)]


def test_of_rows_that_are_written_together_none_stays_if_one_fails(store: Store) -> None:
    database = store.calls._database  # type: ignore[attr-defined]
    with pytest.raises(StorageError):
        database.write_all("INSERT INTO counters (name, value) VALUES (?, ?)", [("a", 1), ("a", 2)])
    assert database.row("SELECT * FROM counters WHERE name = 'a'") is None


def test_ids_come_in_the_order_of_the_rows() -> None:
    with open_store(":memory:") as store, store.atomic():
        database = store.calls._database  # type: ignore[attr-defined]
        sql = "INSERT INTO lists (hash, tools) VALUES (?, ?)"
        assert database.insert(sql, (b"a", "[]")) == 1
        assert database.insert_all(sql, [(b"b", "[]"), (b"c", "[]")]) == [2, 3]
        assert database.insert_all(sql, []) == []


def test_an_unpaired_surrogate_becomes_a_question_mark() -> None:
    assert encode_json(["a\ud800b"]) == '["a?b"]'
    assert replace_surrogates(("a\ud800", 1, b"\xff")) == ["a?", 1, b"\xff"]
    assert replace_surrogates({"text": "\udfff"}) == {"text": "?"}
    assert is_writable("\U0001f600") and is_writable(7) and not is_writable("\ud800")
