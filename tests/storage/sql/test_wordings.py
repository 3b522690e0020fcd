"""What language models have answered about tools, in both engines."""

from __future__ import annotations

from msgspec.structs import replace

from foretool.storage.records import Selection, Wording
from foretool.storage.store import Store

ONE = Wording(b"1", "tiny", 1, "calc", "calc__add", ("sum up", "ö ☃"), 100, 0.5, 1.0)
TWO = replace(ONE, digest=b"2", server="sky", tool="sky__moon", texts=())


def test_an_answer_takes_the_place_of_an_earlier_one_for_the_same_text(store: Store) -> None:
    for each in (TWO, ONE, replace(ONE, model="other", texts=("again",))):
        store.wordings.save(each)
    assert store.wordings.all() == [replace(ONE, model="other", texts=("again",)), TWO]


def test_an_answer_for_a_text_that_a_tool_no_longer_has_goes(store: Store) -> None:
    store.wordings.save(ONE)
    store.wordings.save(replace(ONE, digest=b"3"))
    assert [each.digest for each in store.wordings.all()] == [b"3"]


def test_they_are_deleted_by_server_by_model_and_with_everything(store: Store) -> None:
    for each in (ONE, TWO):
        store.wordings.save(each)
    assert store.wordings.remove("calc", "other") == 0 and store.wordings.remove("calc") == 1
    store.wordings.save(ONE)
    assert store.wordings.remove(model="tiny") == 2
    store.wordings.save(ONE)
    store.wordings.save(TWO)
    assert store.forgetting.forget(Selection(server="calc")).counts["wordings"] == 1
    assert store.forgetting.forget(Selection(everything=True)).counts["wordings"] == 1
    assert store.wordings.all() == []
